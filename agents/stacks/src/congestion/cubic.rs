//! CUBIC (RFC 9438): the window grows along a cubic of the time since the last loss. Windows are in segments here, as in
//! the RFC.

use backchannel_core::time::Time;

use super::Window;

/// C of section 4.1.
const C: f64 = 0.4;
/// Multiplicative decrease of section 4.6.
const BETA: f64 = 0.7;

/// What outlives an ack.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    w_max: f64,
    k: f64,
    w_est: f64,
    epoch: Option<Time>,
}

pub(super) fn on_ack(window: &mut Window, acked: u64, now: Time, srtt_s: f64) {
    let cwnd = window.cwnd / window.mss;
    let state = &mut window.cubic;
    let epoch = *state.epoch.get_or_insert_with(|| {
        // The first avoidance phase: section 4.2's W_max is the window it begins with.
        if state.w_max < cwnd {
            state.w_max = cwnd;
            state.k = 0.0;
        } else {
            state.k = ((state.w_max - cwnd) / C).cbrt();
        }
        state.w_est = cwnd;
        now
    });
    let t = (now - epoch).as_secs_f64();
    let segments = acked as f64 / window.mss;
    // Section 4.3, equation 4: the estimate of Reno's window.
    let alpha = if state.w_est >= state.w_max { 1.0 } else { 3.0 * (1.0 - BETA) / (1.0 + BETA) };
    state.w_est += alpha * segments / cwnd;
    // Section 4.2, equation 1, one round trip ahead, and its bounds.
    let curve = |t: f64| C * (t - state.k).powi(3) + state.w_max;
    let target = curve(t + srtt_s).clamp(cwnd, 1.5 * cwnd);
    let next = if curve(t) < state.w_est { state.w_est } else { cwnd + (target - cwnd) / cwnd * segments };
    window.cwnd = next.max(1.0) * window.mss;
}

/// A loss: remembers the window (with fast convergence, section 4.7) and gives the new threshold in bytes.
pub(super) fn on_loss(window: &mut Window, _now: Time) -> f64 {
    let cwnd = window.cwnd / window.mss;
    let state = &mut window.cubic;
    state.w_max = if cwnd < state.w_max { cwnd * (1.0 + BETA) / 2.0 } else { cwnd };
    state.epoch = None;
    window.cwnd * BETA
}

#[cfg(test)]
mod tests {
    use super::super::{Counting, Variant, Window};
    use backchannel_core::time::Time;

    #[test]
    fn after_a_loss_the_window_is_back_at_its_maximum_after_k_seconds() {
        let mut window = Window::new(Variant::Cubic, Counting::Bytes { limit: 2 }, 1000, 100, 1000.0, 1e12);
        window.on_loss(100_000, Time::ZERO);
        assert_eq!(window.ssthresh, 70_000.0);
        window.cwnd = window.ssthresh;
        // K = cbrt(100 * 0.3 / 0.4) = 4.217 s; acks of a window every 200 ms, so that Reno's estimate stays below.
        let mut now = 0;
        while now < 4_217 {
            window.on_ack(window.cwnd as u64, Time(now * 1_000_000), 0.2);
            now += 200;
        }
        assert!((window.cwnd / 1000.0 - 100.0).abs() < 2.0, "{}", window.cwnd);
    }
}
