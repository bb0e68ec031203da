//! Files of every format, intact and damaged.

use super::*;
use proptest::prelude::*;

/// A frame that the test owns.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Owned {
    time_ns: i64,
    link_type: u16,
    wire_len: u32,
    data: Vec<u8>,
}

/// A nanosecond pcap of Ethernet frames.
fn pcap(frames: &[(i64, Vec<u8>)], big: bool) -> Vec<u8> {
    let order = |word: u32| if big { word.to_be_bytes() } else { word.to_le_bytes() };
    let mut file: Vec<u8> = [order(0xa1b2_3c4d), [0; 4], [0; 4], [0; 4], order(262_144), order(1)].concat();
    file[4..8].copy_from_slice(&if big { [0, 2, 0, 4] } else { [2, 0, 4, 0] });
    for (time_ns, frame) in frames {
        let length = frame.len() as u32;
        for word in [(time_ns / 1_000_000_000) as u32, (time_ns % 1_000_000_000) as u32, length, length] {
            file.extend(order(word));
        }
        file.extend(frame);
    }
    file
}

fn block(kind: u32, body: &[u8], big: bool) -> Vec<u8> {
    let order = |word: u32| if big { word.to_be_bytes() } else { word.to_le_bytes() };
    let length = 12 + body.len().next_multiple_of(4) as u32;
    let mut all = [order(kind), order(length)].concat();
    all.extend(body);
    all.resize(length as usize - 4, 0);
    all.extend(order(length));
    all
}

fn words(words: &[u32], big: bool) -> Vec<u8> {
    words.iter().flat_map(|word| if big { word.to_be_bytes() } else { word.to_le_bytes() }).collect()
}

fn halves(halves: &[u16], big: bool) -> Vec<u8> {
    halves.iter().flat_map(|half| if big { half.to_be_bytes() } else { half.to_le_bytes() }).collect()
}

fn section(big: bool) -> Vec<u8> {
    let mut body = [words(&[0x1a2b_3c4d], big), halves(&[1, 0], big), vec![0xff; 8]].concat();
    body.extend([halves(&[4, 5], big), b"maker\0\0\0".to_vec()].concat());
    block(pcapng::MAGIC, &body, big)
}

/// Ethernet, no snap length, named, 10^-resolution s.
fn interface(resolution: u8, big: bool) -> Vec<u8> {
    let mut body = [halves(&[1, 0], big), words(&[0], big), halves(&[2, 4], big), b"eth0".to_vec()].concat();
    body.extend([halves(&[9, 1], big), vec![resolution, 0, 0, 0], vec![0; 4]].concat());
    block(1, &body, big)
}

fn enhanced(number: u32, ticks: u64, data: &[u8], big: bool) -> Vec<u8> {
    let length = data.len() as u32;
    let mut body = words(&[number, (ticks >> 32) as u32, ticks as u32, length, length], big);
    body.extend(data);
    block(6, &body, big)
}

fn pcapng(frames: &[(i64, Vec<u8>)], big: bool) -> Vec<u8> {
    let mut file = [section(big), interface(9, big)].concat();
    for (time_ns, frame) in frames {
        file.extend(enhanced(0, *time_ns as u64, frame, big));
    }
    file
}

fn read(bytes: Vec<u8>) -> Result<(Vec<Owned>, Capture), Error> {
    let mut capture = Capture::new(Box::new(io::Cursor::new(bytes)))?;
    let mut all = Vec::new();
    while let Some(frame) = capture.next() {
        let data = frame.data.to_vec();
        all.push(Owned { time_ns: frame.time_ns, link_type: frame.link_type, wire_len: frame.wire_len, data });
    }
    Ok((all, capture))
}

fn frames() -> Vec<(i64, Vec<u8>)> {
    (0..40).map(|i| (1_700_000_000_123_456_789 + i * 1_000_003, vec![i as u8; 40 + i as usize])).collect()
}

fn pairs(read: &[Owned]) -> Vec<(i64, Vec<u8>)> {
    read.iter().map(|frame| (frame.time_ns, frame.data.clone())).collect()
}

#[test]
fn every_format_and_byte_order_gives_the_same_frames() {
    for big in [false, true] {
        for file in [pcap(&frames(), big), pcapng(&frames(), big)] {
            let (all, capture) = read(file).unwrap();
            assert_eq!(pairs(&all), frames());
            assert_eq!(capture.damages(), 0);
        }
    }
}

#[test]
fn a_big_endian_microsecond_file_is_read() {
    let mut file = words(&[0xa1b2_c3d4, 0x0002_0004, 0, 0, 96, 101, 7, 5, 1, 60], true);
    file.push(9);
    let (all, capture) = read(file).unwrap();
    assert_eq!(all, [Owned { time_ns: 7_000_005_000, link_type: 101, wire_len: 60, data: vec![9] }]);
    assert_eq!(capture.about().format, "pcap");
}

#[test]
fn compressed_files_are_read_and_a_cut_one_up_to_its_cut() {
    let folder = std::env::temp_dir().join(format!("backchannel-capture-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let plain = pcap(&frames(), false);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    io::Write::write_all(&mut packed, &plain).unwrap();
    let gzip = packed.finish().unwrap();
    let zstd = zstd::encode_all(&plain[..], 1).unwrap();
    for (name, bytes, format) in [("gz", gzip, "gzip"), ("zst", zstd, "zstd")] {
        let path = folder.join(name);
        for cut in [0, 20] {
            std::fs::write(&path, &bytes[..bytes.len() - cut]).unwrap();
            let mut capture = match Capture::open(&path) {
                Ok(capture) => capture,
                Err(why) => {
                    // So short a file is one zstd block, of which nothing comes before all of it.
                    assert!(cut > 0 && why.to_string().contains("reading failed"), "{why}");
                    continue;
                }
            };
            let mut count = 0;
            while capture.next().is_some() {
                count += 1;
            }
            assert!(capture.about().format.ends_with(format));
            assert_eq!(capture.damages(), u64::from(cut > 0), "{name} {:?}", capture.damage());
            assert!(cut > 0 || count == 40);
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn sections_and_interfaces_have_their_own_order_clock_and_names() {
    let mut offset = [halves(&[113, 0], false), words(&[0], false), halves(&[14, 8], false)].concat();
    offset.extend([words(&[5, 0], false), vec![0; 4]].concat());
    let resolution = |value: u8| {
        let mut body = [halves(&[1, 0], false), words(&[0], false), halves(&[9, 1], false)].concat();
        body.extend([value, 0, 0, 0, 0, 0, 0, 0]);
        block(1, &body, false)
    };
    let mut resolved = halves(&[1, 4 + 6], false);
    resolved.extend(*b"\x0a\0\0\x01host1\0\0\0");
    resolved.extend(vec![0; 4]);
    let statistics = |dropped: [u32; 2], big: bool| {
        let option = [halves(&[5, 8], big), words(&dropped, big), vec![0; 4]].concat();
        block(5, &[words(&[0, 0, 0], big), option].concat(), big)
    };
    let file = [
        section(false),
        interface(6, false),
        block(1, &offset, false),
        resolution(0x80 | 10),
        enhanced(0, 2_000_001, &[1], false),
        enhanced(1, 2_000_001, &[2], false),
        enhanced(2, 1536, &[3], false),
        enhanced(0, 2, &[6], false),
        enhanced(9, 1, &[4], false),
        block(4, &resolved, false),
        statistics([17, 0], false),
        block(0x0bad, &[1, 2, 3, 4], false),
        section(true),
        interface(9, true),
        enhanced(0, 77, &[5], true),
        statistics([0, 3], true),
    ]
    .concat();
    let (all, capture) = read(file).unwrap();
    let told: Vec<_> = all.iter().map(|frame| (frame.time_ns, frame.link_type, frame.data[0])).collect();
    assert_eq!(
        told,
        [(2_000_001_000, 1, 1), (7_000_001_000, 113, 2), (1_500_000_000, 1, 3), (2_000, 1, 6), (77, 1, 5)]
    );
    assert_eq!(capture.damages(), 1);
    assert!(capture.damage()[0].to_string().contains("interface 9"), "{}", capture.damage()[0]);
    let about = capture.about();
    assert_eq!(about.names["10.0.0.1"], ["host1"]);
    assert_eq!((about.dropped, &about.interfaces[..]), (17 + 3, &["eth0".to_string(), "eth0".into()][..]));
    assert_eq!(about.remarks, ["program: maker", "program: maker"]);
}

/// Names, secrets and what programs add may be longer than the buffer.
#[test]
fn a_long_block_without_packets_is_skipped() {
    for (kind, damages) in [(0x0bad, 0), (10, 0), (77, 1)] {
        let long = block(kind, &vec![0; 3 << 19], false);
        let file =
            [section(false), interface(9, false), enhanced(0, 7, &[1], false), long, enhanced(0, 8, &[2], false)];
        let (all, capture) = read(file.concat()).unwrap();
        let times: Vec<_> = all.iter().map(|frame| (frame.time_ns, frame.data[0])).collect();
        assert_eq!((times, capture.damages()), (vec![(7, 1), (8, 2)], damages), "{kind}");
    }
}

#[test]
fn other_files_are_refused() {
    assert!(read(b"hello world".to_vec()).err().unwrap().to_string().contains("is not a capture file"));
    assert!(read(vec![]).err().unwrap().to_string().contains("truncated header"));
}

#[test]
fn after_damage_reading_goes_on_at_the_next_record() {
    for big in [false, true] {
        for (file, ng) in [(pcap(&frames(), big), false), (pcapng(&frames(), big), true)] {
            // The length of the eleventh record becomes impossible.
            let at = if ng {
                let before: usize = frames()[..10].iter().map(|(_, data)| enhanced(0, 0, data, big).len()).sum();
                section(big).len() + interface(9, big).len() + before + 4
            } else {
                24 + frames()[..10].iter().map(|(_, data)| 16 + data.len()).sum::<usize>() + 8
            };
            let mut damaged = file.clone();
            damaged[at..at + 4].copy_from_slice(&[0xff; 4]);
            let (all, capture) = read(damaged).unwrap();
            let mut expected = frames();
            expected.remove(10);
            assert_eq!(pairs(&all), expected);
            let place = if ng { at - 4 } else { at - 8 };
            assert_eq!((capture.damages(), capture.damage()[0].offset), (1, place as u64));
            assert!(capture.damage()[0].bytes > 40);
        }
    }
}

#[test]
fn a_file_of_rubbish_after_its_header_ends_with_its_reason() {
    let mut file = pcap(&frames()[..2], false);
    file.extend(vec![0xee; 3 << 20]);
    let (all, capture) = read(file).unwrap();
    assert_eq!(all.len(), 2);
    assert!(capture.damage()[0].reason.contains("nothing after it"), "{}", capture.damage()[0]);
    assert_eq!(capture.damage()[0].bytes, 3 << 20);
}

proptest! {
    #[test]
    fn a_cut_file_gives_what_is_whole_and_says_where_it_ended(
        sizes in proptest::collection::vec(1usize..90, 1..8), cut in 0.0f64..1.0, ng: bool, big: bool,
    ) {
        let frames: Vec<_> = sizes.iter().enumerate().map(|(i, &n)| (i as i64 + 999, vec![0x77; n])).collect();
        let whole = if ng { pcapng(&frames, big) } else { pcap(&frames, big) };
        let n = (whole.len() as f64 * cut) as usize;
        if let Ok((all, capture)) = read(whole[..n].to_vec()) {
            prop_assert!(all.len() <= frames.len());
            for (frame, (_, data)) in all.iter().zip(&frames) {
                prop_assert_eq!(&frame.data, data);
            }
            for damage in capture.damage() {
                prop_assert!(damage.offset + damage.bytes == n as u64);
            }
        }
    }

    /// A record's length may be damaged to another that can be, which swallows what lies within; not more.
    #[test]
    fn any_bytes_overwritten_anywhere_cost_what_they_cover(
        at in 0.0f64..1.0, with in proptest::collection::vec(any::<u8>(), 1..30), ng: bool, big: bool,
    ) {
        let whole = if ng { pcapng(&frames(), big) } else { pcap(&frames(), big) };
        let first = if ng { section(big).len() + interface(9, big).len() } else { 24 };
        let mut damaged = whole.clone();
        let at = first + ((whole.len() - with.len() - first) as f64 * at) as usize;
        damaged[at..at + with.len()].copy_from_slice(&with);
        let (all, capture) = read(damaged).unwrap();
        let swallowed: usize = all.iter().filter(|frame| !frames().contains(&(frame.time_ns, frame.data.clone())))
            .map(|frame| frame.data.len()).sum();
        let passed: u64 = capture.damage().iter().map(|damage| damage.bytes).sum();
        let good: usize = frames().iter().filter(|frame| pairs(&all).contains(frame)).map(|(_, data)| data.len()).sum();
        let all_data: usize = frames().iter().map(|(_, data)| data.len()).sum();
        prop_assert!(good + swallowed + passed as usize + 100 >= all_data, "{good}: {:?}", capture.damage());
        // Wherever the length itself is impossible, all but the two records next to the damage are read.
        if swallowed == 0 {
            let count = frames().iter().filter(|frame| pairs(&all).contains(frame)).count();
            prop_assert!(count >= 36 || passed == 0, "{count} of 40: {:?}", capture.damage());
        }
    }

    #[test]
    fn no_bytes_make_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), ng: bool, big: bool) {
        let mut file = if ng { pcapng(&frames()[..2], big) } else { pcap(&frames()[..2], big) };
        file.append(&mut bytes);
        let _ = read(file);
    }
}
