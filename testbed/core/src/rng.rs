//! Seeded randomness. A run has one seed. Each component draws from its own stream, selected by a label, so an
//! additional draw in one component changes nothing in another.

use rand_chacha::rand_core::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Generator of one stream, with the same numbers on every machine.
pub type RunRng = ChaCha8Rng;

/// The stream with this label of the run with this seed.
pub fn stream(seed: u64, label: &str) -> RunRng {
    // FNV-1a maps the label to a stream number.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in label.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(hash);
    rng
}

/// A number in [0, 1), with 53 random bits.
pub fn uniform(rng: &mut RunRng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Fills all of `bytes`.
pub fn fill(rng: &mut RunRng, bytes: &mut [u8]) {
    rng.fill_bytes(bytes);
}

/// An exponentially distributed number with this mean.
pub fn exponential(rng: &mut RunRng, mean: f64) -> f64 {
    // 1 - u lies in (0, 1], so the logarithm is finite.
    -mean * (1.0 - uniform(rng)).ln()
}

/// A Pareto-distributed number with this shape (> 1) and mean: scale = mean·(shape − 1)/shape.
pub fn pareto(rng: &mut RunRng, mean: f64, shape: f64) -> f64 {
    let scale = mean * (shape - 1.0) / shape;
    scale / (1.0 - uniform(rng)).powf(1.0 / shape)
}

/// An integer in [0, n); 0 for n = 0.
pub fn below(rng: &mut RunRng, n: usize) -> usize {
    ((u128::from(rng.next_u64()) * n as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ() {
        let draw = |seed, label| stream(seed, label).next_u64();
        assert_eq!(draw(1, "a"), draw(1, "a"));
        assert_ne!(draw(1, "a"), draw(1, "b"));
        assert_ne!(draw(1, "a"), draw(2, "a"));
    }

    /// P(X > x) = (scale/x)^shape, for the whole of the distribution that the workload `web` uses.
    #[test]
    fn pareto_has_its_least_value_its_tail_and_its_mean() {
        let n = 200_000;
        let draw = |mean: f64, shape: f64| {
            let mut rng = stream(7, "test");
            (0..n).map(|_| pareto(&mut rng, mean, shape)).collect::<Vec<_>>()
        };
        let values = draw(30_000.0, 1.3);
        let scale = 30_000.0 * 0.3 / 1.3;
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        assert!((scale..1.0001 * scale).contains(&least), "{least}");
        for share in [0.5f64, 0.1, 0.01, 0.001] {
            let above = scale * share.powf(-1.0 / 1.3);
            let count = values.iter().filter(|value| **value > above).count() as f64;
            let expected = f64::from(n) * share;
            // Five standard deviations of the binomial distribution.
            assert!((count - expected).abs() < 5.0 * (expected * (1.0 - share)).sqrt(), "{share}: {count}");
        }
        // With a shape of 4 the variance is finite: the mean of 200 000 is within 1 %.
        let mean = draw(30_000.0, 4.0).iter().sum::<f64>() / f64::from(n);
        assert!((mean / 30_000.0 - 1.0).abs() < 0.01, "{mean}");
    }

    #[test]
    fn integers_below_a_bound_are_uniform() {
        let mut rng = stream(7, "test");
        let mut counts = [0u32; 7];
        for _ in 0..70_000 {
            counts[below(&mut rng, 7)] += 1;
        }
        // Five standard deviations of Binomial(70 000, 1/7).
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 463), "{counts:?}");
        assert_eq!(below(&mut rng, 0), 0);
    }

    #[test]
    fn exponential_has_its_mean() {
        let mut rng = stream(7, "test");
        let n = 100_000;
        let mean = (0..n).map(|_| exponential(&mut rng, 65_536.0)).sum::<f64>() / f64::from(n);
        assert!((mean / 65_536.0 - 1.0).abs() < 0.02, "{mean}");
    }
}
