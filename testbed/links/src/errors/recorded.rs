//! A recorded loss trace: one digit per packet, 0 for an arrival and 1 for a loss. Blanks, line ends and comments (from `#` to the
//! end of the line) are ignored. After its end the trace starts again, unless `repeat` is off.

use backchannel_core::packet::Packet;
use backchannel_core::registry::{CheckedOptions, Entry, Param, Preset, Random, Unit, MUST};
use backchannel_core::rng::RunRng;
use backchannel_core::time::Time;

use super::{effect, ErrorModel, Fate, EFFECT};

pub(super) static ENTRY: Entry = Entry {
    kind: "error-model",
    name: "recorded",
    summary: "losses from a recorded trace: one digit per packet, 1 for a loss",
    source: "docs/links.md",
    random: Random::Never,
    params: &[
        Param::new(
            "trace",
            Unit::File,
            Preset::Required(MUST),
            "file with a digit per packet, 0 for an arrival and 1 for a loss; # starts a comment",
        ),
        Param::new(
            "repeat",
            Unit::Flag,
            Preset::Flag(true),
            "start the trace again after its end; otherwise nothing is lost from there on",
        ),
        Param::new(
            "offset_packets",
            Unit::Packets,
            Preset::Absent,
            "packet of the trace with which the run starts; absent: at its start",
        )
        .at_least(0.0),
        EFFECT,
    ],
};

pub(super) fn build(checked: &CheckedOptions<'_>, _: RunRng) -> Result<Box<dyn ErrorModel>, String> {
    let lost = parse(checked.text("trace").unwrap_or_default())?;
    let next = checked.count("offset_packets").map_or(0, |packets| packets as usize % lost.len());
    Ok(Box::new(Recorded { lost, repeats: checked.flag("repeat"), effect: effect(checked), next }))
}

fn parse(text: &str) -> Result<Vec<bool>, String> {
    let mut lost = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for digit in line.split('#').next().unwrap_or_default().chars().filter(|digit| !digit.is_whitespace()) {
            lost.push(match digit {
                '0' => false,
                '1' => true,
                other => return Err(format!("trace: line {} has '{other}'; only 0 and 1 are allowed", number + 1)),
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
    effect: Fate,
    next: usize,
}

impl ErrorModel for Recorded {
    fn judge(&mut self, _: Time, _: &Packet) -> Fate {
        if self.next == self.lost.len() {
            if !self.repeats {
                return Fate::Intact;
            }
            self.next = 0;
        }
        self.next += 1;
        if self.lost[self.next - 1] {
            self.effect
        } else {
            Fate::Intact
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backchannel_core::packet::build::data;
    use backchannel_core::scenario::Named;
    use serde_json::json;

    fn fates(options: serde_json::Value, packets: usize) -> Result<Vec<Fate>, String> {
        let named: Named = serde_json::from_value(json!({"name": "recorded", "options": options})).unwrap();
        let mut model = super::super::build(&named, backchannel_core::rng::stream(1, "x"))?;
        Ok((0..packets).map(|_| model.judge(Time::ZERO, &data(1, 10))).collect())
    }

    #[test]
    fn golden_trace_digit_for_packet_and_again_from_the_start() {
        let (ok, lost) = (Fate::Intact, Fate::Lost);
        let trace = "# a trace\n01 1\n0 # the end\n";
        assert_eq!(fates(json!({"trace": trace}), 9).unwrap(), [ok, lost, lost, ok, ok, lost, lost, ok, ok]);
        assert_eq!(fates(json!({"trace": trace, "offset_packets": 6}), 3).unwrap(), [lost, ok, ok]);
        let once = json!({"trace": trace, "repeat": false, "effect": "damage"});
        let damaged = Fate::Damaged;
        assert_eq!(fates(once, 8).unwrap(), [ok, damaged, damaged, ok, ok, ok, ok, ok]);
    }

    #[test]
    fn invalid_traces_are_rejected_with_their_line() {
        assert!(fates(json!({"trace": "0\n2\n"}), 1).unwrap_err().contains("line 2 has '2'"));
        assert!(fates(json!({"trace": "# nothing"}), 1).unwrap_err().contains("it is empty"));
        assert!(fates(json!({}), 1).unwrap_err().contains("trace"));
    }
}
