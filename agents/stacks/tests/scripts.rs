//! Conformance scripts: one connection, a peer that does what a readable file says, and everything that the connection
//! sends, in virtual time. `scripts/*.txt` hold the cases; docs/stacks.md explains the language.
//!
//! A case is run from its inputs; the transcript that results (inputs, segments sent, answers to queries) must be the
//! case, line by line. `BLESS=1 cargo test -p backchannel-stacks --test scripts` writes transcripts into the files, to
//! be read against the rule that each case names before they are committed.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use backchannel_core::packet::{Ecn, FlowKey, Packet, TcpFlags};
use backchannel_core::scenario::Options;
use backchannel_core::time::Time;
use backchannel_core::transport::Transport;
use backchannel_stacks::config::{stack_config, Config};
use backchannel_stacks::wire::{AccurateOption, Pulse, SackBlocks, Segment};
use backchannel_stacks::{Connection, Content, SeqNumber, Source};

/// First sequence numbers of our side and of the peer: both wrap within the first segments.
const OUR_FIRST: SeqNumber = SeqNumber(u32::MAX - 1000);
const PEER_FIRST: SeqNumber = SeqNumber(u32::MAX - 3000);

fn flow() -> FlowKey {
    FlowKey { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into(), src_port: 4000, dst_port: 80 }
}

/// The script's side of the exchange.
struct Run {
    config: Option<Config>,
    ours: Option<Connection>,
    waiting: Option<Source>,
    now: Time,
    /// What the peer would say next: offsets, window, and its timestamp.
    seq: u32,
    ack: u32,
    window: u16,
    timestamps: bool,
    echo: u32,
    transcript: String,
}

type Outcome<T> = Result<T, String>;

impl Run {
    fn new() -> Run {
        Run {
            config: None,
            ours: None,
            waiting: None,
            now: Time::ZERO,
            seq: 0,
            ack: 0,
            window: 65_535,
            timestamps: false,
            echo: 0,
            transcript: String::new(),
        }
    }

    fn ours(&mut self) -> Outcome<&mut Connection> {
        self.ours.as_mut().ok_or_else(|| "there is no connection yet".to_owned())
    }

    fn line(&mut self, line: &str) -> Outcome<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] => Ok(()),
            [first, ..] if first.starts_with('#') => {
                let _ = writeln!(self.transcript, "{line}");
                Ok(())
            }
            ["stack", name, ref options @ ..] => {
                let config = stack_config(name, &parse_options(options)?);
                self.config = Some(config.map_err(|error| error.to_string())?);
                let _ = writeln!(self.transcript, "{line}");
                Ok(())
            }
            [at, ref rest @ ..] => {
                let at = at.parse::<f64>().map_err(|_| format!("'{at}' is not a time"))?;
                if rest.first() == Some(&">") {
                    return Ok(());
                }
                self.advance(Time::from_seconds(at));
                self.input(rest)
            }
        }
    }

    /// Lets timers fire up to `to`.
    fn advance(&mut self, to: Time) {
        while let Some(due) = self.ours.as_ref().and_then(Transport::next_timeout).filter(|&due| due <= to) {
            self.now = self.now.max(due);
            let now = self.now;
            self.ours.as_mut().expect("it has a timer").on_timer(now);
            self.collect(true);
        }
        self.now = self.now.max(to);
    }

    fn input(&mut self, words: &[&str]) -> Outcome<()> {
        let text = words.join(" ");
        if words[0] != "?" {
            self.write(&text);
        }
        match *words {
            ["connect", ref source @ ..] => {
                let config = self.config.clone().ok_or("a case begins with its stack")?;
                self.timestamps = config.timestamps;
                self.ours = Some(Connection::connect(config, flow(), OUR_FIRST, source_of(source)?));
            }
            ["listen", ref source @ ..] => {
                self.timestamps = self.config.as_ref().ok_or("a case begins with its stack")?.timestamps;
                self.waiting = Some(source_of(source)?);
            }
            // A connection whose handshake took 100 ms, with a peer that offers what we do.
            ["established", ref source @ ..] => self.establish(source)?,
            ["<", flags, range, ref fields @ ..] => {
                let (seq, end) = range.split_once(':').ok_or("a segment has first:end")?;
                let (seq, end) = (number(seq)?, number(end)?);
                let segment = self.segment(flags, seq, end - seq, fields)?;
                self.inject(segment, fields)?;
            }
            ["ack", number_, ref fields @ ..] => {
                self.ack = number(number_)?;
                let segment = self.segment(".", self.seq, 0, fields)?;
                self.inject(segment, fields)?;
            }
            ["dup", times, ref fields @ ..] => {
                for _ in 0..number(times)? {
                    let segment = self.segment(".", self.seq, 0, fields)?;
                    self.inject(segment, fields)?;
                }
            }
            ["data", length, ref fields @ ..] => {
                let length = number(length)?;
                let segment = self.segment(".", self.seq, length, fields)?;
                self.seq += length;
                self.inject(segment, fields)?;
            }
            ["give", bytes] => {
                let bytes = u64::from(number(bytes)?);
                self.ours()?.write(bytes);
            }
            ["finish"] => self.ours()?.finish(),
            ["abort"] => self.ours()?.abort(),
            ["reading", on] => self.ours()?.set_reading(on == "on"),
            ["full"] => {
                let now = self.now;
                self.ours()?.on_full_interface(now);
            }
            ["until"] => {}
            ["?", ref keys @ ..] => {
                let answer = self.answer(keys)?;
                self.write(&answer);
            }
            _ => return Err(format!("'{text}' is not a step")),
        }
        self.collect(true);
        Ok(())
    }

    fn establish(&mut self, source: &[&str]) -> Outcome<()> {
        let config = self.config.clone().ok_or("a case begins with its stack")?;
        let start = Time(self.now.nanos().saturating_sub(100_000_000));
        let answer = now_at_start(&config);
        self.timestamps = config.timestamps;
        let cut = source.iter().position(|word| word.contains('=')).unwrap_or(source.len());
        let mut ours = Connection::connect(config.clone(), flow(), OUR_FIRST, source_of(&source[..cut])?);
        let syn = ours.poll_transmit(start).expect("it opens");
        let syn = Segment::read(&syn).expect("we sent it");
        self.echo = syn.timestamps.map_or(0, |(value, _)| value);
        self.ours = Some(ours);
        let mss = option(source, "mss=").unwrap_or(1460);
        self.window = option(source, "win=").unwrap_or(65_535) as u16;
        let ecn = if answer { TcpFlags::ECE } else { 0 };
        let segment = Segment {
            seq: PEER_FIRST,
            ack: OUR_FIRST + 1,
            flags: TcpFlags::SYN | TcpFlags::ACK | ecn,
            window: self.window,
            mss: Some(mss as u16),
            window_scale: config.window_scaling.then_some(0),
            sack_permitted: config.sack,
            timestamps: config.timestamps.then(|| (self.stamp(), self.echo)),
            ..Segment::default()
        };
        (self.seq, self.ack) = (1, 1);
        self.give(&segment.packet(0, flow().reversed(), &[]));
        Ok(())
    }

    fn segment(&self, flags: &str, seq: u32, length: u32, fields: &[&str]) -> Outcome<Segment> {
        let mut segment = Segment {
            seq: PEER_FIRST + seq,
            ack: OUR_FIRST + self.ack,
            window: self.window,
            payload: length,
            timestamps: self.timestamps.then(|| (self.stamp(), self.echo)),
            ..Segment::default()
        };
        for flag in flags.chars() {
            segment.flags |= match flag {
                'S' => TcpFlags::SYN,
                'F' => TcpFlags::FIN,
                'R' => TcpFlags::RST,
                'P' => TcpFlags::PSH,
                '.' => TcpFlags::ACK,
                'E' => TcpFlags::ECE,
                'W' => TcpFlags::CWR,
                '-' => 0,
                other => return Err(format!("'{other}' is not a flag")),
            };
        }
        let mut fields = fields.iter();
        while let Some(&field) = fields.next() {
            let mut next = || fields.next().copied().ok_or_else(|| format!("'{field}' lacks its value"));
            match field {
                "at" => segment.seq = PEER_FIRST + number(next()?)?,
                "ack" => segment.ack = OUR_FIRST + number(next()?)?,
                "win" => segment.window = number(next()?)? as u16,
                "mss" => segment.mss = Some(number(next()?)? as u16),
                "ws" => segment.window_scale = Some(number(next()?)? as u8),
                "sackok" => segment.sack_permitted = true,
                "nots" => segment.timestamps = None,
                "ts" => segment.timestamps = Some((number(next()?)?, number(next()?)?)),
                "sack" => segment.sack = blocks(next()?)?,
                "ece" => segment.flags |= TcpFlags::ECE,
                "cwr" => segment.flags |= TcpFlags::CWR,
                "fin" => segment.flags |= TcpFlags::FIN,
                "ce" => segment.ecn = Ecn::Experienced,
                "ect" => segment.ecn = Ecn::Capable,
                "ae" => segment.marks |= 0x01,
                "accecn0" | "accecn1" => segment.accurate = Some(counters(field == "accecn1", next()?)?),
                "eln" => segment.marks |= 0x08,
                "fast" => segment.marks |= 0x04,
                "ackmark" => segment.marks |= 0x02,
                "peerwin" => segment.peer_window = Some(number(next()?)? as u16),
                "pulse" => {
                    segment.pulse = Some(Pulse { on: true, w: number(next()?)? as u16, a: number(next()?)? as u8 })
                }
                "request" => segment.request = Some(number(next()?)? as u8),
                "damaged" => {}
                _ => return Err(format!("'{field}' is not a field of a segment")),
            }
        }
        Ok(segment)
    }

    fn inject(&mut self, segment: Segment, fields: &[&str]) -> Outcome<()> {
        let mut packet = segment.packet(0, flow().reversed(), &[]);
        if fields.contains(&"damaged") {
            packet.damage_checksum();
        } else {
            self.window = segment.window;
            if segment.has(TcpFlags::ACK) && !segment.has(TcpFlags::RST) {
                self.ack = (segment.ack - OUR_FIRST) as u32;
            }
        }
        if self.ours.is_none() {
            let source = self.waiting.clone().ok_or("nobody can take a segment")?;
            let config = self.config.clone().ok_or("a case begins with its stack")?;
            self.ours = Connection::accept(config, flow(), OUR_FIRST, source, &packet);
        } else {
            self.give(&packet);
        }
        self.collect(true);
        Ok(())
    }

    fn give(&mut self, packet: &Packet) {
        let now = self.now;
        let Some(ours) = self.ours.as_mut() else { return };
        ours.on_packet(now, packet);
        ours.read().for_each(drop);
    }

    /// Writes down all that is sent now.
    fn collect(&mut self, keep: bool) {
        let now = self.now;
        for sent in 0.. {
            assert!(sent < 1000, "it sends without end:\n{}", self.transcript);
            let Some(packet) = self.ours.as_mut().and_then(|ours| ours.poll_transmit(now)) else { break };
            let segment = Segment::read(&packet).expect("what is sent has a right checksum");
            self.echo = segment.timestamps.map_or(self.echo, |(value, _)| value);
            if keep {
                let text = show(&segment);
                self.write(&format!("> {text}"));
            }
        }
    }

    fn answer(&mut self, keys: &[&str]) -> Outcome<String> {
        let mut answer = "?".to_owned();
        for key in keys {
            let key = key.split('=').next().unwrap_or(key);
            let sample = self.ours()?.samples().to_vec();
            let ours = self.ours()?;
            let counts = ours.counts();
            let value = match key {
                "state" => format!("{:?}", ours.state()),
                "end" => ours.end().map_or("none".to_owned(), |end| format!("{end:?}")),
                "acked" => ours.acknowledged().to_string(),
                "d" => ours.segments_per_ack().to_string(),
                "refused" => counts.refused.to_string(),
                "timeouts" => counts.timeouts.to_string(),
                "fast" => counts.fast_retransmits.to_string(),
                "again" => counts.retransmitted.to_string(),
                "dups" => counts.duplicate_acks.to_string(),
                "burst" => ours.longest_burst().to_string(),
                // The sender as its last sample shows it: windows in bytes, times in seconds.
                "last" => sample.last().map_or("none".to_owned(), |last| {
                    let ssthresh = last.ssthresh.map_or("none".to_owned(), |ssthresh| format!("{ssthresh:.0}"));
                    format!(
                        "{}/cwnd:{:.0}/ssthresh:{ssthresh}/rto:{}",
                        last.event.name(),
                        last.cwnd,
                        last.rto.as_secs_f64()
                    )
                }),
                _ => return Err(format!("'{key}' cannot be asked")),
            };
            let _ = write!(answer, " {key}={value}");
        }
        Ok(answer)
    }

    fn stamp(&self) -> u32 {
        1000 + (self.now.nanos() / 1_000_000) as u32
    }

    fn write(&mut self, text: &str) {
        let _ = writeln!(self.transcript, "{:.3} {text}", self.now.seconds());
    }
}

fn now_at_start(config: &Config) -> bool {
    config.ecn != backchannel_stacks::config::EcnMode::Off
}

fn number(text: &str) -> Outcome<u32> {
    text.parse().map_err(|_| format!("'{text}' is not a number"))
}

fn option(words: &[&str], name: &str) -> Option<u32> {
    words.iter().find_map(|word| word.strip_prefix(name)?.parse().ok())
}

fn blocks(text: &str) -> Outcome<SackBlocks> {
    let pair = |pair: &str| {
        let (start, end) = pair.split_once('-').ok_or("a block is start-end")?;
        Ok((OUR_FIRST + number(start)?, OUR_FIRST + number(end)?))
    };
    text.split(',').map(pair).collect()
}

/// The option of Accurate ECN: up to three fields, separated by commas.
fn counters(is_order_1: bool, text: &str) -> Outcome<AccurateOption> {
    let mut option = AccurateOption { is_order_1, ..AccurateOption::default() };
    for field in text.split(',') {
        let at = usize::from(option.count);
        *option.fields.get_mut(at).ok_or("the option has up to three fields")? = number(field)?;
        option.count += 1;
    }
    Ok(option)
}

fn source_of(words: &[&str]) -> Outcome<Source> {
    match *words {
        ["silent"] => Ok(Source::silent()),
        ["endless"] => Ok(Source::new(Content::Zeros, None)),
        [bytes] => Ok(Source::new(Content::Zeros, Some(u64::from(number(bytes)?)))),
        _ => Err("a source is a number of bytes, 'endless' or 'silent'".to_owned()),
    }
}

fn parse_options(words: &[&str]) -> Outcome<Options> {
    let one = |word: &&str| {
        let (name, value) = word.split_once('=').ok_or_else(|| format!("'{word}' is not OPTION=VALUE"))?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
        Ok((name.to_owned(), value))
    };
    words.iter().map(one).collect()
}

/// A segment of ours in the words of the scripts; numbers are offsets from the first ones.
fn show(segment: &Segment) -> String {
    let seq = (segment.seq - OUR_FIRST) as u32;
    let letters = [
        (TcpFlags::SYN, 'S'),
        (TcpFlags::FIN, 'F'),
        (TcpFlags::RST, 'R'),
        (TcpFlags::PSH, 'P'),
        (TcpFlags::ECE, 'E'),
        (TcpFlags::CWR, 'W'),
        (TcpFlags::ACK, '.'),
    ];
    let flags: String = letters.into_iter().filter(|&(flag, _)| segment.has(flag)).map(|(_, letter)| letter).collect();
    let mut text = format!("{flags} {seq}:{}", seq.wrapping_add(segment.payload));
    if segment.has(TcpFlags::ACK) {
        let _ = write!(text, " ack {}", (segment.ack - PEER_FIRST) as u32);
    }
    let _ = write!(text, " win {}", segment.window);
    if let Some(mss) = segment.mss {
        let _ = write!(text, " mss {mss}");
    }
    if let Some(shift) = segment.window_scale {
        let _ = write!(text, " ws {shift}");
    }
    if segment.sack_permitted {
        text.push_str(" sackok");
    }
    if let Some((value, echo)) = segment.timestamps {
        let _ = write!(text, " ts {value} {echo}");
    }
    if !segment.sack.is_empty() {
        let pair = |&(start, end): &(SeqNumber, SeqNumber)| format!("{}-{}", start - PEER_FIRST, end - PEER_FIRST);
        let _ = write!(text, " sack {}", segment.sack.iter().map(pair).collect::<Vec<_>>().join(","));
    }
    if let Some(window) = segment.peer_window {
        let _ = write!(text, " peerwin {window}");
    }
    if let Some(pulse) = segment.pulse {
        let _ = write!(text, " pulse {} {} {}", if pulse.on { "on" } else { "off" }, pulse.w, pulse.a);
    }
    if let Some(request) = segment.request {
        let _ = write!(text, " request {request}");
    }
    if let Some(option) = segment.accurate {
        let fields: Vec<_> = option.fields[..usize::from(option.count)].iter().map(u32::to_string).collect();
        let _ = write!(text, " accecn{} {}", u8::from(option.is_order_1), fields.join(","));
    }
    for (bit, name) in [(0x08, "eln"), (0x04, "fast"), (0x02, "ackmark"), (0x01, "ae")] {
        if segment.marks & bit != 0 {
            let _ = write!(text, " {name}");
        }
    }
    match segment.ecn {
        Ecn::NotCapable => {}
        Ecn::Capable => text.push_str(" ect"),
        Ecn::LowLatency => text.push_str(" ect1"),
        Ecn::Experienced => text.push_str(" ce"),
    }
    text
}

/// A case: its title, which names the rule, and its lines.
struct Case<'a> {
    title: &'a str,
    line: usize,
    body: Vec<&'a str>,
}

fn cases(text: &str) -> (String, Vec<Case<'_>>) {
    let mut head = String::new();
    let mut cases: Vec<Case> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        match (line.strip_prefix("== "), cases.last_mut()) {
            (Some(title), _) => cases.push(Case { title, line: number + 1, body: Vec::new() }),
            (None, Some(case)) if !line.trim().is_empty() => case.body.push(line.trim_end()),
            (None, Some(_)) => {}
            (None, None) => {
                let _ = writeln!(head, "{line}");
            }
        }
    }
    (head, cases)
}

fn transcript(case: &Case) -> Outcome<String> {
    let mut run = Run::new();
    for line in &case.body {
        run.line(line).map_err(|why| format!("{line}: {why}"))?;
    }
    Ok(run.transcript)
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let entries =
        std::fs::read_dir(folder).expect("the folder of scripts").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "txt")).collect();
    files.sort();
    files
}

#[test]
fn every_script_goes_as_it_is_written() {
    let bless = std::env::var_os("BLESS").is_some();
    let (mut count, mut wrong) = (0, Vec::new());
    for file in files() {
        let text = std::fs::read_to_string(&file).expect("a text file");
        let (mut blessed, cases) = cases(&text);
        for case in cases {
            count += 1;
            let place = format!("{}:{} {}", file.file_name().expect("a name").to_string_lossy(), case.line, case.title);
            assert!(case.title.contains('|'), "{place}: a title names the rule it checks after a '|'");
            let got = transcript(&case).unwrap_or_else(|why| panic!("{place}: {why}"));
            let _ = write!(blessed, "== {}\n{got}\n", case.title);
            if got.lines().ne(case.body.iter().copied()) {
                let first = got.lines().zip(case.body.iter().chain(std::iter::repeat(&""))).find(|(a, b)| a != *b);
                wrong.push(format!("{place}\n  first difference (sent, written): {first:?}\n{got}"));
            }
        }
        if bless {
            std::fs::write(&file, blessed.trim_end().to_owned() + "\n").expect("the file can be written");
        }
    }
    assert!(bless || wrong.is_empty(), "{} of {count} scripts differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count >= 120, "{count} scripts");
}
