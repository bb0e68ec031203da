//! `trace`: captures in, Parquet out.

use std::path::PathBuf;

/// Arguments of `trace`.
#[derive(clap::Args)]
pub struct Args {
    /// Folder for segments.parquet, connections.parquet and summary.json
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Captures, each with a label of its own, such as client-eth0=client.pcap
    #[arg(required = true, value_name = "LABEL=FILE")]
    captures: Vec<String>,
}

/// Reads the captures and writes the tables.
pub fn run(args: &Args) -> Result<(), String> {
    let mut captures = Vec::new();
    for word in &args.captures {
        let (label, path) = word
            .split_once('=')
            .ok_or_else(|| format!("'{word}' is not LABEL=FILE, such as client-eth0=client.pcap"))?;
        captures.push((label.to_owned(), PathBuf::from(path)));
    }
    backchannel_traces::write_tables(&captures, &args.out)
}
