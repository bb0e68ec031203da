//! A node with the mechanisms of this crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    backchannel_node::main(backchannel_outside::registry())
}
