//! The application of a flow: its workload, and what drivers ask of it.

use backchannel_core::registry::{ExchangeKind, Kind};
use backchannel_core::rng;
use backchannel_core::scenario::Flow;
use backchannel_core::time::Time;
use backchannel_core::Error;

use crate::workload::{Action, Context, Transaction, Workload, Workloads};

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
    pub fn new(workloads: &Workloads, flow: &Flow, seed: u64) -> Result<Application, Error> {
        let context = Context { flow, rng: rng::stream(seed, &format!("workload/{}", flow.name)) };
        let built = workloads.checked(&flow.kind, &flow.options).and_then(|(checked, build)| {
            let kind = workloads.entries().find(|entry| entry.name == flow.kind).map(|entry| entry.kind);
            let Some(Kind::Workload { exchanges }) = kind else {
                return Err(format!("unknown workload '{}'", flow.kind).into());
            };
            Ok((build(&checked, context)?, exchanges))
        });
        let (workload, exchanges) = built.map_err(|error| error.within(format!("flow '{}'", flow.name)))?;
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
