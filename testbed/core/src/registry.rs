//! Registry entries: name, source and parameters of each mechanism. Each crate lists its entries in one table.
//! `backchannel-node registry` prints them all for the campaign validator, `./backchannel list` and the docs.

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::scenario::Options;

/// What a parameter is, and how campaigns write it.
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
    /// A number without unit.
    Number,
    /// A whole number without unit.
    Count,
    /// A number between 0 and 1.
    Fraction,
    /// true or false.
    Flag,
    /// One of `choices`.
    Choice,
    /// A file. Campaigns name it and scenarios contain its text, so a run's identity depends on the content.
    File,
}

/// Default of a parameter, in the SI unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Preset {
    /// A quantity.
    Number(f64),
    /// On or off.
    Flag(bool),
    /// A choice or a name.
    Text(&'static str),
    /// Absent; the help says what that means.
    Absent,
    /// There is none: a campaign must set the parameter.
    Required(Must),
}

/// Serialised as `{"required": true}`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Must {
    required: bool,
}

/// For [`Preset::Required`].
pub const MUST: Must = Must { required: true };

/// A parameter: declared once for validator, docs and code.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Param {
    /// Name in campaign files.
    pub name: &'static str,
    /// Unit or kind of its values.
    pub unit: Unit,
    /// Default.
    pub default: Preset,
    /// Least allowed value, in the SI unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// Greatest allowed value, in the SI unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// Allowed values of a [`Unit::Choice`].
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub choices: &'static [&'static str],
    /// One line, with the source if there is one.
    pub help: &'static str,
}

impl Param {
    /// A parameter without limits or choices.
    pub const fn new(name: &'static str, unit: Unit, default: Preset, help: &'static str) -> Param {
        Param { name, unit, default, min: None, max: None, choices: &[], help }
    }

    /// Adds an allowed range, in the SI unit.
    pub const fn range(self, min: f64, max: f64) -> Param {
        Param { min: Some(min), max: Some(max), ..self }
    }

    /// Adds a least value, in the SI unit.
    pub const fn at_least(self, min: f64) -> Param {
        Param { min: Some(min), ..self }
    }

    /// Adds the values of a choice.
    pub const fn of(self, choices: &'static [&'static str]) -> Param {
        Param { choices, ..self }
    }
}

/// When a mechanism's behaviour depends on the seed of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Random {
    /// Never.
    Never,
    /// Always, as far as it is used.
    Always,
    /// Unless this option is 0, false, `none` or absent.
    With(&'static str),
}

/// Serialised as true, false or the name of the option.
impl Serialize for Random {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Random::Never => serializer.serialize_bool(false),
            Random::Always => serializer.serialize_bool(true),
            Random::With(option) => serializer.serialize_str(option),
        }
    }
}

/// A mechanism.
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
    /// When a run with it depends on the seed.
    pub random: Random,
    /// Parameters.
    pub params: &'static [Param],
}

/// The mechanism of that name in a table of entries and their constructors.
///
/// # Errors
/// See [`unknown`].
pub fn find<'a, B>(
    table: &'a [(&'static Entry, B)],
    kind: &str,
    name: &str,
) -> Result<&'a (&'static Entry, B), String> {
    let names = || table.iter().map(|(entry, _)| entry.name);
    table.iter().find(|(entry, _)| entry.name == name).ok_or_else(|| unknown(kind, name, names()))
}

/// A message that a name is not known, with those that are.
pub fn unknown<'a>(kind: &str, name: &str, known: impl Iterator<Item = &'a str>) -> String {
    format!("there is no {kind} '{name}'; there are: {}", known.collect::<Vec<_>>().join(", "))
}

/// Options of a mechanism, validated against its declared parameters. Absent options have their defaults.
#[derive(Clone, Copy, Debug)]
pub struct CheckedOptions<'a> {
    entry: &'a Entry,
    options: &'a Options,
}

impl<'a> CheckedOptions<'a> {
    /// Validates the options.
    ///
    /// # Errors
    /// An unknown name, a wrong kind, a value out of range, or a missing required option. The message lists what is allowed.
    pub fn check(entry: &'a Entry, options: &'a Options) -> Result<CheckedOptions<'a>, String> {
        for (name, value) in options {
            let Some(param) = entry.params.iter().find(|p| p.name == name) else {
                let known: Vec<_> = entry.params.iter().map(|p| p.name).collect();
                return Err(format!("{} {}: no option '{name}'; it has: {}", entry.kind, entry.name, known.join(", ")));
            };
            param.accept(value).map_err(|why| format!("{} {}: {name}: {why}", entry.kind, entry.name))?;
        }
        for param in entry.params {
            if matches!(param.default, Preset::Required(_)) && !options.contains_key(param.name) {
                return Err(format!("{} {}: '{}' must be given: {}", entry.kind, entry.name, param.name, param.help));
            }
        }
        Ok(CheckedOptions { entry, options })
    }

    /// A quantity; `None` if it is absent and has no default.
    pub fn number(&self, name: &str) -> Option<f64> {
        match self.options.get(name) {
            Some(value) => value.as_f64(),
            None => match self.param(name).default {
                Preset::Number(n) => Some(n),
                _ => None,
            },
        }
    }

    /// A whole quantity; `None` if it is absent and has no default.
    pub fn count(&self, name: &str) -> Option<u64> {
        self.number(name).map(|n| n.round() as u64)
    }

    /// A flag; false if it is absent and has no default.
    pub fn flag(&self, name: &str) -> bool {
        match self.options.get(name) {
            Some(value) => value.as_bool().unwrap_or(false),
            None => matches!(self.param(name).default, Preset::Flag(true)),
        }
    }

    /// A choice or text; `None` if it is absent and has no default.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        match self.options.get(name) {
            Some(value) => value.as_str(),
            None => match self.param(name).default {
                Preset::Text(text) => Some(text),
                _ => None,
            },
        }
    }

    fn param(&self, name: &str) -> &'a Param {
        let param = self.entry.params.iter().find(|p| p.name == name);
        param.unwrap_or_else(|| panic!("{} {} does not declare '{name}'", self.entry.kind, self.entry.name))
    }
}

impl Param {
    fn accept(&self, value: &Value) -> Result<(), String> {
        match self.unit {
            Unit::Flag if value.is_boolean() => Ok(()),
            Unit::Flag => Err(format!("{value} is not true or false")),
            Unit::Choice if value.as_str().is_some_and(|v| self.choices.contains(&v)) => Ok(()),
            Unit::Choice => Err(format!("{value} is none of {}", self.choices.join(", "))),
            Unit::File if value.is_string() => Ok(()),
            Unit::File => Err(format!("{value} is not the text of a file")),
            _ if value.is_null() && self.default == Preset::Absent => Ok(()),
            _ => {
                let number = value.as_f64().ok_or_else(|| format!("{value} is not a number"))?;
                let is_integer = matches!(self.unit, Unit::Packets | Unit::Segments | Unit::Count | Unit::Bytes);
                if is_integer && number.fract() != 0.0 {
                    return Err(format!("{number} is not a whole number"));
                }
                let (min, max) = match self.unit {
                    Unit::Fraction => (self.min.unwrap_or(0.0), self.max.unwrap_or(1.0)),
                    _ => (self.min.unwrap_or(f64::NEG_INFINITY), self.max.unwrap_or(f64::INFINITY)),
                };
                if (min..=max).contains(&number) {
                    return Ok(());
                }
                Err(match (min.is_finite(), max.is_finite()) {
                    (true, true) => format!("{number} is not between {min} and {max}"),
                    (true, false) => format!("{number} is below {min}"),
                    _ => format!("{number} is above {max}"),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: Entry = Entry {
        kind: "policy",
        name: "sample",
        summary: "",
        source: "",
        random: Random::Never,
        params: &[
            Param::new("limit_packets", Unit::Packets, Preset::Number(10.0), "").at_least(1.0),
            Param::new("mark", Unit::Flag, Preset::Flag(false), ""),
            Param::new("file", Unit::File, Preset::Required(MUST), "a trace"),
        ],
    };

    fn options(json: &str) -> Options {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn set_and_default_values() {
        let options = options(r#"{"file": "x", "mark": true}"#);
        let checked = CheckedOptions::check(&ENTRY, &options).unwrap();
        assert_eq!(
            (checked.count("limit_packets"), checked.flag("mark"), checked.text("file")),
            (Some(10), true, Some("x"))
        );
    }

    #[test]
    fn errors_state_what_is_allowed() {
        for (json, words) in [
            (r#"{"file": "x", "limit": 3}"#, "no option 'limit'; it has: limit_packets, mark, file"),
            (r#"{"file": "x", "limit_packets": 0}"#, "0 is below 1"),
            (r#"{"file": "x", "limit_packets": 1.5}"#, "not a whole number"),
            (r#"{}"#, "'file' must be given"),
        ] {
            let why = CheckedOptions::check(&ENTRY, &options(json)).unwrap_err();
            assert!(why.contains(words), "{why}");
        }
    }
}
