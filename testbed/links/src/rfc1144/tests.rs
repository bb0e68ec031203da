use super::header::{at, bit, put_word, TCP};
use super::*;
use backchannel_core::packet::{fold, ones_sum, Packet, TcpFlags};

mod streams;

/// A TCP/IP packet, field by field.
#[derive(Clone, Debug)]
struct Sent {
    connection: u8,
    tos: u8,
    id: u16,
    fragment: u16,
    ttl: u8,
    ip_options: Vec<u8>,
    seq: u32,
    ack: u32,
    reserved: u8,
    flags: u8,
    window: u16,
    urgent: u16,
    options: Vec<u8>,
    data: Vec<u8>,
}

impl Sent {
    fn new(connection: u8) -> Sent {
        Sent {
            connection,
            tos: 0,
            id: 7,
            fragment: 0x4000,
            ttl: 64,
            ip_options: Vec::new(),
            seq: 1000,
            ack: 5000,
            reserved: 0,
            flags: TcpFlags::ACK,
            window: 8760,
            urgent: 0,
            options: Vec::new(),
            data: Vec::new(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let (ip, tcp) = (20 + self.ip_options.len(), 20 + self.options.len());
        let mut bytes = vec![0x40 | (ip / 4) as u8, self.tos, 0, 0];
        bytes.extend(self.id.to_be_bytes());
        bytes.extend(self.fragment.to_be_bytes());
        bytes.extend([self.ttl, TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend(&self.ip_options);
        bytes.extend(10_000u16.wrapping_add(self.connection.into()).to_be_bytes());
        bytes.extend(5001u16.to_be_bytes());
        bytes.extend(self.seq.to_be_bytes());
        bytes.extend(self.ack.to_be_bytes());
        bytes.extend([((tcp / 4) as u8) << 4 | self.reserved, self.flags]);
        bytes.extend(self.window.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(self.urgent.to_be_bytes());
        bytes.extend(&self.options);
        bytes.extend(&self.data);
        let total = bytes.len() as u16;
        put_word(&mut bytes, at::IP_LENGTH, total);
        let checksum = !fold(ones_sum(&bytes[..ip]));
        put_word(&mut bytes, at::IP_CHECKSUM, checksum);
        let pseudo = ones_sum(&bytes[at::ADDRESSES..20]) + u64::from(TCP) + u64::from(total) - ip as u64;
        let checksum = !fold(pseudo + ones_sum(&bytes[ip..]));
        put_word(&mut bytes, ip + at::TCP_CHECKSUM, checksum);
        bytes
    }
}

/// Both ends of a line that loses nothing.
struct CleanLink(Compressor, Decompressor);

impl CleanLink {
    fn new(slots: usize) -> CleanLink {
        CleanLink(Compressor::new(slots), Decompressor::new(slots))
    }

    /// Sends a packet across and gives its form on the line without data, and without its checksum.
    fn across(&mut self, sent: &Sent) -> (Kind, Vec<u8>) {
        let bytes = sent.bytes();
        let mut line = self.0.compress(&bytes);
        assert_eq!(self.1.decompress(line.kind, &line.bytes), Ok(bytes.clone()), "{sent:?}");
        if line.kind == Kind::CompressedTcp {
            let at = 1 + usize::from(line.bytes[0] & bit::C != 0);
            let ip = 20 + sent.ip_options.len();
            let checksum: Vec<u8> = line.bytes.drain(at..at + 2).collect();
            assert_eq!(checksum, bytes[ip + at::TCP_CHECKSUM..ip + at::URGENT]);
        }
        line.bytes.truncate(line.bytes.len() - sent.data.len());
        (line.kind, line.bytes)
    }

    /// The same, for a packet that must be compressed.
    fn header(&mut self, sent: &Sent) -> Vec<u8> {
        let (kind, header) = self.across(sent);
        assert_eq!(kind, Kind::CompressedTcp, "{sent:?}");
        header
    }
}

/// A conversation and, worked out by hand from 3.2.2 and 3.2.3, what stands on the line.
#[test]
fn golden_trace() {
    let mut line = CleanLink::new(16);
    let mut one = Sent::new(1);
    let syn = Sent { flags: TcpFlags::SYN, ..one.clone() };
    assert_eq!(line.across(&syn), (Kind::Ip, syn.bytes()));
    // The first ack sets slot 0: all of it, 0 in place of 6.
    let (kind, bytes) = line.across(&one);
    assert_eq!((kind, bytes.len(), bytes[9]), (Kind::UncompressedTcp, 40, 0));
    // Data after an ack, pushed: nothing but P.
    one = Sent { id: 8, data: b"login".to_vec(), flags: TcpFlags::ACK | TcpFlags::PSH, ..one };
    assert_eq!(line.header(&one), [0x10]);
    // The next data: the sequence number rises by the 5 bytes before.
    one = Sent { id: 9, seq: 1005, data: vec![b'x'; 300], flags: TcpFlags::ACK, ..one };
    assert_eq!(line.header(&one), [0x0f]);
    // Sequence number up by 300, which is more than a byte holds, window down by 1.
    one = Sent { id: 10, seq: 1305, window: 8759, data: vec![b'y'], ..one };
    assert_eq!(line.header(&one), [0x0a, 0, 0xff, 0xff, 0, 0x01, 0x2c]);
    // The echo of one character was one character.
    one = Sent { id: 11, seq: 1306, ack: 5001, ..one };
    assert_eq!(line.header(&one), [0x0b]);
    // An ack of 255 bytes and one of 256; the identification skips one.
    one = Sent { id: 12, seq: 1307, ack: 5256, data: vec![], ..one };
    assert_eq!(line.header(&one), [0x0c, 255, 1]);
    one = Sent { id: 14, ack: 5512, ..one };
    assert_eq!(line.header(&one), [0x24, 0, 1, 0, 2]);
    // Another connection sets slot 1; then each names its slot when it follows the other.
    let mut two = Sent { id: 90, ..Sent::new(2) };
    assert_eq!(line.across(&two).1[9], 1);
    one = Sent { id: 15, ack: 5612, ..one };
    assert_eq!(line.header(&one), [0x44, 0, 100]);
    two = Sent { id: 91, ack: 5003, ..two };
    assert_eq!(line.header(&two), [0x44, 1, 3]);
    two = Sent { id: 92, ack: 5004, urgent: 600, flags: TcpFlags::ACK | TcpFlags::URG, ..two };
    assert_eq!(line.header(&two), [0x05, 0, 2, 0x58, 1]);
    // The identification stands still: 0 takes three bytes.
    two = Sent { ack: 5005, urgent: 0, ..two };
    assert_eq!(line.header(&two), [0x25, 0, 0, 0, 1, 0, 0, 0]);
}

#[test]
fn what_has_no_delta_goes_whole() {
    let base = Sent { data: vec![1; 10], ..Sent::new(1) };
    let next = Sent { id: 8, seq: 1010, ..base.clone() };
    let changed = |change: fn(&mut Sent)| {
        let mut line = CleanLink::new(4);
        line.across(&base);
        let mut sent = next.clone();
        change(&mut sent);
        line.across(&sent).0
    };
    assert_eq!(changed(|_| ()), Kind::CompressedTcp);
    assert_eq!(changed(|sent| sent.seq = 1000 + 65_535), Kind::CompressedTcp);
    let whole: [fn(&mut Sent); 14] = [
        |sent| sent.seq = 1000 + 65_536,
        // A retransmission, and an ack that goes back.
        |sent| sent.seq = 990,
        |sent| sent.ack = 4999,
        // The same once more.
        |sent| sent.seq = 1000,
        |sent| sent.ttl = 63,
        |sent| sent.tos = 3,
        |sent| sent.fragment = 0,
        |sent| sent.options = vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2],
        |sent| sent.ip_options = vec![1, 1, 1, 0],
        |sent| sent.flags |= TcpFlags::ECE,
        |sent| sent.flags |= TcpFlags::CWR,
        |sent| sent.reserved = 8,
        |sent| sent.urgent = 1,
        // Looks like the mask of an echo, and is none.
        |sent| (sent.flags, sent.window) = (sent.flags | TcpFlags::URG, 1),
    ];
    for (number, change) in whole.into_iter().enumerate() {
        assert_eq!(changed(change), Kind::UncompressedTcp, "change {number}");
    }
    let as_it_is: [fn(&mut Sent); 6] = [
        |sent| sent.flags |= TcpFlags::FIN,
        |sent| sent.flags |= TcpFlags::RST,
        |sent| sent.flags |= TcpFlags::SYN,
        |sent| sent.flags = 0,
        |sent| sent.fragment = 0x2000,
        |sent| sent.fragment = 0x4001,
    ];
    for (number, change) in as_it_is.into_iter().enumerate() {
        assert_eq!(changed(change), Kind::Ip, "change {number}");
    }
}

/// asym 9.1: timestamps change with every packet, and no header shrinks.
#[test]
fn changing_timestamps_are_not_compressed_and_equal_ones_are() {
    let stamped = |id: u16, time: u8| Sent {
        id,
        ack: id.into(),
        options: vec![1, 1, 8, 10, 0, 0, 0, time, 0, 0, 0, 2],
        ..Sent::new(1)
    };
    let mut line = CleanLink::new(4);
    line.across(&stamped(1, 1));
    assert_eq!(line.across(&stamped(2, 2)).0, Kind::UncompressedTcp);
    assert_eq!(line.header(&stamped(3, 2)), [0x04, 1]);
}

#[test]
fn what_is_no_whole_tcp_packet_passes_as_it_is() {
    let mut compressor = Compressor::new(1);
    let good = Sent { data: vec![7; 30], ..Sent::new(1) }.bytes();
    let mut damaged = good.clone();
    damaged[at::IP_CHECKSUM] ^= 1;
    let mut udp = good.clone();
    udp[at::PROTOCOL] = 17;
    for bytes in [vec![], vec![0x45], good[..39].to_vec(), good[..60].to_vec(), damaged, udp, vec![0x60; 60]] {
        assert_eq!(compressor.compress(&bytes), Compressed { kind: Kind::Ip, bytes });
    }
    assert_eq!(compressor.compress(&good).kind, Kind::UncompressedTcp);
}

#[test]
fn the_slot_used_longest_ago_is_taken() {
    let mut line = CleanLink::new(2);
    let slot = |line: &mut CleanLink, connection, id| {
        let (kind, bytes) = line.across(&Sent { id, ack: id.into(), ..Sent::new(connection) });
        (kind, if kind == Kind::CompressedTcp { bytes[1] } else { bytes[9] })
    };
    assert_eq!(slot(&mut line, 1, 1), (Kind::UncompressedTcp, 0));
    assert_eq!(slot(&mut line, 2, 1), (Kind::UncompressedTcp, 1));
    assert_eq!(slot(&mut line, 1, 2), (Kind::CompressedTcp, 0));
    assert_eq!(slot(&mut line, 3, 1), (Kind::UncompressedTcp, 1));
    assert_eq!(slot(&mut line, 2, 2), (Kind::UncompressedTcp, 0));
    assert_eq!(slot(&mut line, 3, 2), (Kind::CompressedTcp, 1));
}

#[test]
fn after_a_noticed_error_only_a_packet_that_names_its_slot_is_taken() {
    let ack = |connection, number: u16| Sent { id: number, ack: number.into(), ..Sent::new(connection) };
    let (mut near, mut far) = (Compressor::new(4), Decompressor::new(4));
    let mut take = |far: &mut Decompressor, sent: &Sent| {
        let line = near.compress(&sent.bytes());
        far.decompress(line.kind, &line.bytes).map(|bytes| bytes == sent.bytes())
    };
    assert!(far.tosses());
    for connection in [1, 2] {
        assert_eq!(take(&mut far, &ack(connection, 1)), Ok(true));
    }
    far.line_error();
    // It follows a packet of its own connection, and does not name it.
    assert_eq!(take(&mut far, &ack(2, 2)), Err(Tossed::SlotUnknown));
    // What is no TCP passes and helps nobody.
    assert_eq!(take(&mut far, &Sent { flags: TcpFlags::SYN, ..ack(2, 3) }), Ok(true));
    assert!(far.tosses());
    // The other connection names itself, and is in step.
    assert_eq!(take(&mut far, &ack(1, 2)), Ok(true));
    // Named, it is taken, but it has missed an ack.
    assert_eq!(take(&mut far, &ack(2, 3)), Ok(false));
    // The same ack again goes whole and sets all right.
    assert_eq!(take(&mut far, &ack(2, 3)), Ok(true));
    far.line_error();
    assert_eq!(take(&mut far, &ack(2, 3)), Ok(true));
}

#[test]
fn a_slot_that_was_never_set_or_does_not_exist_tosses() {
    let mut far = Decompressor::new(2);
    let whole = |slot| {
        let mut bytes = Sent::new(1).bytes();
        bytes[at::PROTOCOL] = slot;
        bytes
    };
    assert_eq!(far.decompress(Kind::CompressedTcp, &[bit::C, 1, 0, 0]), Err(Tossed::NoSuchSlot));
    assert_eq!(far.decompress(Kind::UncompressedTcp, &whole(2)), Err(Tossed::NoSuchSlot));
    assert!(far.decompress(Kind::UncompressedTcp, &whole(1)).is_ok());
    assert_eq!(far.decompress(Kind::CompressedTcp, &[bit::A, 0, 0, 0]), Err(Tossed::Malformed));
    assert_eq!(far.decompress(Kind::CompressedTcp, &[0, 0, 0]), Err(Tossed::SlotUnknown));
}

/// Two fields that move against each other hide a missed packet from the TCP checksum: a receiver whose user does
/// not read acks n bytes and shrinks its window by as many. Nothing in RFC 1144 sees that; the next whole packet
/// sets it right. Of the IP identification the checksum knows nothing at all.
#[test]
fn what_the_tcp_checksum_cannot_see() {
    let (mut near, mut far) = (Compressor::new(1), Decompressor::new(1));
    let sent: Vec<_> = (0..3u16)
        .map(|n| Sent { id: n, ack: 5000 + 100 * u32::from(n), window: 8000 - 100 * n, ..Sent::new(1) })
        .collect();
    let lines: Vec<_> = sent.iter().map(|sent| near.compress(&sent.bytes())).collect();
    far.decompress(lines[0].kind, &lines[0].bytes).unwrap();
    let wrong = Packet::from_bytes(0, far.decompress(lines[2].kind, &lines[2].bytes).unwrap());
    assert!(wrong.checksum_ok());
    let tcp = wrong.tcp().unwrap();
    assert_eq!((tcp.ack, tcp.window), (5100, 7900));
}
