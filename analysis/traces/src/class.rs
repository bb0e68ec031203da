//! Segment classes: the bits of column `class` in `segments.parquet`, in one table.
//!
//! `backchannel-node registry` exports [`SEGMENT_CLASSES`], so Python, the site and docs/traces.md use the same names
//! and bits. Where Wireshark has a field with the same rule, `wireshark` gives its name.

use serde::Serialize;

/// One bit of [`crate::Segment::class`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SegmentClass {
    /// Name in code and in docs/traces.md.
    pub name: &'static str,
    /// Value of the bit.
    pub bit: u32,
    /// Short text for tables and plots.
    pub label: &'static str,
    /// Wireshark's field with the same or nearly the same rule. docs/traces.md lists the differences.
    pub wireshark: Option<&'static str>,
    /// When the bit is set.
    pub description: &'static str,
}

macro_rules! segment_classes {
    ($($number:literal $name:ident $label:literal $wireshark:expr, $description:literal;)*) => {
        $(#[doc = $description] pub const $name: u32 = 1 << $number;)*

        /// Every class, lowest bit first.
        pub const SEGMENT_CLASSES: &[SegmentClass] = &[$(SegmentClass {
            name: stringify!($name),
            bit: $name,
            label: $label,
            wireshark: $wireshark,
            description: $description,
        }),*];
    };
}

segment_classes! {
    0 NEW "new" None,
        "Data, SYN or FIN beyond the highest sequence number seen so far.";
    1 RETRANSMISSION "retransmission" Some("tcp.analysis.retransmission"),
        "Repeats sequence numbers that were sent before.";
    2 FAST_RETRANSMISSION "fast retransmission" Some("tcp.analysis.fast_retransmission"),
        "A retransmission that duplicate acks triggered: two or more in the last 20 ms, or three at any time before. \
         Also the later retransmissions of the same recovery.";
    3 SPURIOUS "spurious" Some("tcp.analysis.spurious_retransmission"),
        "A retransmission of bytes that the receiver already had, as an earlier ack, a later timestamp (RFC 3522) or a \
         later D-SACK (RFC 2883) proves.";
    4 OUT_OF_ORDER "out of order" Some("tcp.analysis.out_of_order"),
        "Fills a hole within the round-trip time of the handshake (3 ms if the handshake was not captured): reordered, \
         not retransmitted.";
    5 GAP_BEFORE "gap before" Some("tcp.analysis.lost_segment"),
        "Bytes before this segment were not captured so far.";
    6 DUPLICATE_ACK "duplicate ack" Some("tcp.analysis.duplicate_ack"),
        "An ack without data that acknowledges nothing new and leaves the window unchanged.";
    7 WINDOW_UPDATE "window update" Some("tcp.analysis.window_update"),
        "An ack that changes only the window.";
    8 ZERO_WINDOW "zero window" Some("tcp.analysis.zero_window"),
        "Advertises a window of zero.";
    9 KEEP_ALIVE "keep-alive" Some("tcp.analysis.keep_alive"),
        "At most one byte, just below the next sequence number, sent to elicit an ack (RFC 9293 3.8.4).";
    10 PURE_ACK "pure ack" None,
        "ACK without data, SYN, FIN or RST.";
    11 SACK "SACK" None,
        "Carries SACK blocks (RFC 2018).";
    12 DATA "data" None,
        "Carries data.";
    13 TIMEOUT "after a timeout" None,
        "A retransmission after a retransmission timeout (RFC 6298): the oldest outstanding data, after a silence as \
         long as the timer. Also later retransmissions until all data outstanding at the timeout is acknowledged.";
    14 PROBE "window probe" Some("tcp.analysis.zero_window_probe"),
        "One byte of new data sent into a window of zero (RFC 9293 3.8.6.1).";
    15 PROBE_ACK "answers a probe" Some("tcp.analysis.zero_window_probe_ack"),
        "Acknowledges a keep-alive or a window probe.";
    16 WINDOW_FULL "fills the window" Some("tcp.analysis.window_full"),
        "Fills the receiver's window to its last byte.";
    17 LOST_IN_CAPTURE "lost in capture" Some("tcp.analysis.ack_lost_segment"),
        "Acknowledges data that is missing from the capture.";
    18 DSACK "D-SACK" None,
        "The first SACK block reports duplicate data (RFC 2883).";
    19 ECT "ECT" None,
        "ECN-capable transport: ECT(0), ECT(1) or CE in the IP header (RFC 3168).";
    20 CE "CE" None,
        "Congestion experienced: marked by the network (RFC 3168).";
    21 BAD_CHECKSUM "bad checksum" None,
        "A checksum is wrong. The receiver discards the segment, so it changes no other classification.";
    22 SUPER "super-packet" None,
        "More data than the maximum segment size: segmentation or receive offload (TSO, GRO).";
    23 PROVES_SPURIOUS "proves a retransmission spurious" None,
        "This ack proves that an earlier retransmission was spurious.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docs_traces_md_lists_every_class() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/traces.md");
        let docs = std::fs::read_to_string(path).expect("docs/traces.md can be read");
        let begin = docs.find("<!-- classes").and_then(|at| Some(at + docs[at..].find('\n')? + 1)).expect("a mark");
        let end = docs.find("<!-- end of classes").expect("a mark");
        let mut table = "| bit | name | when | Wireshark |\n|---|---|---|---|\n".to_owned();
        for SegmentClass { name, bit, wireshark, description, .. } in SEGMENT_CLASSES {
            let field = wireshark.map_or(String::new(), |field| format!("`{field}`"));
            table += &format!("| {bit} | {name} | {description} | {field} |\n");
        }
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, format!("{}{table}{}", &docs[..begin], &docs[end..]))
                .expect("docs/traces.md can be written");
        } else {
            assert!(docs[begin..end] == table, "docs/traces.md is out of step: UPDATE_DOCS=1 writes\n{table}");
        }
    }

    #[test]
    fn every_class_has_a_bit_and_a_name_of_its_own() {
        for (number, class) in SEGMENT_CLASSES.iter().enumerate() {
            assert_eq!(class.bit, 1 << number, "{}", class.name);
            assert_eq!(SEGMENT_CLASSES.iter().filter(|other| other.name == class.name).count(), 1, "{}", class.name);
        }
    }
}
