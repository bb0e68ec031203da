//! How a mechanism says what it is. Each crate lists its entries in one table; the node binary prints them all
//! (`backchannel-node registry`), and the campaign validator, `./backchannel list` and the docs read only that.

use serde::Serialize;

/// What a parameter's value is, and how people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Bit/s ("28.8 kbit/s").
    Rate,
    /// Seconds ("50 ms").
    Time,
    /// Bytes ("64 KiB").
    Bytes,
    /// Packets ("10 packets").
    Packets,
    /// TCP segments ("4 segments").
    Segments,
    /// A plain number; fractions included.
    Number,
    /// A whole number.
    Count,
    /// Between 0 and 1.
    Fraction,
    /// true or false.
    Flag,
    /// One of `choices`.
    Choice,
    /// A file of the user's, read when the scenario is built.
    File,
}

/// One parameter: declared once, read by validator, docs and code.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Param {
    /// Name in campaign files.
    pub name: &'static str,
    /// What it is.
    pub unit: Unit,
    /// The default, written as a person would; `""` when it must be given, `"none"` when absent is meaningful.
    pub default: &'static str,
    /// Least value allowed, in the SI unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// Greatest value allowed, in the SI unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// For [`Unit::Choice`].
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub choices: &'static [&'static str],
    /// One line, with the source where there is one.
    pub help: &'static str,
}

impl Param {
    /// A parameter without limits or choices; fill in the rest with struct update syntax.
    pub const fn new(name: &'static str, unit: Unit, default: &'static str, help: &'static str) -> Param {
        Param { name, unit, default, min: None, max: None, choices: &[], help }
    }

    /// The same with an allowed range, in the SI unit.
    pub const fn range(self, min: f64, max: f64) -> Param {
        Param { min: Some(min), max: Some(max), ..self }
    }

    /// The same with a least value, in the SI unit.
    pub const fn at_least(self, min: f64) -> Param {
        Param { min: Some(min), ..self }
    }

    /// The same as a choice.
    pub const fn of(self, choices: &'static [&'static str]) -> Param {
        Param { choices, ..self }
    }
}

/// One mechanism.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Entry {
    /// `stack`, `policy`, `link`, `middlebox`, `workload`, `error-model`, `backend`, ...
    pub kind: &'static str,
    /// Name in campaign files: lower case, words joined by hyphens.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Paper section or RFC.
    pub source: &'static str,
    /// Its parameters.
    pub params: &'static [Param],
}
