//! A recorded loss trace: one digit per packet, 0 for an arrival and 1 for a loss. Blanks, line ends and comments (from
//! `#` to the end of the line) are ignored. After its end the trace starts again, unless `repeat` is off.

use backchannel_core::options;
use backchannel_core::options::{CheckedOptions, ABSENT, REQUIRED};
use backchannel_core::packet::Packet;
use backchannel_core::registry::{Disorder, Entry};
use backchannel_core::rng::RunRng;
use backchannel_core::time::Time;
use backchannel_core::Error;

use super::{ErrorModel, Hit, Outcome};

options! {
    /// Options of the model.
    struct Parameters {
        trace: String = REQUIRED, [File]
            "file with a digit per packet, 0 for an arrival and 1 for a loss; # starts a comment";
        repeat: bool = true, [Flag]
            "start the trace again after its end; otherwise nothing is lost from there on";
        offset_packets: Option<usize> = ABSENT, [Packets 0]
            "packet of the trace with which the run starts; absent: at its start";
        ... hit: Hit;
    }
}

pub(super) static ENTRY: Entry =
    Entry::error_model("recorded", "losses from a recorded trace: one digit per packet, 1 for a loss", Disorder::None)
        .source("docs/links.md")
        .options(Parameters::PARAMS);

pub(super) fn build(checked: &CheckedOptions<'_>, _: RunRng) -> Result<Box<dyn ErrorModel>, Error> {
    let Parameters { trace, repeat, offset_packets, hit } = Parameters::read(checked);
    let lost = parse(&trace)?;
    let next = offset_packets.unwrap_or(0) % lost.len();
    Ok(Box::new(Recorded { lost, repeats: repeat, effect: hit.effect.into(), next }))
}

fn parse(text: &str) -> Result<Vec<bool>, Error> {
    let mut lost = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for digit in line.split('#').next().unwrap_or_default().chars().filter(|digit| !digit.is_whitespace()) {
            lost.push(match digit {
                '0' => false,
                '1' => true,
                other => {
                    return Err(format!("trace: line {} has '{other}'; only 0 and 1 are allowed", number + 1).into())
                }
            });
        }
    }
    if lost.is_empty() {
        return Err("trace: it is empty".into());
    }
    Ok(lost)
}

struct Recorded {
    lost: Vec<bool>,
    repeats: bool,
    effect: Outcome,
    next: usize,
}

impl ErrorModel for Recorded {
    fn apply(&mut self, _: Time, _: &Packet) -> Outcome {
        if self.next == self.lost.len() {
            if !self.repeats {
                return Outcome::Intact;
            }
            self.next = 0;
        }
        self.next += 1;
        if self.lost[self.next - 1] {
            self.effect
        } else {
            Outcome::Intact
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::build::data;
    use serde_json::json;

    fn outcomes(options: serde_json::Value, packets: usize) -> Result<Vec<Outcome>, Error> {
        let options = serde_json::from_value(options).unwrap();
        let mut model = build(&CheckedOptions::check(&ENTRY, &options)?, backchannel_core::rng::stream(1, "x"))?;
        Ok((0..packets).map(|_| model.apply(Time::ZERO, &data(1, 10))).collect())
    }

    #[test]
    fn golden_trace_digit_for_packet_and_again_from_the_start() {
        let (ok, lost) = (Outcome::Intact, Outcome::Lost);
        let trace = "# a trace\n01 1\n0 # the end\n";
        assert_eq!(outcomes(json!({"trace": trace}), 9).unwrap(), [ok, lost, lost, ok, ok, lost, lost, ok, ok]);
        assert_eq!(outcomes(json!({"trace": trace, "offset_packets": 6}), 3).unwrap(), [lost, ok, ok]);
        let once = json!({"trace": trace, "repeat": false, "effect": "damage"});
        let damaged = Outcome::Damaged;
        assert_eq!(outcomes(once, 8).unwrap(), [ok, damaged, damaged, ok, ok, ok, ok, ok]);
    }

    #[test]
    fn invalid_traces_are_rejected_with_their_line() {
        assert!(outcomes(json!({"trace": "0\n2\n"}), 1).unwrap_err().to_string().contains("line 2 has '2'"));
        assert!(outcomes(json!({"trace": "# nothing"}), 1).unwrap_err().to_string().contains("it is empty"));
        assert!(outcomes(json!({}), 1).unwrap_err().to_string().contains("trace"));
    }
}
