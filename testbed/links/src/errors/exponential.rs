//! Exponentially distributed errors (ton IV-A), and bursts of them (ton IV-E).
//!
//! The distance to the next error is drawn in bytes from an exponential distribution. Each packet's length is
//! subtracted from it. The packet that brings it to zero is hit, and the next distance is drawn. By default, as in the
//! paper, a packet that is hit crosses the link with a wrong checksum: it uses airtime, and the receiver's TCP drops
//! it. In a burst, each error hits several packets in a row.
//!
//! Where the paper is silent: the length is that of the IP datagram (1440 bytes at a mean of 65 536 hit 2.17 % of
//! packets), and the further packets of a burst do not shorten the next distance.

use backchannel_core::options::CheckedOptions;
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Disorder, Entry, When};
use backchannel_core::rng::{self, RunRng};
use backchannel_core::time::Time;
use backchannel_core::Error;
use backchannel_core::{choice, options};

use super::{ErrorModel, Outcome};

options! {
    /// Options of the model.
    struct Parameters {
        mean_bytes: f64 = 65_536, [Bytes 1] "mean distance between errors, in bytes of IP packets";
        burst_packets: u64 = 1, [Packets 1 to 1000] "number of consecutive packets that each error hits";
        effect: Effect = "damage", [Choice] "what happens to a packet that is hit: damage its checksum, or lose it";
    }
}

choice! {
    /// What happens to a packet that is hit: here damage comes first.
    enum Effect {
        /// It is delivered with a wrong checksum.
        Damage = "damage",
        /// It is lost.
        Lose = "lose",
    }
}

pub(super) static ENTRY: Entry = Entry::error_model(
    "exponential",
    "errors at exponentially distributed distances in bytes; each error hits one packet or a burst of packets",
    Disorder::None,
)
.source("ton IV-A, IV-E")
.random(When::Always)
.options(Parameters::PARAMS);

pub(super) fn build(checked: &CheckedOptions<'_>, mut rng: RunRng) -> Result<Box<dyn ErrorModel>, Error> {
    let parameters = Parameters::read(checked);
    let left_bytes = rng::exponential(&mut rng, parameters.mean_bytes);
    let effect = if parameters.effect == Effect::Damage { Outcome::Damaged } else { Outcome::Lost };
    Ok(Box::new(Exponential { parameters, effect, left_bytes, burst_left: 0, rng }))
}

struct Exponential {
    parameters: Parameters,
    effect: Outcome,
    /// Bytes to the next error.
    left_bytes: f64,
    /// Further packets that the last error will hit.
    burst_left: u64,
    rng: RunRng,
}

impl ErrorModel for Exponential {
    fn apply(&mut self, _: Time, packet: &Packet) -> Outcome {
        if self.burst_left > 0 {
            self.burst_left -= 1;
            return self.effect;
        }
        self.left_bytes -= f64::from(packet.len());
        if self.left_bytes > 0.0 {
            return Outcome::Intact;
        }
        self.left_bytes = rng::exponential(&mut self.rng, self.parameters.mean_bytes);
        self.burst_left = self.parameters.burst_packets - 1;
        self.effect
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::build::data;

    fn outcomes(burst: u64, packets: usize) -> Vec<Outcome> {
        let mut rng = rng::stream(1, "test");
        let left_bytes = rng::exponential(&mut rng, 65_536.0);
        let parameters = Parameters { mean_bytes: 65_536.0, burst_packets: burst, effect: Effect::Damage };
        let mut model = Exponential { parameters, effect: Outcome::Damaged, left_bytes, burst_left: 0, rng };
        let packet = data(1, 1400);
        (0..packets).map(|_| model.apply(Time::ZERO, &packet)).collect()
    }

    #[test]
    fn one_error_in_64_kib_hits_two_packets_in_a_hundred() {
        // 1440 bytes: 1 - exp(-1440 / 65 536) = 2.17 % (ton IV-A says 2.2 to 2.3 % for 1500 on air).
        let hit = outcomes(1, 200_000).iter().filter(|&&outcome| outcome == Outcome::Damaged).count();
        assert!((4180..=4510).contains(&hit), "{hit}");
    }

    #[test]
    fn an_error_of_a_burst_hits_four_packets_in_a_row() {
        let outcomes = outcomes(4, 20_000);
        let runs: Vec<usize> =
            outcomes.split(|&outcome| outcome == Outcome::Intact).map(<[Outcome]>::len).filter(|&n| n > 0).collect();
        assert!(runs.len() > 200);
        assert!(runs.iter().all(|n| n % 4 == 0), "two bursts may touch, none is cut short");
    }
}
