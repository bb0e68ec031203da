//! `backchannel-node`: the program that is copied to a node.

use std::process::ExitCode;

use backchannel_node::Registry;

fn main() -> ExitCode {
    backchannel_node::main(Registry::builtin())
}
