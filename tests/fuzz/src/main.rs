//! Feeds parsers and state machines with mutated bytes (docs/testing.md).
//!
//!     backchannel-fuzz TARGET --seed S --seconds N --corpus FOLDER --at FILE     tries inputs until the time is over
//!     backchannel-fuzz TARGET --seed S --only NUMBER --corpus FOLDER             writes one input to standard output
//!     backchannel-fuzz TARGET --seed S --stream --corpus FOLDER                  writes inputs until nobody reads them
//!
//! A stream has the length of each input (8 bytes) before it, and serves targets that are not here but in Python.
//! FILE holds the number of the current input (8 bytes), so that a caller knows it after a panic, an abort or a limit.

mod mutation;
mod targets;

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use backchannel_core::{Error, ResultExt};
use targets::TARGETS;

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::from(2)
        }
    }
}

fn run(words: &[String]) -> Result<(), Error> {
    let names = || TARGETS.map(|target| format!("{}: {}", target.name, target.about)).join("\n");
    let name = words.first().ok_or_else(|| format!("name a target:\n{}", names()))?;
    let option = |name: &str| words.iter().position(|word| word == name).and_then(|at| words.get(at + 1));
    let number = |name: &str| -> Result<Option<u64>, Error> {
        let word = option(name);
        word.map(|word| word.parse().or_malformed(format_args!("{name} {word}"))).transpose()
    };
    let seed = number("--seed")?.unwrap_or(1);
    let corpus = read(Path::new(option("--corpus").ok_or("--corpus FOLDER is missing")?), name)?;
    if let Some(only) = number("--only")? {
        let bytes = mutation::input(seed, only, &corpus);
        return io::stdout().write_all(&bytes).or_system("standard output");
    }
    if words.iter().any(|word| word == "--stream") {
        return stream(seed, &corpus).or_else(|error| match error.kind() {
            ErrorKind::BrokenPipe => Ok(()),
            _ => Err(error).or_system("standard output"),
        });
    }
    let target = TARGETS.iter().find(|target| target.name == name);
    let target = target.ok_or_else(|| format!("unknown target '{name}'; allowed:\n{}", names()))?;
    let at = option("--at").ok_or("--at FILE is missing")?;
    let at = File::options().write(true).create(true).truncate(false).open(at).or_system(at)?;
    let end = Instant::now() + Duration::from_secs(number("--seconds")?.ok_or("--seconds N is missing")?);
    // The corpus itself, whole, comes first.
    corpus.iter().for_each(|bytes| (target.run)(bytes));
    let mut tried = 0;
    while Instant::now() < end {
        at.write_all_at(&u64::to_le_bytes(tried), 0).or_system("the place")?;
        (target.run)(&mutation::input(seed, tried, &corpus));
        tried += 1;
    }
    println!("{tried}");
    Ok(())
}

fn stream(seed: u64, corpus: &[Vec<u8>]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for number in 0.. {
        let bytes = mutation::input(seed, number, corpus);
        out.write_all(&u64::to_le_bytes(bytes.len() as u64))?;
        out.write_all(&bytes)?;
    }
    Ok(())
}

/// The corpus of a target, in the order of its names.
fn read(folder: &Path, target: &str) -> Result<Vec<Vec<u8>>, Error> {
    let folder = folder.join(target);
    let mut paths: Vec<_> =
        fs::read_dir(&folder).or_system(folder.display())?.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.iter().map(fs::read).collect::<Result<_, _>>().or_system(folder.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a corpus lacks, its target is never fed with.
    #[test]
    fn every_target_has_a_corpus_and_takes_a_hundred_inputs_of_it() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
        for target in &TARGETS {
            let corpus = read(&folder, target.name).unwrap();
            assert!(!corpus.is_empty(), "{} has no corpus", target.name);
            corpus.iter().for_each(|bytes| (target.run)(bytes));
            (0..100).for_each(|number| (target.run)(&mutation::input(1, number, &corpus)));
        }
    }

    #[test]
    fn an_input_is_the_same_each_time_and_unlike_its_neighbours() {
        let corpus = [b"some bytes of a corpus".to_vec(), vec![7; 100]];
        let inputs: Vec<_> = (0..50).map(|number| mutation::input(3, number, &corpus)).collect();
        let again: Vec<_> = (0..50).map(|number| mutation::input(3, number, &corpus)).collect();
        assert_eq!(inputs, again);
        let different: std::collections::HashSet<_> = inputs.iter().collect();
        assert!(different.len() > 40, "{}", different.len());
    }
}
