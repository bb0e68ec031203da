//! `simulate`: runs a scenario in virtual time.

use std::io::Read;
use std::path::PathBuf;

use backchannel_core::{Error, ResultExt};
use backchannel_links::Registry;

use crate::reports;

/// Arguments of `simulate`. The scenario and its addresses are JSON on standard input.
#[derive(clap::Args)]
pub struct Args {
    /// Folder for captures, telemetry and counters
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Die when process PID dies; it must be the parent of this one
    #[arg(long, value_name = "PID")]
    parent: Option<u32>,
}

/// Runs the scenario and prints the report.
pub fn run(registry: &Registry, args: &Args) -> Result<(), Error> {
    backchannel_emulator::die_with(args.parent)?;
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).or_system("cannot read the scenario")?;
    let input = serde_json::from_str(&text).or_malformed("invalid scenario")?;
    drop(text);
    let report = backchannel_simulator::simulate(registry, &input, &args.out)?;
    reports::print(&report)
}
