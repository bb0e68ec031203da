//! Pulsed ACK's sender (pulsed 3.2.2): an ack that says there are a of them a round trip stands for cwnd/a packets.
//!
//! ```text
//! increment = (1 / cwnd) (cwnd / a) = 1 / a       in packets
//! ```

use super::Window;

pub(super) fn on_ack(window: &mut Window, a: u8) {
    window.cwnd += window.mss / f64::from(a.max(1));
}

#[cfg(test)]
mod tests {
    use super::super::{Counting, Variant, Window};

    #[test]
    fn five_acks_grow_the_window_by_one_segment() {
        let mut window = Window::new(Variant::Reno, Counting::Acks, 1000, 100, 1.0, 1e9);
        (0..5).for_each(|_| window.on_pulsed_ack(5));
        assert!((window.cwnd - 101_000.0).abs() < 1e-6);
    }
}
