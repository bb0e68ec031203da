//! Options of mechanisms, declared once: [`options!`](crate::options!) makes the struct with its reader, and the table
//! of parameters for validation, `./backchannel list` and the docs.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Error;
use crate::scenario::{Named, Options};

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
    /// A queue policy with its options, held as a child.
    Policy,
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
    Required(Required),
}

/// Serialised as `{"required": true}`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Required {
    required: bool,
}

/// The option is absent unless a campaign sets it.
pub const ABSENT: Preset = Preset::Absent;
/// A campaign must set the option.
pub const REQUIRED: Preset = Preset::Required(Required { required: true });

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
        self.at_least(min).at_most(max)
    }

    /// Adds a greatest value, in the SI unit.
    pub const fn at_most(self, max: f64) -> Param {
        Param { max: Some(max), ..self }
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

/// The default in a line of [`options!`](crate::options!): a number, true or false, a choice, [`ABSENT`] or
/// [`REQUIRED`].
pub struct DefaultOf<T>(pub T);

impl DefaultOf<i64> {
    /// As a [`Preset`].
    pub const fn preset(self) -> Preset {
        Preset::Number(self.0 as f64)
    }
}

impl DefaultOf<f64> {
    /// As a [`Preset`].
    pub const fn preset(self) -> Preset {
        Preset::Number(self.0)
    }
}

impl DefaultOf<bool> {
    /// As a [`Preset`].
    pub const fn preset(self) -> Preset {
        Preset::Flag(self.0)
    }
}

impl DefaultOf<&'static str> {
    /// As a [`Preset`].
    pub const fn preset(self) -> Preset {
        Preset::Text(self.0)
    }
}

impl DefaultOf<Preset> {
    /// As a [`Preset`].
    pub const fn preset(self) -> Preset {
        self.0
    }
}

/// A type that an option can have.
pub trait OptionValue: Sized {
    /// The names of a choice.
    const CHOICES: &'static [&'static str] = &[];

    /// Reads a validated option.
    fn read(checked: &CheckedOptions<'_>, name: &'static str) -> Self;
}

impl OptionValue for bool {
    fn read(checked: &CheckedOptions<'_>, name: &'static str) -> bool {
        checked.flag(name)
    }
}

/// A quantity of these types may be absent. One that may not has a default or is required.
macro_rules! quantities {
    ($($type:ty: $number:ident => $value:expr;)*) => {
        $(
            impl OptionValue for Option<$type> {
                fn read(checked: &CheckedOptions<'_>, name: &'static str) -> Option<$type> {
                    checked.number(name).map(|$number| $value)
                }
            }

            impl OptionValue for $type {
                fn read(checked: &CheckedOptions<'_>, name: &'static str) -> $type {
                    Option::<$type>::read(checked, name).unwrap_or_else(|| panic!("{name} has no default"))
                }
            }
        )*
    };
}
quantities! {
    f64: number => number;
    u32: number => number.round() as u32;
    u64: number => number.round() as u64;
    usize: number => number.round() as usize;
    Duration: seconds => Duration::from_secs_f64(seconds);
}

/// The text of a file.
impl OptionValue for String {
    fn read(checked: &CheckedOptions<'_>, name: &'static str) -> String {
        checked.text(name).unwrap_or_default().to_owned()
    }
}

impl OptionValue for Option<Named> {
    fn read(checked: &CheckedOptions<'_>, name: &'static str) -> Option<Named> {
        checked.policy(name)
    }
}

/// Declares the options of a mechanism:
///
/// ```
/// use backchannel_core::options::{ABSENT, REQUIRED};
///
/// backchannel_core::choice! {
///     /// Which packet a full queue drops.
///     pub enum Victim {
///         /// The arriving one.
///         Tail = "tail",
///         /// One of those waiting.
///         Random = "random",
///     }
/// }
///
/// backchannel_core::options! {
///     /// Options of a queue.
///     pub struct Sample {
///         limit_packets: usize = 20, [Packets 1 to 1e6] "capacity";
///         rate_bps: u64 = REQUIRED, [Rate 1] "rate at which it drains";
///         buffer_bytes: Option<u64> = ABSENT, [Bytes] "capacity in bytes; absent: no limit";
///         victim: Victim = "tail", [Choice] "which packet a full queue drops";
///     }
/// }
///
/// assert_eq!(Sample::PARAMS[3].choices, ["tail", "random"]);
/// ```
///
/// The name of a field is that of the option, with its unit; the brackets have the [`Unit`](crate::options::Unit) with
/// the least and the greatest value in SI units. Options that several mechanisms share are a struct of their own, which
/// others include before theirs (`.. limit: Limit;`) or after them (`... sack: SackFilter;`). After `+` stand fields
/// that no campaign sets.
#[macro_export]
macro_rules! options {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $(.. $before:ident: $before_type:ty;)*
            $($option:ident: $type:ty = $default:expr, [$unit:ident $($min:tt $(to $max:tt)?)?] $help:literal;)*
            $(... $after:ident: $after_type:ty;)*
            $(+ $(#[$extra_meta:meta])* $extra:ident: $extra_type:ty = $extra_value:expr;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        $vis struct $name {
            $(
                #[doc = concat!("Of [`", stringify!($before_type), "`].")]
                pub $before: $before_type,
            )*
            $(#[doc = $help] pub $option: $type,)*
            $(
                #[doc = concat!("Of [`", stringify!($after_type), "`].")]
                pub $after: $after_type,
            )*
            $($(#[$extra_meta])* pub $extra: $extra_type,)*
        }

        impl $name {
            /// The options in the order in which people read them.
            pub const PARAMS: &'static [$crate::options::Param] = {
                const PARTS: &[&[$crate::options::Param]] = &[
                    $(<$before_type>::PARAMS,)*
                    &[$(
                        $crate::options::Param::new(
                            stringify!($option),
                            $crate::options::Unit::$unit,
                            $crate::options::DefaultOf($default).preset(),
                            $help,
                        )
                        .of(<$type as $crate::options::OptionValue>::CHOICES)
                        $(.at_least($min as f64) $(.at_most($max as f64))?)?
                    ),*],
                    $(<$after_type>::PARAMS,)*
                ];
                &$crate::options::joined::<{ $crate::options::count(PARTS) }>(PARTS)
            };

            /// Reads validated options.
            pub fn read(checked: &$crate::options::CheckedOptions<'_>) -> $name {
                $name {
                    $($before: <$before_type>::read(checked),)*
                    $($option: $crate::options::OptionValue::read(checked, stringify!($option)),)*
                    $($after: <$after_type>::read(checked),)*
                    $($extra: $extra_value,)*
                }
            }
        }
    };
}

/// Declares an enum that is an option: each variant with the name that campaign files use. See
/// [`options!`](crate::options!). `.. Variant` at the end stands for every other name that the entry lists, and
/// `; absent: Variant` for none at all: so runs from before the option keep their ids.
#[macro_export]
macro_rules! choice {
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$doc:meta])* $variant:ident = $text:literal),* $(,)? $(.. $other:ident)? $(; absent: $absent:ident)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name {
            $($(#[$doc])* $variant,)*
            $(#[doc = "Another that the entry lists."] $other)?
        }

        impl $crate::options::OptionValue for $name {
            const CHOICES: &'static [&'static str] = &[$($text),*];

            fn read(checked: &$crate::options::CheckedOptions<'_>, name: &'static str) -> $name {
                match checked.text(name) {
                    $(Some($text) => $name::$variant,)*
                    $(Some(_) => $name::$other,)?
                    $(None => $name::$absent,)?
                    other => unreachable!("{name} was validated: {other:?}"),
                }
            }
        }
    };
}

/// Number of options in all parts of a declaration.
#[doc(hidden)]
pub const fn count(parts: &[&[Param]]) -> usize {
    let (mut part, mut all) = (0, 0);
    while part < parts.len() {
        all += parts[part].len();
        part += 1;
    }
    all
}

/// The options of all parts of a declaration, of which there are `N`.
#[doc(hidden)]
pub const fn joined<const N: usize>(parts: &[&[Param]]) -> [Param; N] {
    let mut all = [Param::new("", Unit::Flag, ABSENT, ""); N];
    let (mut part, mut at) = (0, 0);
    while part < parts.len() {
        let mut option = 0;
        while option < parts[part].len() {
            all[at] = parts[part][option];
            (at, option) = (at + 1, option + 1);
        }
        part += 1;
    }
    all
}

/// The `N` options with other defaults, by name, for a named variant of a mechanism. A name that does not exist is an
/// error of compilation.
pub const fn with_defaults<const N: usize>(options: &[Param], changed: &[(&str, Preset)]) -> [Param; N] {
    let mut all = joined::<N>(&[options]);
    let mut n = 0;
    while n < changed.len() {
        let mut at = 0;
        while !same(all[at].name, changed[n].0) {
            at += 1;
        }
        all[at] = Param { default: changed[n].1, ..all[at] };
        n += 1;
    }
    all
}

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

/// Options of a mechanism, validated against its declared parameters. Absent options have their defaults.
#[derive(Clone, Copy, Debug)]
pub struct CheckedOptions<'a> {
    /// Name of the mechanism, and what it declares.
    pub(crate) name: &'a str,
    pub(crate) params: &'a [Param],
    pub(crate) options: &'a Options,
}

impl<'a> CheckedOptions<'a> {
    /// Options that were validated before, as part of those of the mechanism `name`.
    pub fn validated(name: &'a str, params: &'a [Param], options: &'a Options) -> CheckedOptions<'a> {
        CheckedOptions { name, params, options }
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

    /// A policy that is held as a child; `None` if it is absent.
    pub fn policy(&self, name: &str) -> Option<Named> {
        let value = self.options.get(name).filter(|value| !value.is_null())?;
        Some(Named::deserialize(value).expect("it was validated"))
    }

    /// Whether a campaign sets an option, instead of taking its default.
    pub fn is_set(&self, name: &str) -> bool {
        self.options.contains_key(name)
    }

    fn param(&self, name: &str) -> &'a Param {
        let param = self.params.iter().find(|param| param.name == name);
        param.unwrap_or_else(|| panic!("{} does not declare '{name}'", self.name))
    }
}

impl Param {
    pub(crate) fn accept(&self, value: &Value) -> Result<(), Error> {
        match self.unit {
            Unit::Flag if value.is_boolean() => Ok(()),
            Unit::Flag => Err(Error::Option(format!("{value} is not true or false"))),
            Unit::Choice if value.as_str().is_some_and(|v| self.choices.contains(&v)) => Ok(()),
            Unit::Choice => Err(Error::Option(format!("{value} is not one of {}", self.choices.join(", ")))),
            Unit::File if value.is_string() => Ok(()),
            Unit::File => Err(Error::Option(format!("{value} is not the text of a file"))),
            _ if value.is_null() && self.default == Preset::Absent => Ok(()),
            Unit::Policy => {
                Named::deserialize(value).map(drop).map_err(|why| Error::Option(format!("it is not a policy: {why}")))
            }
            _ => {
                let number = value.as_f64().ok_or_else(|| Error::Option(format!("{value} is not a number")))?;
                let is_integer = matches!(self.unit, Unit::Packets | Unit::Segments | Unit::Count | Unit::Bytes);
                if is_integer && number.fract() != 0.0 {
                    return Err(Error::Option(format!("{number} is not a whole number")));
                }
                let (min, max) = match self.unit {
                    Unit::Fraction => (self.min.unwrap_or(0.0), self.max.unwrap_or(1.0)),
                    _ => (self.min.unwrap_or(f64::NEG_INFINITY), self.max.unwrap_or(f64::INFINITY)),
                };
                if (min..=max).contains(&number) {
                    return Ok(());
                }
                Err(Error::Option(match (min.is_finite(), max.is_finite()) {
                    (true, true) => format!("{number} is not between {min} and {max}"),
                    (true, false) => format!("{number} is below {min}"),
                    _ => format!("{number} is above {max}"),
                }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Entry, Kind, Queueing, When};

    const ENTRY: Entry = Entry {
        kind: Kind::Policy(Queueing::FIFO),
        name: "sample",
        summary: "",
        source: "",
        random: When::Never,
        params: &[
            Param::new("limit_packets", Unit::Packets, Preset::Number(10.0), "").at_least(1.0),
            Param::new("mark", Unit::Flag, Preset::Flag(false), ""),
            Param::new("file", Unit::File, REQUIRED, "a trace"),
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
            (r#"{"file": "x", "limit": 3}"#, "unknown option 'limit'; allowed: limit_packets, mark, file"),
            (r#"{"file": "x", "limit_packets": 0}"#, "0 is below 1"),
            (r#"{"file": "x", "limit_packets": 1.5}"#, "not a whole number"),
            (r#"{}"#, "'file' must be given"),
        ] {
            let why = CheckedOptions::check(&ENTRY, &options(json)).unwrap_err();
            assert!(why.to_string().contains(words), "{why}");
        }
    }
}
