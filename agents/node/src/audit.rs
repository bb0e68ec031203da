//! `audit`: compares a run's captures with the links that its scenario declares.

use std::io::Read;
use std::path::PathBuf;

use backchannel_core::{Error, ResultExt};
use backchannel_links::Registry;

use crate::reports;

/// Arguments of `audit`. The scenario, its addresses, and start and length of the run are JSON on standard input.
#[derive(clap::Args)]
pub struct Args {
    /// Folder with the captures, INTERFACE.pcap
    #[arg(long, value_name = "DIR")]
    captures: PathBuf,
    /// The links' telemetry
    #[arg(long, value_name = "FILE")]
    telemetry: PathBuf,
}

/// Audits the run and prints what its links did.
pub fn run(registry: &Registry, args: &Args) -> Result<(), Error> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).or_system("cannot read the run")?;
    let run = serde_json::from_str(&text).or_malformed("invalid run")?;
    let audit = backchannel_audit::audit(&run, &args.captures, &args.telemetry, &registry.entries())?;
    reports::print(&audit)
}
