//! `simulate`: runs a scenario in virtual time, or one after another in memory.

use std::io::{BufRead, Read, Write};
use std::path::{Path, PathBuf};

use backchannel_core::{Error, ResultExt};
use backchannel_links::Registry;
use serde_json::json;

use crate::reports;

/// Arguments of `simulate`. The scenario and its addresses are JSON on standard input.
#[derive(clap::Args)]
pub struct Args {
    /// Folder for captures, telemetry and counters
    #[arg(long, value_name = "DIR", required_unless_present = "in_memory")]
    out: Option<PathBuf>,
    /// Run the scenario of each line of standard input, and answer with a line that has the report and the counters, or
    /// an error; nothing is written to disk
    #[arg(long, conflicts_with = "out")]
    in_memory: bool,
    /// Die when process PID dies; it must be the parent of this one
    #[arg(long, value_name = "PID")]
    parent: Option<u32>,
}

/// Runs the scenario and prints the report; or those of the lines, until there are no more.
pub fn run(registry: &Registry, args: &Args) -> Result<(), Error> {
    backchannel_emulator::die_with(args.parent)?;
    args.out.as_deref().map_or_else(|| serve(registry), |out| run_one(registry, out))
}

fn run_one(registry: &Registry, out: &Path) -> Result<(), Error> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).or_system("cannot read the scenario")?;
    let input = serde_json::from_str(&text).or_malformed("invalid scenario")?;
    drop(text);
    let report = backchannel_simulator::simulate(registry, &input, out)?;
    reports::print(&report)
}

fn serve(registry: &Registry) -> Result<(), Error> {
    let mut answers = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line.or_system("cannot read a scenario")?;
        let done = serde_json::from_str(&line)
            .or_malformed("invalid scenario")
            .and_then(|input| backchannel_simulator::simulate_in_memory(registry, &input));
        let answer = match done {
            Ok((report, counters)) => json!({ "report": report, "counters": counters }),
            Err(error) => json!({ "error": error.to_string() }),
        };
        writeln!(answers, "{answer}").and_then(|()| answers.flush()).or_system("cannot print a report")?;
    }
    Ok(())
}
