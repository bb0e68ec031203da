//! `trace`: classifies the TCP segments of captures and writes them as Parquet.

use std::path::PathBuf;

use backchannel_traces::{Input, Options};

/// Arguments of `trace`.
#[derive(clap::Args)]
pub struct Args {
    /// Folder for segments.parquet, sacks.parquet, connections.parquet and summary.json
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Write only connections.parquet and summary.json
    #[arg(long)]
    no_segments: bool,
    /// Number of captures read at a time, each by a thread
    #[arg(long, value_name = "N", default_value_t = 1)]
    jobs: usize,
    /// Nanoseconds to add to the times of a capture, such as client-eth0=-1500; may be repeated
    #[arg(long, value_name = "LABEL=NS", allow_hyphen_values = true)]
    shift: Vec<String>,
    /// Captures, each with a unique label, such as client-eth0=client.pcap
    #[arg(required = true, value_name = "LABEL=FILE")]
    captures: Vec<String>,
}

/// Reads the captures and writes the tables.
pub fn run(args: &Args) -> Result<(), String> {
    let mut inputs = Vec::new();
    for word in &args.captures {
        let (label, path) = word
            .split_once('=')
            .ok_or_else(|| format!("'{word}' is not LABEL=FILE, such as client-eth0=client.pcap"))?;
        inputs.push(Input { label: label.to_owned(), path: PathBuf::from(path), shift_ns: 0 });
    }
    for word in &args.shift {
        let (label, shift) =
            word.split_once('=').ok_or_else(|| format!("'{word}' is not LABEL=NS, such as client-eth0=-1500"))?;
        let shift_ns: i64 = shift
            .parse()
            .ok()
            .filter(|ns: &i64| ns.abs() <= 1 << 61)
            .ok_or_else(|| format!("'{shift}' in '{word}' is not a number of nanoseconds within 70 years"))?;
        let input = inputs
            .iter_mut()
            .find(|input| input.label == label)
            .ok_or_else(|| format!("--shift {word}: no capture has the label {label}"))?;
        input.shift_ns = shift_ns;
    }
    backchannel_traces::write_tables(&inputs, &args.out, &Options { segments: !args.no_segments, jobs: args.jobs })
}
