//! One direction of a video call: frames of a coded video, which packets carry them, and when.

use std::time::Duration;

use backchannel_core::options;
use backchannel_core::options::CheckedOptions;
use backchannel_core::registry::{Entry, ExchangeKind, When};
use backchannel_core::rng::{self, RunRng};
use backchannel_core::time::Time;
use backchannel_core::Error;

use crate::datagrams::{check_room, datagram_header_bytes, RTP_HEADER};
use crate::{Action, Context, Workload};

options! {
    /// Options of the workload. The jitter buffer is the metrics' (analysis/metrics/video.py).
    struct Options {
        rate_bps: f64 = 1_500_000, [Rate 1000 to 1e9] "mean rate of the coded video, without headers";
        frames_per_s: f64 = 30, [Number 1 to 240] "frames a second";
        key_frame_every: u64 = 60, [Count 1 to 100_000]
            "frames from one key frame to the next; the others need all frames since the last key frame";
        key_frame_ratio: f64 = 5, [Number 1 to 100] "mean size of a key frame over that of another";
        variation: f64 = 0.25, [Number 0 to 1] "sizes are uniform within this share of their mean";
        packet_bytes: u32 = 1200, [Bytes 100 to 65_535] "longest packet, headers of IP, UDP and RTP included";
        spread: f64 = 0.5, [Number 0 to 1]
            "share of the time between two frames over which a frame's packets are sent; 0: at once";
        buffer_s: f64 = 0.1, [Time 0 to 10]
            "jitter buffer: each frame is shown this long after the fastest frame's transit; a later one is lost";
    }
}

pub(crate) static ENTRY: Entry = Entry::workload(
    "video",
    "one direction of a video call: frames at a rate, each in RTP packets over UDP, shown from a jitter buffer",
    ExchangeKind::Packets,
)
.source("RFC 3550 5.1; RFC 7741 4")
.random(When::With("variation"))
.options(Options::PARAMS);

pub(crate) fn build(checked: &CheckedOptions<'_>, context: Context<'_>) -> Result<Box<dyn Workload>, Error> {
    let options = Options::read(checked);
    let ip = context.flow.ip;
    let headers = datagram_header_bytes(ip) + RTP_HEADER;
    check_room(options.packet_bytes, headers, ip)?;
    Ok(Box::new(Video::new(&options, headers, context.rng)))
}

/// A coded video. Every frame is split into packets of nearly equal length, as RTP payload formats recommend (RFC 7741
/// 4).
#[derive(Debug)]
struct Video {
    every: Duration,
    /// Share of that time over which the packets of a frame are sent.
    spread: f64,
    key_frame_every: u64,
    /// Mean sizes in bytes: of key frames, of the others.
    mean_bytes: [f64; 2],
    variation: f64,
    /// Headers of each packet, in bytes.
    headers: u32,
    /// Greatest share of a frame in one packet, in bytes.
    room: u32,
    rng: RunRng,
    /// Number of the frame that is being sent, or sent next.
    frame: u64,
    /// When its first packet is sent.
    begun: Time,
    /// Number of its packets.
    packets: u32,
    /// Bytes and packets of it which are still to be sent.
    left: (u32, u32),
}

impl Workload for Video {
    fn act(&mut self, now: Time) -> (Action, Option<Time>) {
        let (length, frame, next) = self.next_packet(now);
        (Action::Datagram { length, frame: Some(frame) }, Some(next))
    }
}

impl Video {
    fn new(options: &Options, headers: u32, rng: RunRng) -> Video {
        let (between, ratio) = (options.key_frame_every as f64, options.key_frame_ratio);
        let mean = options.rate_bps / 8.0 / options.frames_per_s;
        // `between` frames, one of them `ratio` times as long, have the mean of the rate.
        let other = mean * between / (ratio + between - 1.0);
        Video {
            every: Duration::from_secs_f64(1.0 / options.frames_per_s),
            spread: options.spread,
            key_frame_every: options.key_frame_every,
            mean_bytes: [other * ratio, other],
            variation: options.variation,
            headers,
            room: options.packet_bytes - headers,
            rng,
            frame: 0,
            begun: Time::ZERO,
            packets: 0,
            left: (0, 0),
        }
    }

    /// Length of the packet that is sent now, headers included; its frame; and when the next packet is due.
    fn next_packet(&mut self, now: Time) -> (u32, u64, Time) {
        if self.left.1 == 0 {
            let bytes = self.draw_frame_bytes();
            (self.begun, self.packets) = (now, bytes.div_ceil(self.room));
            self.left = (bytes, self.packets);
        }
        let (bytes, packets) = self.left;
        let share = bytes.div_ceil(packets);
        self.left = (bytes - share, packets - 1);
        let frame = self.frame;
        if self.left.1 > 0 {
            let sent = f64::from(self.packets - self.left.1) / f64::from(self.packets);
            return (share + self.headers, frame, self.begun + self.every.mul_f64(self.spread * sent));
        }
        self.frame += 1;
        (share + self.headers, frame, self.begun + self.every)
    }

    fn draw_frame_bytes(&mut self) -> u32 {
        let mean = self.mean_bytes[usize::from(!self.frame.is_multiple_of(self.key_frame_every))];
        let factor = 1.0 + self.variation * (2.0 * rng::uniform(&mut self.rng) - 1.0);
        ((mean * factor).round() as u32).max(1)
    }
}

#[cfg(test)]
mod tests {
    use backchannel_core::ip::IpVersion;
    use backchannel_core::scenario::Flow;

    use crate::{Action, Application};
    use backchannel_core::time::Time;

    /// Time in s, length and frame of the packets until then.
    fn packets(options: &str, until: f64) -> Vec<(f64, u32, u64)> {
        let json = format!(r#"{{"name":"v","kind":"video","from":"a","to":"b","port":9,"options":{options}}}"#);
        let flow: Flow = serde_json::from_str(&json).unwrap();
        let mut application = Application::new(&crate::builtin(), &flow, 1).unwrap();
        let (mut now, mut sent) = (Time::ZERO, Vec::new());
        while now < Time::from_seconds(until) {
            let (Action::Datagram { length, frame: Some(frame) }, Some(next)) = application.act(now) else { panic!() };
            sent.push((now.nanos() as f64 / 1e9, length, frame));
            now = next;
        }
        sent
    }

    #[test]
    fn frames_have_their_rate_and_sizes() {
        // 1000 bytes a frame in the mean; key frames are 6 times as long as the others: 3000 and 500 bytes.
        let options = r#"{"rate_bps":80000,"frames_per_s":10,"key_frame_every":5,"key_frame_ratio":6,"variation":0,"spread":0.6,
                          "packet_bytes":1040}"#;
        let sent = packets(options, 1.0);
        let expected = |frame: u64| if frame.is_multiple_of(5) { vec![1040; 3] } else { vec![540] };
        for frame in 0..10 {
            let of_frame: Vec<_> = sent.iter().filter(|packet| packet.2 == frame).collect();
            assert_eq!(of_frame.iter().map(|packet| packet.1).collect::<Vec<_>>(), expected(frame));
            // The three packets of a key frame leave over 0.6 of 100 ms.
            for (number, packet) in of_frame.iter().enumerate() {
                assert!((packet.0 - frame as f64 * 0.1 - number as f64 * 0.02).abs() < 1e-7, "{of_frame:?}");
            }
        }
        assert_eq!(sent.len(), 2 * 3 + 8);
    }

    #[test]
    fn sizes_vary_and_keep_the_mean_rate() {
        let sent = packets(r#"{"rate_bps":1000000,"variation":0.5}"#, 100.0);
        let payload: u64 = sent.iter().map(|packet| u64::from(packet.1) - 40).sum();
        // 3000 frames with a standard deviation of 29 %, and 50 key frames.
        assert!((payload as f64 * 8.0 / 100.0 / 1e6 - 1.0).abs() < 0.02, "{payload}");
        let others: Vec<_> =
            (1..60).map(|frame| sent.iter().filter(|packet| packet.2 == frame).map(|p| p.1).sum()).collect();
        let (least, most): (u32, u32) = (*others.iter().min().unwrap(), *others.iter().max().unwrap());
        assert!(most > 2 * least, "{least} {most}");
        assert!(sent.iter().all(|packet| packet.1 <= 1200));
    }

    #[test]
    fn packets_without_room_are_rejected() {
        let reject = |ip: u8| {
            let json = format!(
                r#"{{"name":"v","kind":"video","from":"a","to":"b","port":9,"ip":{ip},"options":{{"packet_bytes":100}}}}"#
            );
            Application::new(&crate::builtin(), &serde_json::from_str(&json).unwrap(), 1).is_err()
        };
        assert!(!reject(4) && !reject(6));
        assert!(super::check_room(60, 60, IpVersion::V6).unwrap_err().to_string().contains("more than 60 over IPv6"));
    }
}
