"""A corpus of bad files and the whole of what is said about each."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.language import source
from experiments.language.campaign import expand
from experiments.language.problems import CampaignError

GOOD = """\
name: t
network:
  topology: line
  forward:
    rate: 1 Mbit/s
    delay: 5 ms
    queue: {policy: droptail, limit: 10 packets}
workload:
  - {name: f, from: left, to: right}
duration: 5 s
"""
FIELDS = (
    "name, title, description, backend, network, stack, workload, duration, warm_up, capture, fidelity, artefact, "
    "measures, split, figure, repetitions, seed, sweep, include, defaults, backends"
)


def told(text: str, *overrides: str) -> list[str]:
    with pytest.raises(CampaignError) as caught:
        expand(source.parse("c.yaml", text), overrides)
    return str(caught.value).split("\n")


CORPUS = {
    "unknown field": (
        GOOD.replace("duration:", "duratoin:"),
        [
            "c.yaml: duration: this field is missing",
            f"c.yaml:10: duratoin: there is no field 'duratoin' (did you mean 'duration'?); there are: {FIELDS}",
        ],
    ),
    "a flow by the name of the links' telemetry": (
        GOOD.replace("name: f", "name: links"),
        [
            "c.yaml:9: workload.0.name: no flow can be called 'links': the telemetry of the links is, in every run",
        ],
    ),
    "negative rate": (
        GOOD.replace("1 Mbit/s", "-1 Mbit/s"),
        ["c.yaml:5: network.forward.rate: '-1 Mbit/s' is out of range: it must be greater than 0"],
    ),
    "rate of no whole bit": (
        GOOD.replace("1 Mbit/s", "0.1 bit/s"),
        ["c.yaml:5: network.forward.rate: '0.1 bit/s' is out of range: it must be at least 1"],
    ),
    "wrong unit": (
        GOOD.replace("5 ms", "5 kbit/s"),
        [
            "c.yaml:6: network.forward.delay: 'kbit/s' measures rate, and this is a time: "
            "its units are s, ms, us, ns, min, h"
        ],
    ),
    "no such policy": (
        GOOD.replace("droptail", "dropttail"),
        [
            "c.yaml:7: network.forward.queue.policy: there is no policy 'dropttail' (did you mean 'droptail'?); "
            "there are: "
        ],
    ),
    "mistakes of one mechanism": (
        GOOD + "stack:\n  name: reno\n  sak: true\n  ecn: 3\n",
        [
            "c.yaml:13: stack.sak: there is no option of stack reno 'sak' (did you mean 'sack'?); there are: ",
            "c.yaml:14: stack.ecn: '3' is neither true nor false",
        ],
    ),
    "no such host": (
        GOOD.replace("to: right", "to: rigth"),
        ["c.yaml:9: workload.0.to: there is no host 'rigth' (did you mean 'right'?); there are: left, right"],
    ),
    "flow that starts too late": (
        GOOD.replace("to: right", "to: right, start: 6 s"),
        ["c.yaml:9: workload.0.start: flow f may start after the run has ended"],
    ),
    "same key twice": (GOOD + "name: u\n", ["c.yaml:11: this is no YAML: found duplicate key"]),
    "no mapping": ("- 1\n", ["c.yaml:1: a campaign is a mapping of fields, such as 'name: quickstart'"]),
    "swept value": (
        GOOD + "sweep:\n  network.forward.rate:\n    - 1 Mbit/s\n    - 2 Mb\n",
        ["c.yaml:14: network.forward.rate: 'Mb' is no unit of a rate"],
    ),
    "swept field": (
        GOOD + "sweep:\n  duration.x: [1]\n  repetitions: [1, 2]\n  workload.g.size: [1 MB]\n",
        [
            "c.yaml:12: duration.x: duration is '5 s', which has no fields",
            "c.yaml:13: repetitions: 'repetitions' belongs to the campaign as a whole and cannot be swept",
            "c.yaml:14: workload.g.size: there is no entry 'g'; there are: f, 0",
        ],
    ),
    "sweep and file": (
        GOOD.replace("5 ms", "5") + "sweep:\n  zip: {stack: [reno, cubic], duration: [1 s]}\n",
        [
            "c.yaml:6: network.forward.delay: '5' has no unit: a time is written like 5 ms",
            "c.yaml:12: sweep.zip: zipped axes must be of equal length: stack has 2, duration has 1",
        ],
    ),
    "exclusions": (
        GOOD + "sweep:\n  stack: [reno, cubic]\n  exclude:\n    - {stack: cubik}\n    - {stak: reno}\n",
        [
            "c.yaml:14: sweep.exclude.0.stack: there is no value 'cubik' (did you mean 'cubic'?); "
            "there are: reno, cubic",
            "c.yaml:15: sweep.exclude.1.stak: there is no swept field 'stak' (did you mean 'stack'?); there are: stack",
        ],
    ),
    "nothing left": (
        GOOD + "sweep:\n  stack: [reno]\n  exclude: [{stack: reno}]\n",
        ["c.yaml:13: sweep.exclude: nothing is left: every point is excluded"],
    ),
    "same axis twice": (
        GOOD + "sweep:\n  stack: [reno]\n  stack.name: [cubic]\n",
        ["c.yaml:13: sweep.stack.name: 'stack.name' is swept twice"],
    ),
    "too many runs": (
        GOOD + "repetitions: 1000000000\n",
        ["c.yaml:11: repetitions: this makes more than 100000 runs, the most a campaign can have"],
    ),
}


@pytest.mark.parametrize("case", CORPUS)
def test_what_is_said(case: str) -> None:
    text, expected = CORPUS[case]
    lines = told(text)
    assert len(lines) == len(expected), lines
    for line, beginning in zip(lines, expected, strict=True):
        assert line.startswith(beginning)


def test_an_override_names_its_option() -> None:
    lines = told(GOOD, "network.forward.rate=9 kb", "stack=cubc", "duration", "workload.g.size=1 MB")
    assert [line.split(": ")[0] for line in lines] == [
        "--set", "--set network.forward.rate=9 kb", "--set stack=cubc", "--set",
    ]  # fmt: skip


def test_keys_that_were_merged_in_have_a_line_or_none() -> None:
    lines = told("base: &b {name: t}\n<<: *b\nduration: 5 s\n")
    assert any(line.startswith("c.yaml:1: base: there is no field 'base'") for line in lines)


@settings(deadline=None, max_examples=200)
@given(st.integers(0, len(GOOD) - 1), st.integers(0, 6), st.text("abc:{}[]-&*!<> \n'\"0159,|%@`é", max_size=6))
def test_a_damaged_file_is_good_or_has_problems(at: int, removed: int, inserted: str) -> None:
    text = GOOD[:at] + inserted + GOOD[at + removed :]
    # Anything but a CampaignError is a failure.
    with suppress(CampaignError):
        expand(source.parse("c.yaml", text))
