//! The processes below this one. It is their subreaper, so that none can leave by losing its parent.

use std::collections::{HashMap, HashSet};
use std::fs;

use rustix::process::{getpid, kill_process, wait, Pid, Signal, WaitOptions, WaitStatus};

/// Every process below this one that has not ended.
pub(super) fn all() -> Vec<Pid> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        // A process that has ended meanwhile has no file.
        let Some((state, parent)) = fs::read_to_string(entry.path().join("stat")).ok().as_deref().and_then(parse)
        else {
            continue;
        };
        if state != 'Z' && state != 'X' {
            children.entry(parent).or_default().push(pid);
        }
    }
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    let mut edge = vec![getpid().as_raw_nonzero().get()];
    while let Some(parent) = edge.pop() {
        for &pid in children.get(&parent).into_iter().flatten() {
            if seen.insert(pid) {
                edge.push(pid);
                found.extend(Pid::from_raw(pid));
            }
        }
    }
    found
}

/// Sends a signal to all of them. Their number.
pub(super) fn signal_all(signal: Signal) -> usize {
    let found = all();
    for &pid in &found {
        // One that has ended meanwhile needs no signal.
        let _ = kill_process(pid, signal);
    }
    found.len()
}

/// Those that have ended since the last call.
pub(super) fn reap() -> Vec<(Pid, WaitStatus)> {
    std::iter::from_fn(|| wait(WaitOptions::NOHANG).ok().flatten()).collect()
}

/// State and parent of a process, from its `stat`. Its name is in parentheses and may contain any character.
fn parse(stat: &str) -> Option<(char, i32)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_hides_no_parent() {
        assert_eq!(parse("42 (a) R 1) S 7 42 42 0"), Some(('S', 7)));
        assert_eq!(parse("42 (cat"), None);
    }
}
