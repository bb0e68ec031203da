use std::fs::File;

use ::parquet::file::reader::{FileReader, SerializedFileReader};
use etherparse::{PacketBuilder, TcpOptionElement};

use super::*;

const MS: u64 = 1_000_000;

/// A capture of one connection: times in ms, whether the client sends, sequence and acknowledgment number, bytes of
/// data.
fn capture(segments: &[(u64, bool, u32, u32, usize)]) -> Vec<u8> {
    let word = |value: u32| value.to_le_bytes();
    let mut file = [0xa1b2_3c4d, 0x0004_0002, 0, 0, 65_535, 101].map(word).concat();
    for &(ms, from_client, seq, ack, payload) in segments {
        let (src, dst, ports) = if from_client { (1, 2, (1000, 5001)) } else { (2, 1, (5001, 1000)) };
        let mut tcp = PacketBuilder::ipv4([10, 0, 0, src], [10, 0, 0, dst], 64).tcp(ports.0, ports.1, seq, 4000);
        // The first number of each side is a hundred.
        tcp = if seq.is_multiple_of(100) { tcp.syn() } else { tcp };
        tcp = if ack > 0 { tcp.ack(ack) } else { tcp };
        // The ack of 101 reports what has arrived beyond it.
        let sack = TcpOptionElement::SelectiveAcknowledgement((201, 301), [None; 3]);
        let tcp = if ack == 101 && ms > 20 { tcp.options(&[sack]).expect("it fits") } else { tcp };
        let mut packet = Vec::new();
        tcp.write(&mut packet, &vec![7; payload]).expect("a Vec takes every write");
        let time_ns = ms * MS;
        let length = packet.len() as u32;
        file.extend(
            [(time_ns / 1_000_000_000) as u32, (time_ns % 1_000_000_000) as u32, length, length].map(word).concat(),
        );
        file.extend(packet);
    }
    file
}

/// A handshake, two segments of which the first is lost and sent again, and acks.
const SESSION: [(u64, bool, u32, u32, usize); 8] = [
    (0, true, 100, 0, 0),
    (10, false, 300, 101, 0),
    (20, true, 101, 301, 0),
    (30, true, 101, 301, 100),
    (31, true, 201, 301, 100),
    (61, false, 301, 101, 0),
    (62, true, 101, 301, 100),
    (92, false, 301, 301, 0),
];

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The summary of captures that are the session, and the numbers of rows of all tables.
fn written(name: &str, captures: usize, jobs: usize) -> (Value, [i64; 4]) {
    let folder = Folder(std::env::temp_dir().join(format!("backchannel-tables-{name}-{}", std::process::id())));
    fs::create_dir_all(&folder.0).unwrap();
    let inputs: Vec<Input> = (0..captures)
        .map(|number| {
            let path = folder.0.join(format!("{number}.pcap"));
            fs::write(&path, capture(&SESSION)).unwrap();
            Input { label: format!("at{number}"), path, shift_ns: 5 }
        })
        .collect();
    let out = folder.0.join("out");
    write_tables(&inputs, &out, &Options { segments: true, datagrams: true, jobs }).unwrap();
    let summary = serde_json::from_slice(&fs::read(out.join("summary.json")).unwrap()).unwrap();
    let rows = |name: &str| {
        let file = File::open(path_of(&out, name, "")).unwrap();
        SerializedFileReader::new(file).unwrap().metadata().file_metadata().num_rows()
    };
    let mut files: Vec<_> = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    files.sort();
    let expected = ["connections.parquet", "datagrams.parquet", "sacks.parquet", "segments.parquet", "summary.json"];
    assert_eq!(files, expected);
    (summary, NAMES.map(rows))
}

#[test]
fn a_capture_has_a_row_for_each_segment_sack_block_and_connection() {
    let (summary, rows) = written("one", 1, 1);
    assert_eq!(rows, [8, 1, 1, 0]);
    let file = &summary["files"][0];
    assert_eq!((&file["label"], &file["packets"], &file["connections_total"]), (&json!("at0"), &json!(8), &json!(1)));
    let connection = &file["connections"][0];
    assert_eq!((&connection["client"], &connection["server"]), (&json!("10.0.0.1:1000"), &json!("10.0.0.2:5001")));
    assert_eq!((&connection["first_ns"], &connection["last_ns"]), (&json!(5), &json!(92_000_005)));
    let side = &connection["from_client"];
    // Samples: the SYN's 10 ms. The data are ambiguous, since the first of them was sent again.
    let names = ["packets", "retransmissions", "rtt_samples", "rtt_mean_ns", "rtt_max_ns", "isn", "fin"];
    let expected = [json!(5), json!(1), json!(1), json!(10_000_000), json!(10_000_000), json!(100), json!(false)];
    assert_eq!(names.map(|name| side[name].clone()), expected);
}

#[test]
fn several_captures_give_the_same_tables_in_turn_and_side_by_side() {
    let (in_turn, rows) = written("turn", 3, 1);
    assert_eq!(rows, [24, 3, 3, 0]);
    assert_eq!(written("side", 3, 2), (in_turn.clone(), rows));
    assert_eq!(in_turn["files"][2]["connections"], in_turn["files"][0]["connections"]);
}
