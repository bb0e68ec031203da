"""Invalid campaign files and all messages about each."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
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
    "name, title, description, backend, kernel, network, stack, ip, workload, duration, warm_up, capture, fidelity, "
    "variation, artefact, measures, split, figure, repetitions, seed, sweep, include, defaults, backends"
)


def messages(text: str, *overrides: str) -> list[str]:
    with pytest.raises(CampaignError) as caught:
        expand(source.parse("c.yaml", text), overrides)
    return str(caught.value).split("\n")


CORPUS = {
    "unknown field": (
        GOOD.replace("duration:", "duratoin:"),
        [
            "c.yaml:1: duration: this field is missing; add it, such as 'duration: 30 s'",
            f"c.yaml:10: duratoin: there is no field 'duratoin' (did you mean 'duration'?); there are: {FIELDS}",
        ],
    ),
    "a flow by the name of the links' telemetry": (
        GOOD.replace("name: f", "name: links"),
        [
            "c.yaml:9: workload.0.name: 'links' is reserved for the telemetry of the links; choose another name",
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
            "c.yaml:6: network.forward.delay: 'kbit/s' is a unit of rate, but this is a time; "
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
            "c.yaml:14: stack.ecn: there is no choice '3'; there are: true, false, accept, accecn,",
        ],
    ),
    "no such host": (
        GOOD.replace("to: right", "to: rigth"),
        ["c.yaml:9: workload.0.to: there is no host 'rigth' (did you mean 'right'?); there are: left, right"],
    ),
    "flow that starts too late": (
        GOOD.replace("to: right", "to: right, start: 6 s"),
        ["c.yaml:9: workload.0.start: flow f may start at 6 s, but the run ends at 5 s"],
    ),
    "no such version of IP": (
        GOOD + "ip: 5\n",
        ["c.yaml:11: ip: '5' is not one of 4, 6 or 'both'"],
    ),
    "packets without room for IPv6": (
        GOOD + "backend: sim\nip: 6\nstack: {name: newreno, packet: 100 B}\n",
        [
            "c.yaml:12: ip: packets of 100 B (stack newreno, 'packet') have no room for IPv6's header and data; they "
            "need at least 108 B"
        ],
    ),
    "a datagram shorter than its headers": (
        GOOD.replace("to: right", "to: right, kind: cbr, options: {rate: 10 kbit/s, packet: 48 B}")
        + "backend: sim\nstack: newreno\nip: 6\n",
        ["c.yaml:9: workload.0.options.packet: must be more than 48 B over IPv6, the headers of IPv6 and UDP"],
    ),
    "same key twice": (GOOD + "name: u\n", ["c.yaml:11: invalid YAML: found duplicate key"]),
    "a list of fields": ("- 1\n", ["c.yaml:1: the file does not contain a mapping of fields; it needs fields such as"]),
    "empty file": ("# nothing yet\n", ["c.yaml:1: the file is empty; it needs fields such as 'name: quickstart'"]),
    "syntax error": (
        GOOD.replace("    delay", "   delay"),
        ["c.yaml:6: invalid YAML: expected <block end>, but found '<block mapping start>'; align this line with"],
    ),
    "tabulator": (
        GOOD.replace("    delay", "\tdelay"),
        ["c.yaml:6: invalid YAML: found character '\\t' that cannot start any token; indent with spaces"],
    ),
    "flow without an end": (
        GOOD.replace(", to: right", ""),
        ["c.yaml:9: workload.0.to: this field is missing; add it, such as 'to: client'"],
    ),
    "list where a mapping is expected": (
        "name: t\nnetwork: {topology: line, forward: [1 Mbit/s]}\nworkload: {name: f}\nduration: 5 s\n",
        [
            "c.yaml:2: network.forward: expected a mapping such as 'forward: {rate: 1 Mbit/s, delay: 10 ms}', "
            "found a list of 1",
            "c.yaml:3: workload: expected a list such as 'workload: [{name: download, from: left, to: right}]', "
            "found a mapping with name",
        ],
    ),
    "two links of a name": (
        "name: t\nnetwork:\n  nodes: [{name: a}, {name: b}]\n  links:\n"
        "    - {name: x, ends: [a, b], forward: {rate: 1 Mbit/s}}\n"
        "    - {name: x, ends: [a, c], forward: {rate: 1 Mbit/s}}\n"
        "workload: [{name: f, from: a, to: b}]\nduration: 5 s\n",
        [
            "c.yaml:6: network.links.1.ends.1: there is no node 'c'; there are: a, b",
            "c.yaml:6: network.links.1.name: two links have the name 'x'; rename one",
        ],
    ),
    "values of the wrong type": (
        GOOD.replace("name: t", "name: 3").replace(
            "    delay: 5 ms", "    delay: [5]\n    slots: 900\n    framing: slp"
        )
        + "repetitions: 2.5\nstack: [reno]\n",
        [
            "c.yaml:1: name: expected text, found '3'; quote it to use it as text",
            "c.yaml:6: network.forward.delay: expected a time such as 5 ms",
            "c.yaml:7: network.forward.slots: '900' is out of range: it must be at most 256",
            "c.yaml:8: network.forward.framing: 'slp' is not one of 'none', 'slip' or 'ppp'",
            "c.yaml:13: repetitions: '2.5' is not a whole number",
            "c.yaml:14: stack: expected the name of a stack, or a mapping with 'name' and its options",
        ],
    ),
    "names": (
        GOOD.replace("name: t", "name: My Test").replace("name: f", f"name: {41 * 'f'}"),
        [
            "c.yaml:1: name: 'My Test' is not a valid name; use lower-case letters, digits and hyphens, starting",
            f"c.yaml:9: workload.0.name: '{41 * 'f'}' is too long: at most 40 characters are allowed",
        ],
    ),
    "swept value": (
        GOOD + "sweep:\n  network.forward.rate:\n    - 1 Mbit/s\n    - 2 Mb\n",
        ["c.yaml:14: network.forward.rate: 'Mb' is not a unit of a rate (did you mean 'Mbit/s'?)"],
    ),
    "swept field": (
        GOOD + "sweep:\n  duration.x: [1]\n  repetitions: [1, 2]\n  workload.g.size: [1 MB]\n",
        [
            "c.yaml:12: duration.x: duration is '5 s', which has no fields",
            "c.yaml:13: repetitions: 'repetitions' belongs to the campaign as a whole and cannot be swept",
            "c.yaml:14: workload.g.size: there is no entry 'g'; there are: f, 0",
        ],
    ),
    "swept field that does not exist": (
        GOOD + "sweep:\n  network.forward.rte: [1 Mbit/s]\n  netwrk.mobiles: [1]\n",
        [
            "c.yaml:12: network.forward.rte: there is no field 'rte' (did you mean 'rate'?); there are: rate, delay",
            f"c.yaml:13: netwrk: there is no field 'netwrk' (did you mean 'network'?); there are: {FIELDS}",
        ],
    ),
    "field swept under two names": (
        GOOD + "sweep:\n  workload.f.size: [1 MB]\n  workload.0.size: [2 MB]\n",
        ["c.yaml:13: workload.0.size: 'workload.0.size' is swept twice; remove one of the axes"],
    ),
    "sweep and file": (
        GOOD.replace("5 ms", "5") + "sweep:\n  zip: {stack: [reno, cubic], duration: [1 s]}\n",
        [
            "c.yaml:6: network.forward.delay: '5' has no unit; write a time like 5 ms",
            "c.yaml:12: sweep.zip: zipped axes need the same number of values: stack has 2, duration has 1",
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
        ["c.yaml:13: sweep.exclude: every point is excluded; remove a rule"],
    ),
    "same axis twice": (
        GOOD + "sweep:\n  stack: [reno]\n  stack.name: [cubic]\n",
        ["c.yaml:13: sweep.stack.name: 'stack.name' is swept twice; remove one of the axes"],
    ),
    "too many runs": (
        GOOD + "repetitions: 1000000000\n",
        ["c.yaml:11: repetitions: the sweep and the repetitions make more than 100000 runs, the maximum"],
    ),
}


@pytest.mark.parametrize("case", CORPUS)
def test_messages(case: str) -> None:
    text, expected = CORPUS[case]
    lines = messages(text)
    assert len(lines) == len(expected), lines
    for line, beginning in zip(lines, expected, strict=True):
        assert line.startswith(beginning)


def test_an_override_names_its_option() -> None:
    lines = messages(GOOD, "network.forward.rate=9 kb", "stack=cubc", "duration", "workload.g.size=1 MB")
    assert [line.split(": ")[0] for line in lines] == [
        "--set", "--set network.forward.rate=9 kb", "--set stack=cubc", "--set",
    ]  # fmt: skip


def test_merged_keys_have_the_line_of_the_mapping_around_them() -> None:
    lines = messages("base: &b {name: t}\n<<: *b\nduration: 5 s\n")
    assert any(line.startswith("c.yaml:1: base: there is no field 'base'") for line in lines)


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 6), st.text("abc:{}[]-&*!<> \n'\"0159,|%@`é", max_size=6))
def test_a_damaged_file_is_good_or_has_problems(at: int, removed: int, inserted: str) -> None:
    text = GOOD[:at] + inserted + GOOD[at + removed :]
    # Anything but a CampaignError is a failure.
    with suppress(CampaignError):
        expand(source.parse("c.yaml", text))
