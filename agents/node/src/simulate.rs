//! `simulate`: a scenario in virtual time.

use std::io::Read;
use std::path::PathBuf;

/// Arguments of `simulate`; the scenario and its addresses come as JSON on standard input.
#[derive(clap::Args)]
pub struct Args {
    /// Folder for captures and telemetry
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Die when this process is gone (it must be the one that starts this one)
    #[arg(long, value_name = "PID")]
    parent: Option<u32>,
}

/// Runs it and prints the report.
pub fn run(args: &Args) -> Result<(), String> {
    backchannel_emulator::die_with(args.parent)?;
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| format!("cannot read the scenario: {error}"))?;
    let input = serde_json::from_str(&text).map_err(|error| format!("the scenario does not fit: {error}"))?;
    let report = backchannel_simulator::simulate(&input, &args.out)?;
    println!("{}", serde_json::json!(report));
    Ok(())
}
