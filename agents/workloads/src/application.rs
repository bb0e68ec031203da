//! The application of a flow: its workload, and what drivers ask of it.

use std::fmt::Debug;

use backchannel_core::registry::{ExchangeKind, Kind};
use backchannel_core::rng;
use backchannel_core::scenario::Flow;
use backchannel_core::time::Time;

use crate::{Context, Workloads};

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

/// The application of one flow. What stays the same during a run is read once.
#[derive(Debug)]
pub struct Application {
    workload: Box<dyn Workload>,
    exchanges: ExchangeKind,
    transaction: Option<Transaction>,
    request_bytes: Option<u64>,
    is_icmp: bool,
}

impl Application {
    /// # Errors
    /// There is no such workload, or the options do not fit it.
    pub fn new(workloads: &Workloads, flow: &Flow, seed: u64) -> Result<Application, String> {
        let context = Context { flow, rng: rng::stream(seed, &format!("workload/{}", flow.name)) };
        let built = workloads.checked(&flow.kind, &flow.options).and_then(|(checked, build)| {
            let kind = workloads.entries().find(|entry| entry.name == flow.kind).map(|entry| entry.kind);
            let Some(Kind::Workload { exchanges }) = kind else {
                return Err(format!("{} is no workload", flow.kind).into());
            };
            Ok((build(&checked, context)?, exchanges))
        });
        let (workload, exchanges) = built.map_err(|why| format!("flow '{}': {why}", flow.name))?;
        Ok(Application {
            transaction: workload.transaction(),
            request_bytes: workload.request_bytes(),
            is_icmp: workload.is_icmp(),
            workload,
            exchanges,
        })
    }

    /// Whether it sends packets without a connection: UDP, or ICMP echo requests.
    pub fn is_datagrams(&self) -> bool {
        matches!(self.exchanges, ExchangeKind::Packets | ExchangeKind::Echoes)
    }

    /// See [`Workload::is_icmp`].
    pub fn is_icmp(&self) -> bool {
        self.is_icmp
    }

    /// Whether the receiver returns every packet.
    pub fn is_echoed(&self) -> bool {
        self.exchanges == ExchangeKind::Echoes
    }

    /// Whether its exchanges are recorded (core::exchange): packets, finite transfers or transactions.
    pub fn is_recorded(&self) -> bool {
        self.exchanges != ExchangeKind::None
    }

    /// Whether each of its connections carries one recorded transfer.
    pub fn is_transfers(&self) -> bool {
        self.exchanges == ExchangeKind::Transfers
    }

    /// See [`Workload::transaction`]. Once a response has arrived, [`Application::on_response`] gives the time of the
    /// next request.
    #[inline]
    pub fn transaction(&self) -> Option<Transaction> {
        self.transaction
    }

    /// See [`Workload::on_response`].
    pub fn on_response(&mut self, now: Time) -> Time {
        self.workload.on_response(now)
    }

    /// See [`Workload::request_bytes`].
    pub fn request_bytes(&self) -> Option<u64> {
        self.request_bytes
    }

    /// See [`Workload::first`].
    pub fn first(&self, start: Time) -> Time {
        self.workload.first(start)
    }

    /// See [`Workload::act`].
    pub fn act(&mut self, now: Time) -> (Action, Option<Time>) {
        self.workload.act(now)
    }
}
