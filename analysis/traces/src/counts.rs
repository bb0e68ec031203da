//! Totals of one direction of a connection.

/// Round-trip samples of one direction's data.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RoundTrips {
    /// Number of samples.
    pub count: u64,
    /// Sum of all samples, in ns.
    pub sum_ns: i64,
    /// Smallest sample, in ns.
    pub min_ns: i64,
    /// Largest sample, in ns.
    pub max_ns: i64,
    /// Sum of the squared samples, in s².
    pub squares_s2: f64,
}

impl RoundTrips {
    #[inline(always)]
    pub(crate) fn add(&mut self, sample_ns: i64) {
        self.min_ns = if self.count == 0 { sample_ns } else { self.min_ns.min(sample_ns) };
        self.max_ns = self.max_ns.max(sample_ns);
        self.sum_ns = self.sum_ns.saturating_add(sample_ns);
        self.count += 1;
        let seconds = sample_ns as f64 * 1e-9;
        self.squares_s2 += seconds * seconds;
    }
}

/// Counts of one direction. Where a comment names a class, the field counts segments of that class.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    /// Packets.
    pub packets: u64,
    /// Bytes of IP packets.
    pub ip_bytes: u64,
    /// Packets that carry data.
    pub data_packets: u64,
    /// Bytes of data, retransmissions included.
    pub payload_bytes: u64,
    /// Distinct bytes of data.
    pub unique_bytes: i64,
    /// Bytes of data that were acknowledged.
    pub acked_bytes: i64,
    /// RETRANSMISSION.
    pub retransmissions: u64,
    /// Bytes of data in retransmissions.
    pub retransmitted_bytes: u64,
    /// FAST_RETRANSMISSION.
    pub fast_retransmissions: u64,
    /// TIMEOUT.
    pub timeout_retransmissions: u64,
    /// Retransmission timeouts. Each starts a series of TIMEOUT retransmissions.
    pub timeouts: u64,
    /// Retransmissions proved spurious by an earlier ack.
    pub spurious_by_ack: u64,
    /// Retransmissions proved spurious by the echoed timestamp of a later ack (RFC 3522).
    pub spurious_by_timestamp: u64,
    /// Retransmissions proved spurious by a later D-SACK (RFC 2883, RFC 3708).
    pub spurious_by_dsack: u64,
    /// OUT_OF_ORDER.
    pub out_of_order: u64,
    /// DUPLICATE_ACK.
    pub duplicate_acks: u64,
    /// PURE_ACK.
    pub pure_acks: u64,
    /// WINDOW_UPDATE.
    pub window_updates: u64,
    /// ZERO_WINDOW.
    pub zero_windows: u64,
    /// KEEP_ALIVE.
    pub keep_alives: u64,
    /// PROBE.
    pub probes: u64,
    /// SACK.
    pub sacks: u64,
    /// DSACK.
    pub dsacks: u64,
    /// CE.
    pub ce_marks: u64,
    /// Segments with ECE, except SYNs.
    pub ece: u64,
    /// BAD_CHECKSUM.
    pub bad_checksums: u64,
    /// SUPER.
    pub super_packets: u64,
    /// Bytes of data that were acknowledged but not captured.
    pub lost_in_capture_bytes: i64,
    /// Round-trip times of the data.
    pub round_trips: RoundTrips,
    /// Initial sequence number, if the SYN was captured.
    pub isn: Option<u32>,
    /// Sequence number that relative numbers count from: the initial one, or one below the first byte captured.
    pub base: Option<u32>,
    /// Maximum segment size option.
    pub mss: Option<u16>,
    /// Window scale option.
    pub window_scale: Option<u8>,
    /// SACK-permitted option.
    pub sack_permitted: bool,
    /// Timestamps option on any segment.
    pub timestamps: bool,
    /// A FIN was captured.
    pub fin: bool,
    /// A RST was captured.
    pub rst: bool,
}

impl Counts {
    /// Retransmissions that were proved spurious by any means.
    pub fn spurious(&self) -> u64 {
        self.spurious_by_ack + self.spurious_by_timestamp + self.spurious_by_dsack
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retransmission_is_proved_spurious_in_three_ways() {
        let counts =
            Counts { spurious_by_ack: 1, spurious_by_timestamp: 20, spurious_by_dsack: 300, ..Counts::default() };
        assert_eq!(counts.spurious(), 321);
    }
}
