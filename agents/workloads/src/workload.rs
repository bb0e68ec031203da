//! The trait of workloads, and how one is built.

use std::fmt::Debug;

use backchannel_core::options::CheckedOptions;
use backchannel_core::registry::Table;
use backchannel_core::rng::RunRng;
use backchannel_core::scenario::Flow;
use backchannel_core::time::Time;
use backchannel_core::Error;

/// What an application does next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Open a connection.
    Connect {
        /// To send before it closes; `None`: it sends without end.
        bytes: Option<u64>,
        /// It sends only what [`Action::Write`] adds.
        silent: bool,
    },
    /// The receiver sends a request of this many bytes.
    Request(u64),
    /// Write this many bytes to the latest connection.
    Write(u64),
    /// Send a packet without a connection.
    Datagram {
        /// Headers included.
        length: u32,
        /// Number of the video frame that it is part of, from 0.
        frame: Option<u64>,
    },
    /// Nothing.
    Pause,
}

/// A request and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Bytes from the sender to the receiver.
    pub request: u64,
    /// Bytes back.
    pub response: u64,
}

/// What a flow sends and when. Its entry says what is recorded of it.
///
/// A workload that opens a connection every 2 s and sends 1000 bytes on each:
///
/// ```
/// use std::time::Duration;
///
/// use backchannel_core::Time;
/// use backchannel_workloads::{Action, Workload};
///
/// #[derive(Debug)]
/// struct Beacon {
///     connections_left: u32,
/// }
///
/// impl Workload for Beacon {
///     fn act(&mut self, now: Time) -> (Action, Option<Time>) {
///         self.connections_left -= 1;
///         let next = (self.connections_left > 0).then_some(now + Duration::from_secs(2));
///         (Action::Connect { bytes: Some(1000), silent: false }, next)
///     }
/// }
///
/// // A driver's loop: act, wait until the next time, act again.
/// let mut workload = Beacon { connections_left: 3 };
/// let (mut due, mut starts) = (Some(workload.first(Time::from_seconds(1.0))), Vec::new());
/// while let Some(now) = due {
///     let (action, next) = workload.act(now);
///     assert_eq!(action, Action::Connect { bytes: Some(1000), silent: false });
///     starts.push(now.seconds());
///     due = next;
/// }
/// assert_eq!(starts, [1.0, 3.0, 5.0]);
/// ```
pub trait Workload: Debug + Send {
    /// What it does at `now`, and when it acts next.
    fn act(&mut self, now: Time) -> (Action, Option<Time>);

    /// When [`Workload::act`] is due first; `start` is the flow's.
    fn first(&self, start: Time) -> Time {
        start
    }

    /// The transaction that it repeats. The receiver answers each request on its connection.
    fn transaction(&self) -> Option<Transaction> {
        None
    }

    /// When [`Workload::act`] is due after a response that arrived at `now`.
    fn on_response(&mut self, now: Time) -> Time {
        now
    }

    /// Bytes of the request that the receiver sends. [`Workload::act`] is called again once they have arrived.
    fn request_bytes(&self) -> Option<u64> {
        None
    }

    /// Whether its packets are ICMP echo requests, with the flow's port as identifier, which the receiver's network
    /// stack answers.
    fn is_icmp(&self) -> bool {
        false
    }
}

/// What a workload knows of its surroundings, in addition to its options.
#[derive(Debug)]
pub struct Context<'a> {
    /// The flow.
    pub flow: &'a Flow,
    /// The random stream of the flow.
    pub rng: RunRng,
}

/// Constructor of a workload.
pub type Build = fn(&CheckedOptions<'_>, Context<'_>) -> Result<Box<dyn Workload>, Error>;
/// Workloads by name.
pub type Workloads = Table<Build>;
