//! Registry entries: name, source and parameters of each mechanism. Each crate lists its own in a [`Table`], to which
//! others add theirs. `backchannel-node registry` prints them all for the campaign validator, `./backchannel list` and
//! the docs.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::error::Error;
use crate::options::{CheckedOptions, Param, Preset};
use crate::scenario::Options;

/// When something is true of a mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Never.
    Never,
    /// Always, as far as it is used.
    Always,
    /// Unless this option is 0, false, `none` or absent.
    With(&'static str),
    /// If this option has one of these values.
    IsOf(&'static str, &'static [&'static str]),
}

/// Serialised as true, false, the name of the option, or `option=value,value`.
impl Serialize for When {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            When::Never => serializer.serialize_bool(false),
            When::Always => serializer.serialize_bool(true),
            When::With(option) => serializer.serialize_str(option),
            When::IsOf(option, values) => serializer.collect_str(&format_args!("{option}={}", values.join(","))),
        }
    }
}

/// Kind of a mechanism, with what audit, probing and analysis must know of one before they judge a run with it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Kind {
    /// Named stack.
    Stack {
        /// What its connections are.
        transport: StackTransport,
    },
    /// Queueing discipline.
    Policy(Queueing),
    /// Link between nodes.
    Link(Physical),
    /// Options of one direction of a link.
    Direction,
    /// Error model.
    ErrorModel {
        /// What it does to the order of packets.
        disorder: Disorder,
    },
    /// Per-packet logic of a node that is not a queue.
    Middlebox,
    /// What a flow sends and when.
    Workload {
        /// What is recorded of it.
        exchanges: ExchangeKind,
    },
}

/// What the connections of a stack are, and so what captures show of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StackTransport {
    /// TCP: captures show segments.
    Tcp,
    /// QUIC: captures show packets of UDP, and the ends write qlog files.
    Quic,
}

/// What a policy does to the packets that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Queueing {
    /// When packets leave in another order than they came. The data of each flow and its acks keep theirs.
    pub reorders: When,
    /// Queues of `limit_packets` each.
    pub queues: u64,
    /// When packets can wait although the line is free.
    pub holds_back: When,
}

impl Queueing {
    /// One queue, first in, first out.
    pub const FIFO: Queueing = Queueing { reorders: When::Never, queues: 1, holds_back: When::Never };
    /// One limit for packets of several classes, which leave in another order.
    pub const CLASSES: Queueing = Queueing { reorders: When::Always, ..Queueing::FIFO };
}

/// What a kind of link is in the physical world.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Physical {
    /// Whether it stands for a radio rather than a modem or a cable.
    pub radio: bool,
    /// How trains of packets measure rate and delay; `None`: they cannot, because a packet's time depends on other
    /// stations or on a trace.
    pub probing: Option<Probing>,
}

/// How a kind of link is measured before a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Probing {
    /// Longest time of a packet over its time at the nominal rate.
    pub slack: f64,
    /// Both directions share the medium, so they are probed one after the other.
    pub shared: bool,
}

/// What an error model does to the order of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Disorder {
    /// Nothing: it loses or damages packets.
    None,
    /// It delivers some after their successors.
    Reorders,
    /// It delivers some twice.
    Repeats,
}

/// What is recorded of a workload (see [`crate::exchange`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExchangeKind {
    /// Nothing: its connections are measured as streams.
    None,
    /// Packets without a connection.
    Packets,
    /// Packets without a connection, which the receiver returns.
    Echoes,
    /// Finite transfers, a connection each.
    Transfers,
    /// Requests and responses on one connection.
    Transactions,
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Kind::Stack { .. } => "stack",
            Kind::Policy(_) => "policy",
            Kind::Link(_) => "link",
            Kind::Direction => "direction",
            Kind::ErrorModel { .. } => "error-model",
            Kind::Middlebox => "middlebox",
            Kind::Workload { .. } => "workload",
        })
    }
}

/// A mechanism.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Entry {
    /// What it is.
    #[serde(flatten)]
    pub kind: Kind,
    /// Name in campaign files: lower case, words joined by hyphens.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Paper section or RFC.
    pub source: &'static str,
    /// When a run with it depends on the seed.
    pub random: When,
    /// Parameters.
    pub params: &'static [Param],
}

impl Entry {
    const fn new(kind: Kind, name: &'static str, summary: &'static str) -> Entry {
        Entry { kind, name, summary, source: "", random: When::Never, params: &[] }
    }

    /// A stack of TCP.
    pub const fn stack(name: &'static str, summary: &'static str) -> Entry {
        Entry::new(Kind::Stack { transport: StackTransport::Tcp }, name, summary)
    }

    /// A stack of QUIC.
    pub const fn quic_stack(name: &'static str, summary: &'static str) -> Entry {
        Entry::new(Kind::Stack { transport: StackTransport::Quic }, name, summary)
    }

    /// A policy.
    pub const fn policy(name: &'static str, summary: &'static str, queueing: Queueing) -> Entry {
        Entry::new(Kind::Policy(queueing), name, summary)
    }

    /// A kind of link.
    pub const fn link(name: &'static str, summary: &'static str, medium: Physical) -> Entry {
        Entry::new(Kind::Link(medium), name, summary)
    }

    /// The options of one direction of a kind of link.
    pub const fn direction(name: &'static str, summary: &'static str) -> Entry {
        Entry::new(Kind::Direction, name, summary)
    }

    /// An error model.
    pub const fn error_model(name: &'static str, summary: &'static str, disorder: Disorder) -> Entry {
        Entry::new(Kind::ErrorModel { disorder }, name, summary)
    }

    /// A middlebox.
    pub const fn middlebox(name: &'static str, summary: &'static str) -> Entry {
        Entry::new(Kind::Middlebox, name, summary)
    }

    /// A workload.
    pub const fn workload(name: &'static str, summary: &'static str, exchanges: ExchangeKind) -> Entry {
        Entry::new(Kind::Workload { exchanges }, name, summary)
    }

    /// The same with a source.
    pub const fn source(self, source: &'static str) -> Entry {
        Entry { source, ..self }
    }

    /// The same with a behaviour that depends on the seed.
    pub const fn random(self, random: When) -> Entry {
        Entry { random, ..self }
    }

    /// The same with options.
    pub const fn options(self, params: &'static [Param]) -> Entry {
        Entry { params, ..self }
    }
}

impl<'a> CheckedOptions<'a> {
    /// Validates the options.
    ///
    /// # Errors
    /// An unknown name, a wrong kind, a value out of range, or a missing required option. The message lists what is
    /// allowed.
    pub fn check(entry: &'a Entry, options: &'a Options) -> Result<CheckedOptions<'a>, Error> {
        let Entry { kind, name: of, params, .. } = *entry;
        for (name, value) in options {
            let Some(param) = params.iter().find(|param| param.name == name) else {
                let names = params.iter().map(|param| param.name);
                return Err(Error::unknown("option", name, names).within(format!("{kind} {of}")));
            };
            param.accept(value).map_err(|why| Error::Option(format!("{kind} {of}: {name}: {why}")))?;
        }
        for param in params {
            if matches!(param.default, Preset::Required(_)) && !options.contains_key(param.name) {
                let Param { name, help, .. } = param;
                return Err(Error::Option(format!("{kind} {of}: '{name}' must be given: {help}")));
            }
        }
        Ok(CheckedOptions { name: of, params, options })
    }
}

/// Mechanisms of one kind: entries with their constructors `B`, in the order in which they are listed. Copies share the
/// list.
#[derive(Clone, Debug)]
pub struct Table<B> {
    noun: &'static str,
    rows: Arc<Vec<(&'static Entry, B)>>,
}

impl<B: Copy> Table<B> {
    /// A table of these rows; `noun` names the kind in messages.
    pub fn new(noun: &'static str, rows: &[(&'static Entry, B)]) -> Table<B> {
        let mut table = Table { noun, rows: Arc::default() };
        rows.iter().for_each(|(entry, build)| table.add(entry, *build));
        table
    }

    /// Adds a mechanism.
    ///
    /// # Panics
    /// The table has one of that name: two would make the same campaign mean two things.
    pub fn add(&mut self, entry: &'static Entry, build: B) {
        assert!(self.entries().all(|other| other.name != entry.name), "duplicate {} '{}'", self.noun, entry.name);
        Arc::make_mut(&mut self.rows).push((entry, build));
    }

    /// The entries.
    pub fn entries(&self) -> impl Iterator<Item = &'static Entry> + '_ {
        self.rows.iter().map(|(entry, _)| *entry)
    }

    /// The constructor of that name, and the options once they are validated.
    ///
    /// # Errors
    /// The mechanism is unknown, or see [`CheckedOptions::check`].
    pub fn checked<'a>(&self, name: &str, options: &'a Options) -> Result<(CheckedOptions<'a>, B), Error> {
        let row = self.rows.iter().find(|(entry, _)| entry.name == name);
        let names = || self.entries().map(|entry| entry.name);
        let (entry, build) = row.ok_or_else(|| Error::unknown(self.noun, name, names()))?;
        Ok((CheckedOptions::check(entry, options)?, *build))
    }
}
