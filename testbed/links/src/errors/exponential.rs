//! Exponentially distributed errors (ton IV-A), and bursts of them (ton IV-E).
//!
//! The distance to the next error is drawn in bytes from an exponential distribution. Each packet's length is subtracted from it.
//! The packet that brings it to zero is hit, and the next distance is drawn. By default, as in the paper, a packet that is hit
//! crosses the link with a wrong checksum: it uses airtime, and the receiver's TCP drops it. In a burst, each error hits several
//! packets in a row.
//!
//! Where the paper is silent: the length is that of the IP datagram (1440 bytes at a mean of 65 536 hit 2.17 % of packets), and
//! the further packets of a burst do not shorten the next distance.

use backchannel_core::packet::Packet;
use backchannel_core::registry::{CheckedOptions, Entry, Param, Preset, Random, Unit};
use backchannel_core::rng::{self, RunRng};
use backchannel_core::time::Time;

use super::{effect, ErrorModel, Fate};

pub(super) static ENTRY: Entry = Entry {
    kind: "error-model",
    name: "exponential",
    summary: "errors at exponentially distributed distances in bytes; each error hits one packet or a burst of packets",
    source: "ton IV-A, IV-E",
    random: Random::Always,
    params: &[
        Param::new(
            "mean_bytes",
            Unit::Bytes,
            Preset::Number(65_536.0),
            "mean distance between errors, in bytes of IP packets",
        )
        .at_least(1.0),
        Param::new(
            "burst_packets",
            Unit::Packets,
            Preset::Number(1.0),
            "number of consecutive packets that each error hits",
        )
        .range(1.0, 1000.0),
        Param::new(
            "effect",
            Unit::Choice,
            Preset::Text("damage"),
            "what happens to a packet that is hit: damage its checksum, or lose it",
        )
        .of(&["damage", "lose"]),
    ],
};

pub(super) fn build(checked: &CheckedOptions<'_>, mut rng: RunRng) -> Result<Box<dyn ErrorModel>, String> {
    let mean_bytes = checked.number("mean_bytes").expect("it has a default");
    Ok(Box::new(Exponential {
        mean_bytes,
        burst: checked.count("burst_packets").expect("it has a default"),
        effect: effect(checked),
        left_bytes: rng::exponential(&mut rng, mean_bytes),
        burst_left: 0,
        rng,
    }))
}

struct Exponential {
    mean_bytes: f64,
    burst: u64,
    effect: Fate,
    /// Bytes to the next error.
    left_bytes: f64,
    /// Further packets that the last error will hit.
    burst_left: u64,
    rng: RunRng,
}

impl ErrorModel for Exponential {
    fn judge(&mut self, _: Time, packet: &Packet) -> Fate {
        if self.burst_left > 0 {
            self.burst_left -= 1;
            return self.effect;
        }
        self.left_bytes -= f64::from(packet.len());
        if self.left_bytes > 0.0 {
            return Fate::Intact;
        }
        self.left_bytes = rng::exponential(&mut self.rng, self.mean_bytes);
        self.burst_left = self.burst - 1;
        self.effect
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::build::data;

    fn fates(burst: u64, packets: usize) -> Vec<Fate> {
        let mut rng = rng::stream(1, "test");
        let left_bytes = rng::exponential(&mut rng, 65_536.0);
        let mut model =
            Exponential { mean_bytes: 65_536.0, burst, effect: Fate::Damaged, left_bytes, burst_left: 0, rng };
        let packet = data(1, 1400);
        (0..packets).map(|_| model.judge(Time::ZERO, &packet)).collect()
    }

    #[test]
    fn one_error_in_64_kib_hits_two_packets_in_a_hundred() {
        // 1440 bytes: 1 - exp(-1440 / 65 536) = 2.17 % (ton IV-A says 2.2 to 2.3 % for 1500 on air).
        let hit = fates(1, 200_000).iter().filter(|&&fate| fate == Fate::Damaged).count();
        assert!((4180..=4510).contains(&hit), "{hit}");
    }

    #[test]
    fn an_error_of_a_burst_hits_four_packets_in_a_row() {
        let fates = fates(4, 20_000);
        let runs: Vec<usize> =
            fates.split(|&fate| fate == Fate::Intact).map(<[Fate]>::len).filter(|&n| n > 0).collect();
        assert!(runs.len() > 200);
        assert!(runs.iter().all(|n| n % 4 == 0), "two bursts may touch, none is cut short");
    }
}
