//! The receiving end of a workload of TCP connections.

use backchannel_core::scenario::Flow;
use backchannel_core::time::Time;
use backchannel_emulator::monotonic_ns;
use backchannel_workloads::Application;

use super::streams::{self, Stream};
use super::{wait_for_run_start, Arrivals, ReceiveArgs};
use crate::reports::{self, LoadReceiveReport};
use crate::signals::{sleep_until, stopped, LONGEST_WAIT_NS};
use crate::socket::TcpSocket;

/// Receives until a signal arrives, or until the flow's size has.
pub(super) fn receive(args: &ReceiveArgs, flow: &Flow, application: &Application) -> Result<(), String> {
    let listener = TcpSocket::new(&args.workload.socket, args.listen)?;
    listener.listen(args.listen).map_err(|error| format!("cannot listen on {}: {error}", args.listen))?;
    eprintln!("ready on {}", args.listen);
    let mut receiver =
        Receiver { application, streams: Vec::new(), arrivals: Arrivals::default(), bytes: 0, intact: true };
    if let Some(bytes) = application.request_bytes() {
        receiver.request(args, flow.start(), bytes)?;
    }
    while !stopped() && !receiver.is_complete(flow) {
        receiver.serve(&listener);
    }
    for stream in receiver.streams.drain(..) {
        stream.socket.reset_on_close();
        receiver.bytes += stream.received;
        receiver.intact &= stream.intact;
    }
    receiver.arrivals.write(args)?;
    reports::print(&LoadReceiveReport { bytes: receiver.bytes, payload_ok: receiver.intact })
}

struct Receiver<'a> {
    application: &'a Application,
    streams: Vec<Stream>,
    arrivals: Arrivals,
    /// Received by streams that are gone, and by all of them in the end.
    bytes: u64,
    intact: bool,
}

impl Receiver<'_> {
    /// Sends the request when the flow starts.
    fn request(&mut self, args: &ReceiveArgs, start: Time, bytes: u64) -> Result<(), String> {
        let Some(zero_ns) = wait_for_run_start(&args.run_begins_file)? else { return Ok(()) };
        sleep_until(zero_ns + start.nanos());
        if stopped() {
            return Ok(());
        }
        let socket = TcpSocket::new(&args.workload.socket, args.sender)?;
        socket.connect(args.sender).map_err(|error| format!("cannot connect to {}: {error}", args.sender))?;
        let mut stream = Stream::new(socket, 0, false);
        stream.left = bytes;
        stream.finishes = true;
        self.streams.push(stream);
        Ok(())
    }

    fn is_complete(&self, flow: &Flow) -> bool {
        flow.bytes.is_some_and(|bytes| self.bytes >= bytes) && self.streams.is_empty()
    }

    fn serve(&mut self, listener: &TcpSocket) {
        let (accepts, ready) = streams::wait(Some(listener), &self.streams, monotonic_ns() + LONGEST_WAIT_NS);
        for (number, _) in ready.iter().enumerate().filter(|(_, ready)| **ready) {
            let stream = &mut self.streams[number];
            let before = stream.received;
            if stream.serve().is_err() {
                // The sender resets what its stop time interrupts.
                stream.ended = true;
                stream.left = 0;
                stream.port = 0;
            }
            self.on_received(number, before);
        }
        if accepts {
            while let Ok(socket) = listener.accept() {
                let port = socket.peer_port().unwrap_or(0);
                self.streams.push(Stream::new(socket, port, true));
            }
        }
        self.drop_ended();
    }

    fn on_received(&mut self, number: usize, before: u64) {
        let stream = &mut self.streams[number];
        if let Some(each) = self.application.transaction() {
            for request in before / each.request..stream.received / each.request {
                self.arrivals.add(request, stream.last_ns);
                stream.left += each.response;
            }
            if stream.write().is_err() {
                stream.ended = true;
                stream.left = 0;
            }
        } else if self.application.is_transfers() && stream.ended && stream.port != 0 && stream.received > 0 {
            self.arrivals.add(u64::from(stream.port), stream.last_ns);
        }
    }

    fn drop_ended(&mut self) {
        let (bytes, intact) = (&mut self.bytes, &mut self.intact);
        self.streams.retain(|stream| {
            let done = stream.ended && stream.left == 0;
            if done {
                *bytes += stream.received;
                *intact &= stream.intact;
            }
            !done
        });
    }
}
