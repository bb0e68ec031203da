//! Why a part of a scenario cannot be built or run.

use std::fmt;

/// Most names that a message lists.
const MOST_NAMED: usize = 10;

/// The cause, with the part that has it. Its text is a message for the person who wrote the campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// No entry of a kind has this name. The last field lists those that exist.
    Unknown(&'static str, String, String),
    /// The value of an option is not allowed.
    Option(String),
    /// The options exclude each other, or are not allowed here.
    Unfit(String),
    /// A file cannot be written, or another system call fails.
    System(String),
    /// Input is not in the format that it should have: JSON, a capture.
    Malformed(String),
    /// The cause is in a part: a direction, a child.
    Within(String, Box<Error>),
}

impl Error {
    /// No entry of this kind has this name. The message lists those that exist; of many those that begin most like it.
    pub fn unknown<'a>(kind: &'static str, name: &str, existing: impl Iterator<Item = &'a str>) -> Error {
        let mut names: Vec<_> = existing.collect();
        let more = names.len().saturating_sub(MOST_NAMED);
        if more > 0 {
            let alike = |other: &&str| other.bytes().zip(name.bytes()).take_while(|(one, two)| one == two).count();
            // One letter in common says nothing.
            names.sort_by_key(|other| std::cmp::Reverse(alike(other) / 2));
        }
        names.truncate(MOST_NAMED);
        let rest = if more == 0 { String::new() } else { format!(", and {more} more") };
        Error::Unknown(kind, name.to_owned(), names.join(", ") + &rest)
    }

    /// The error, as that of the part of this name.
    pub fn within(self, part: impl Into<String>) -> Error {
        Error::Within(part.into(), Box::new(self))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unknown(kind, name, known) => write!(f, "unknown {kind} '{name}'; allowed: {known}"),
            Error::Option(why) | Error::Unfit(why) | Error::System(why) | Error::Malformed(why) => f.write_str(why),
            Error::Within(part, cause) => write!(f, "{part}: {cause}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<String> for Error {
    fn from(why: String) -> Error {
        Error::Unfit(why)
    }
}

impl From<&str> for Error {
    fn from(why: &str) -> Error {
        Error::Unfit(why.to_owned())
    }
}

/// Says what failed, for the errors of other libraries.
pub trait ResultExt<T> {
    /// An error becomes an [`Error::System`] with the text `WHAT: ERROR`.
    fn or_system(self, what: impl fmt::Display) -> Result<T, Error>;

    /// An error becomes an [`Error::Malformed`] with the text `WHAT: ERROR`.
    fn or_malformed(self, what: impl fmt::Display) -> Result<T, Error>;
}

impl<T, E: fmt::Display> ResultExt<T> for Result<T, E> {
    fn or_system(self, what: impl fmt::Display) -> Result<T, Error> {
        self.map_err(|error| Error::System(format!("{what}: {error}")))
    }

    fn or_malformed(self, what: impl fmt::Display) -> Result<T, Error> {
        self.map_err(|error| Error::Malformed(format!("{what}: {error}")))
    }
}
