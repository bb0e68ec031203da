//! `trace`: classifies the TCP segments of captures and writes them as Parquet.

use std::fs;
use std::panic::{self, UnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use backchannel_core::{Error, ResultExt};
use backchannel_traces::{Input, Options};

use crate::confined::{confine, Programs};

/// Arguments of `trace`.
#[derive(clap::Args)]
pub struct Args {
    /// Folder for segments.parquet, sacks.parquet, connections.parquet and summary.json
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Write only connections.parquet and summary.json
    #[arg(long)]
    no_segments: bool,
    /// Write datagrams.parquet as well: packets of UDP and echoes of ICMP
    #[arg(long)]
    datagrams: bool,
    /// Number of threads: each reads a capture, and those left over encode tables
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
pub fn run(args: &Args) -> Result<(), Error> {
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
    fs::create_dir_all(&args.out).or_system(format_args!("cannot make {}", args.out.display()))?;
    let captures: Vec<&Path> = inputs.iter().map(|input| input.path.as_path()).collect();
    confine(&captures, &[&args.out], Programs::Refused)?;
    let options = Options { segments: !args.no_segments, datagrams: args.datagrams, jobs: args.jobs };
    without_panics(|| backchannel_traces::write_tables(&inputs, &args.out, &options))
}

/// The first panic of any thread of the reader.
static FIRST_PANIC: Mutex<Option<String>> = Mutex::new(None);

/// Runs the reader. A panic becomes an error instead of a backtrace.
fn without_panics(read: impl FnOnce() -> Result<(), Error> + UnwindSafe) -> Result<(), Error> {
    panic::set_hook(Box::new(|info| {
        let place = info.location().map_or_else(String::new, |at| format!(" ({}:{})", at.file(), at.line()));
        let text = info.payload().downcast_ref::<&str>().copied();
        let message = text.or_else(|| info.payload().downcast_ref::<String>().map(String::as_str));
        let message = format!("{}{place}", message.unwrap_or("no message"));
        FIRST_PANIC.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(message);
    }));
    let result = panic::catch_unwind(read);
    let _ = panic::take_hook();
    let message = FIRST_PANIC.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
    result.unwrap_or_else(|_| {
        let message = message.unwrap_or_else(|| "no message".to_owned());
        Err(Error::System(format!("internal error while reading this capture: {message}; please report it")))
    })
}

#[cfg(test)]
mod tests {
    use super::without_panics;

    #[test]
    fn a_panic_of_the_reader_is_an_error_with_its_place() {
        let from_a_thread = || {
            std::thread::scope(|scope| {
                scope.spawn(|| panic!("queue of {} is empty", 3));
            });
            Ok(())
        };
        let message = without_panics(from_a_thread).unwrap_err();
        assert!(
            message
                .to_string()
                .contains("internal error while reading this capture: queue of 3 is empty (agents/node/src/trace.rs:"),
            "{message}"
        );
        assert_eq!(without_panics(|| Err("no file".into())), Err("no file".into()));
    }
}
