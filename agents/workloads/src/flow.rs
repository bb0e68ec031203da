//! The interpreter of what applications do. [`Action`]s become calls of a driver, which has the connections: the
//! simulator, the kernel's sockets, or the research stack on a real interface.
//!
//! A driver implements [`SendingEnd`] and [`ReceivingEnd`] and reports what happens by this module's functions. It
//! reads no action itself, so a flow does the same on every backend.

use backchannel_core::exchange::{Exchange, Exchanges};
use backchannel_core::scenario::Flow;
use backchannel_core::time::Time;
use backchannel_core::transport::ENDLESS;
use backchannel_core::Error;

use crate::{Action, Application};

/// What a connection is to carry next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Write {
    /// Bytes, behind those before.
    pub bytes: u64,
    /// Whether the sender closes its direction after them.
    pub finishes: bool,
}

/// State of the sending end of a flow.
#[derive(Debug)]
pub struct Sender<S> {
    /// What the flow sends and when.
    pub application: Application,
    /// What the application experienced; `None`: it is not recorded.
    exchanges: Option<Exchanges>,
    /// The connection that was opened last.
    latest: Option<S>,
    /// Packets without a connection so far.
    packets: u64,
    has_size: bool,
}

impl<S> Sender<S> {
    /// `recorded`: whether the exchanges of an application that has any are recorded.
    pub fn new(application: Application, flow: &Flow, recorded: bool) -> Sender<S> {
        let exchanges = (recorded && application.is_recorded()).then(Exchanges::default);
        Sender { application, exchanges, latest: None, packets: 0, has_size: flow.bytes.is_some() }
    }

    /// What the application experienced so far; `None`: it is not recorded.
    pub fn exchanges(&self) -> Option<&[Exchange]> {
        self.exchanges.as_ref().map(Exchanges::all)
    }

    /// Whether [`on_data`] has an effect at a receiver in the same driver.
    #[inline]
    pub fn heeds_data(&self) -> bool {
        self.exchanges.is_some() || self.application.transaction().is_some()
    }

    /// An exchange has arrived at the receiver.
    pub fn arrive(&mut self, exchange: usize, now: Time) {
        if let Some(exchanges) = &mut self.exchanges {
            exchanges.arrive(exchange, now);
        }
    }

    /// What the receiver returned for an exchange has arrived.
    pub fn complete(&mut self, exchange: usize, now: Time) {
        if let Some(exchanges) = &mut self.exchanges {
            exchanges.complete(exchange, now);
        }
    }
}

/// What a driver does for the sending end of a flow.
pub trait SendingEnd {
    /// Names a connection.
    type Stream: Copy;

    /// The flow's state.
    fn sender(&mut self) -> &mut Sender<Self::Stream>;

    /// Calls [`on_due`] at this time.
    fn schedule(&mut self, at: Time);

    /// Opens a connection to the receiver and writes to it.
    ///
    /// # Errors
    /// The flow cannot go on.
    fn connect(&mut self, _first: Write) -> Result<Self::Stream, Error> {
        Err("this driver has no connections".into())
    }

    /// Writes to a connection, which may have ended.
    ///
    /// # Errors
    /// The flow cannot go on.
    fn write(&mut self, _stream: Self::Stream, _next: Write) -> Result<(), Error> {
        Ok(())
    }

    /// The exchange with this number has begun on a connection.
    fn begun(&mut self, _stream: Self::Stream, _exchange: usize) {}

    /// Has the receiver send a request, where one driver has both ends. Otherwise the receiving program does it
    /// ([`request_at_start`]).
    ///
    /// # Errors
    /// The flow cannot go on.
    fn request(&mut self, _bytes: u64) -> Result<(), Error> {
        Ok(())
    }

    /// Sends a packet without a connection: its number, which is its exchange's too, and its length with headers.
    ///
    /// # Errors
    /// The flow cannot go on.
    fn packet(&mut self, _number: u64, _length: u32) -> Result<(), Error> {
        Err("this driver sends no packets without a connection".into())
    }
}

/// What a driver does for the receiving end of a flow.
pub trait ReceivingEnd {
    /// Names a connection.
    type Stream: Copy;

    /// The flow's application.
    fn application(&self) -> &Application;

    /// Writes to a connection from which a request came.
    fn respond(&mut self, stream: Self::Stream, bytes: u64);

    /// Size of the transfer that a connection carries; `None`: its end shows it.
    fn transfer_bytes(&self, stream: Self::Stream) -> Option<u64>;

    /// All of a connection's transfer has arrived, or all of the transaction's request with this number.
    fn arrived(&mut self, stream: Self::Stream, request: Option<u64>);
}

/// The application is due at `at`, and it is `now`, which may be later.
///
/// # Errors
/// The driver's.
pub fn on_due<E: SendingEnd>(end: &mut E, at: Time, now: Time) -> Result<(), Error> {
    let (action, next) = end.sender().application.act(at);
    if let Some(next) = next {
        end.schedule(next);
    }
    match action {
        Action::Pause => Ok(()),
        Action::Connect { bytes, silent } => {
            let first = Write { bytes: bytes.unwrap_or(ENDLESS), finishes: bytes.is_some() };
            let stream = end.connect(if silent { Write::default() } else { first })?;
            end.sender().latest = Some(stream);
            if let Some(bytes) = bytes {
                begin(end, stream, now, bytes);
            }
            Ok(())
        }
        Action::Request(bytes) => end.request(bytes),
        Action::Write(bytes) => {
            let sender = end.sender();
            let Some(stream) = sender.latest else { return Ok(()) };
            let transaction = sender.application.transaction();
            // With a size, the last write ends the connection. A transaction's next one follows its response.
            let finishes = next.is_none() && transaction.is_none() && sender.has_size;
            if let Some(each) = transaction {
                begin(end, stream, now, each.response);
            }
            end.write(stream, Write { bytes, finishes })
        }
        Action::Datagram { length, frame } => {
            let sender = end.sender();
            let number = sender.packets;
            sender.packets += 1;
            if let Some(exchanges) = &mut sender.exchanges {
                exchanges.begin_packet(now, u64::from(length), frame);
            }
            end.packet(number, length)
        }
    }
}

fn begin<E: SendingEnd>(end: &mut E, stream: E::Stream, now: Time, bytes: u64) {
    if let Some(exchanges) = &mut end.sender().exchanges {
        let exchange = exchanges.begin(now, bytes);
        end.begun(stream, exchange);
    }
}

/// The sending end has read `received` bytes of a connection, `before` of them earlier: responses, or the request.
pub fn on_answer<E: SendingEnd>(end: &mut E, now: Time, before: u64, received: u64) {
    let sender = end.sender();
    if let Some(each) = sender.application.transaction() {
        for response in before / each.response..received / each.response {
            let sender = end.sender();
            sender.complete(response as usize, now);
            let next = sender.application.on_response(now);
            end.schedule(next);
        }
    } else if sender.application.request_bytes().is_some_and(|request| before < request && received >= request) {
        end.schedule(now);
    }
}

/// The receiving end has read `received` bytes of a connection, `before` of them earlier, and whether this was its end.
pub fn on_data<E: ReceivingEnd>(end: &mut E, stream: E::Stream, before: u64, received: u64, ended: bool) {
    if let Some(each) = end.application().transaction() {
        for request in before / each.request..received / each.request {
            end.respond(stream, each.response);
            end.arrived(stream, Some(request));
        }
    } else if end.application().is_transfers()
        && end.transfer_bytes(stream).map_or(ended && received > 0, |bytes| received >= bytes)
    {
        end.arrived(stream, None);
    }
}

/// What the receiving end sends when the flow starts, and then closes the connection; `None`: it opens none.
pub fn request_at_start(application: &Application) -> Option<Write> {
    application.request_bytes().map(|bytes| Write { bytes, finishes: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A driver that records what it is asked to do. Connections are numbered from 1.
    struct Recorder {
        sender: Sender<usize>,
        due: Option<Time>,
        opened: usize,
        done: Vec<String>,
    }

    impl SendingEnd for Recorder {
        type Stream = usize;

        fn sender(&mut self) -> &mut Sender<usize> {
            &mut self.sender
        }

        fn schedule(&mut self, at: Time) {
            self.due = Some(at);
        }

        fn connect(&mut self, first: Write) -> Result<usize, Error> {
            self.opened += 1;
            self.done.push(format!("connect {}", shown(first)));
            Ok(self.opened)
        }

        fn write(&mut self, stream: usize, next: Write) -> Result<(), Error> {
            self.done.push(format!("write {stream} {}", shown(next)));
            Ok(())
        }

        fn begun(&mut self, stream: usize, exchange: usize) {
            self.done.push(format!("begun {stream} {exchange}"));
        }

        fn request(&mut self, bytes: u64) -> Result<(), Error> {
            self.done.push(format!("request {bytes}"));
            Ok(())
        }

        fn packet(&mut self, number: u64, length: u32) -> Result<(), Error> {
            self.done.push(format!("packet {number} {length}"));
            Ok(())
        }
    }

    impl ReceivingEnd for Recorder {
        type Stream = usize;

        fn application(&self) -> &Application {
            &self.sender.application
        }

        fn respond(&mut self, stream: usize, bytes: u64) {
            self.done.push(format!("respond {stream} {bytes}"));
        }

        fn transfer_bytes(&self, stream: usize) -> Option<u64> {
            (stream == 1).then_some(1000)
        }

        fn arrived(&mut self, stream: usize, request: Option<u64>) {
            self.done.push(format!("arrived {stream} {request:?}"));
        }
    }

    fn shown(write: Write) -> String {
        let bytes = if write.bytes == ENDLESS { "endless".into() } else { write.bytes.to_string() };
        bytes + if write.finishes { " end" } else { "" }
    }

    fn recorder(fields: &str) -> Recorder {
        let flow: Flow =
            serde_json::from_str(&format!(r#"{{"name":"f","from":"a","to":"b","port":9,{fields}}}"#)).unwrap();
        let application = Application::new(&crate::builtin(), &flow, 1).unwrap();
        let due = Some(application.first(flow.start()));
        Recorder { sender: Sender::new(application, &flow, true), due, opened: 0, done: Vec::new() }
    }

    impl Recorder {
        /// Acts `count` times, or until nothing is due.
        fn act(&mut self, count: usize) -> Vec<String> {
            for _ in 0..count {
                let Some(at) = self.due.take() else { break };
                on_due(self, at, at).unwrap();
            }
            std::mem::take(&mut self.done)
        }
    }

    #[test]
    fn each_workload_becomes_calls_of_its_driver() {
        for (fields, count, expected) in [
            (r#""kind":"bulk""#, 9, &["connect endless"][..]),
            (r#""kind":"bulk","bytes":7"#, 9, &["connect 7 end"]),
            (r#""kind":"established","bytes":7"#, 9, &["connect 0", "write 1 7 end"]),
            (r#""kind":"established""#, 9, &["connect 0", "write 1 endless"]),
            (r#""kind":"on-off","options":{"on_s":1000}"#, 3, &["connect 0", "write 1 210", "write 1 210"]),
            (r#""kind":"transactions""#, 9, &["connect 0", "begun 1 0", "write 1 100"]),
            (r#""kind":"probe""#, 2, &["packet 0 64", "packet 1 64"]),
            (
                r#""kind":"transfers","options":{"sizes":"constant","mean_bytes":5}"#,
                2,
                &["connect 5 end", "begun 1 0", "connect 5 end", "begun 2 1"],
            ),
            (r#""kind":"fetch","bytes":8"#, 9, &["request 500"]),
        ] {
            assert_eq!(recorder(fields).act(count), expected, "{fields}");
        }
    }

    #[test]
    fn the_answer_to_a_request_comes_once_the_request_is_whole() {
        let mut fetch = recorder(r#""kind":"fetch","bytes":5,"options":{"connections":2}"#);
        fetch.act(9);
        on_answer(&mut fetch, Time(5), 0, 499);
        assert_eq!(fetch.due, None);
        on_answer(&mut fetch, Time(6), 499, 500);
        assert_eq!(fetch.act(9), ["connect 2 end", "begun 1 0", "connect 3 end", "begun 2 1"]);
        assert_eq!(request_at_start(&fetch.sender.application), Some(Write { bytes: 500, finishes: true }));
    }

    #[test]
    fn the_next_transaction_begins_once_the_response_is_whole() {
        let mut asks = recorder(r#""kind":"transactions","options":{"think_s":0}"#);
        asks.act(9);
        on_answer(&mut asks, Time(5), 0, 999);
        assert_eq!(asks.act(9), [""; 0]);
        on_answer(&mut asks, Time(6), 999, 1000);
        assert_eq!(asks.act(9), ["begun 1 1", "write 1 100"]);
        let returned: Vec<_> = asks.sender.exchanges().unwrap().iter().map(|each| each.returned_ns).collect();
        assert_eq!(returned, [Some(6), None]);
    }

    #[test]
    fn every_whole_request_is_answered() {
        let mut answers = recorder(r#""kind":"transactions""#);
        on_data(&mut answers, 3, 50, 250, false);
        assert_eq!(answers.done, ["respond 3 1000", "arrived 3 Some(0)", "respond 3 1000", "arrived 3 Some(1)"]);
    }

    #[test]
    fn a_transfer_has_arrived_with_its_last_byte_or_its_end() {
        let mut receives = recorder(r#""kind":"web""#);
        on_data(&mut receives, 1, 0, 999, true);
        on_data(&mut receives, 2, 0, 999, false);
        // A connection without data was interrupted.
        on_data(&mut receives, 2, 0, 0, true);
        assert_eq!(receives.done, [""; 0]);
        on_data(&mut receives, 1, 999, 1000, false);
        on_data(&mut receives, 2, 999, 999, true);
        assert_eq!(receives.done, ["arrived 1 None", "arrived 2 None"]);
    }

    #[test]
    fn nothing_is_recorded_of_an_application_without_exchanges() {
        let mut bulk = recorder(r#""kind":"bulk","bytes":7"#);
        bulk.act(1);
        assert!(bulk.sender.exchanges().is_none());
    }
}
