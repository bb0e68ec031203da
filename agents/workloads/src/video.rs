//! Frames of a coded video: which packets carry them, and when.

use std::time::Duration;

use backchannel_core::registry::CheckedOptions;
use backchannel_core::rng::{self, RunRng};
use backchannel_core::time::Time;

/// A coded video. Every frame is split into packets of nearly equal length, as RTP payload formats recommend (RFC 7741 4).
#[derive(Debug)]
pub(crate) struct Video {
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

impl Video {
    /// `None` if the packets have no room for anything but `headers`.
    pub(crate) fn new(options: &CheckedOptions<'_>, headers: u32, rng: RunRng) -> Option<Video> {
        let number = |name| options.number(name).expect("validated: it has a default");
        let room = (number("packet_bytes") as u32).checked_sub(headers).filter(|room| *room > 0)?;
        let frames_per_s = number("frames_per_s");
        let (between, ratio) = (number("key_frame_every").round(), number("key_frame_ratio"));
        let mean = number("rate_bps") / 8.0 / frames_per_s;
        // `between` frames, one of them `ratio` times as long, have the mean of the rate.
        let other = mean * between / (ratio + between - 1.0);
        Some(Video {
            every: Duration::from_secs_f64(1.0 / frames_per_s),
            spread: number("spread"),
            key_frame_every: between as u64,
            mean_bytes: [other * ratio, other],
            variation: number("variation"),
            headers,
            room,
            rng,
            frame: 0,
            begun: Time::ZERO,
            packets: 0,
            left: (0, 0),
        })
    }

    /// Length of the packet that is sent now, headers included; its frame; and when the next packet is due.
    pub(crate) fn next_packet(&mut self, now: Time) -> (u32, u64, Time) {
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
    use backchannel_core::rng;
    use backchannel_core::scenario::Flow;

    use crate::{Action, Application};
    use backchannel_core::time::Time;

    /// Time in s, length and frame of the packets until then.
    fn packets(options: &str, until: f64) -> Vec<(f64, u32, u64)> {
        let json = format!(r#"{{"name":"v","kind":"video","from":"a","to":"b","port":9,"options":{options}}}"#);
        let flow: Flow = serde_json::from_str(&json).unwrap();
        let mut application = Application::new(&flow, 1).unwrap();
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
        let json = r#"{"name":"v","kind":"video","from":"a","to":"b","port":9,"options":{"packet_bytes":100}}"#;
        let flow: Flow = serde_json::from_str(json).unwrap();
        assert!(Application::new(&flow, 1).is_ok());
        let options = super::CheckedOptions::check(
            crate::entries::entries().iter().find(|e| e.name == "video").unwrap(),
            &flow.options,
        );
        assert!(super::Video::new(&options.unwrap(), 100, rng::stream(1, "x")).is_none());
    }
}
