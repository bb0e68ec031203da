//! Laws that hold for every mechanism, whatever arrives. The property tests of the crates apply them to their own
//! mechanisms, and `backchannel-node laws` (`./backchannel check`) to those of other crates.
//!
//! A law is a function that drives a mechanism with given steps and returns the first violation as [`Broken`]. Steps
//! come from a test's strategy, or from [`steps::of_seed`].

pub mod link;
pub mod middlebox;
pub mod policy;
pub mod steps;

use std::fmt;

/// A violated law.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Name of the law.
    pub law: &'static str,
    /// What happened instead.
    pub what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.law, self.what)
    }
}

impl std::error::Error for Broken {}

/// Fails with a violation of a law unless a condition holds.
macro_rules! hold {
    ($law:expr, $condition:expr, $($what:tt)+) => {
        if !$condition {
            return Err($crate::Broken { law: $law, what: format!($($what)+) });
        }
    };
}
pub(crate) use hold;

/// Whatever enters leaves once, waits, or is reported once.
pub const CONSERVATION: &str = "conservation";
/// Packets leave in the order that the mechanism claims to keep.
pub const ORDER: &str = "order";
/// Nothing happens before its time, and times that a mechanism announces are kept.
pub const TIME: &str = "no time travel";
/// A second call at the same time changes nothing.
pub const POLLING: &str = "idempotent polling";
/// What waits is bounded, and counted as it is.
pub const MEMORY: &str = "bounded memory";
/// The same seed and the same arrivals give the same result.
pub const DETERMINISM: &str = "determinism";
/// Packets of IPv6 are treated as those of IPv4.
pub const IP: &str = "both versions of IP alike";

#[cfg(test)]
mod tests;
