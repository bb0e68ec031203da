//! `simulate`: runs a scenario in virtual time.

use std::io::Read;
use std::path::PathBuf;

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
pub fn run(registry: &Registry, args: &Args) -> Result<(), String> {
    backchannel_emulator::die_with(args.parent)?;
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| format!("cannot read the scenario: {error}"))?;
    let input = serde_json::from_str(&text).map_err(|error| format!("invalid scenario: {error}"))?;
    drop(text);
    let report = backchannel_simulator::simulate(registry, &input, &args.out)?;
    reports::print(&report)
}
