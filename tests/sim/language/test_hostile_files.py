"""Campaign files that are hostile or huge: a sentence with little memory, or a campaign whose runs are made lazily."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from experiments.language import campaign, sweep, yaml_text
from experiments.language.campaign import load
from experiments.language.measures import MAX_CHAIN
from experiments.language.problems import CampaignError
from testbed.units import number_of
from tests.support.command_line import backchannel

BASE = """name: small
network:
  topology: line
  forward: {rate: 1 Mbit/s, delay: 5 ms}
  reverse: {rate: 1 Mbit/s, delay: 5 ms}
workload:
  - {name: bulk, from: left, to: right}
stack: newreno
backend: sim
duration: 5 s
"""
#: Address space of the child; an idle one takes half of it.
MEMORY_BYTES = 1_500_000_000


def rate(value: str) -> str:
    return BASE.replace("1 Mbit/s", value, 1)


def trace(name: str) -> str:
    return BASE.replace("delay: 5 ms}", f"delay: 5 ms, errors: [{{model: recorded, trace: {name}}}]}}", 1)


def bomb(first: str, following: str) -> str:
    """Ten anchors, each with ten aliases of the one before."""
    lines = [f"a0: &a0 {first}"]
    for number in range(1, 10):
        aliases = ", ".join([f"*a{number - 1}"] * 10)
        lines.append(f"a{number}: &a{number} {following.format(aliases)}")
    return BASE + "\n".join(lines) + "\n"


def axes(*lengths: int) -> str:
    fields = ("seed", "network.forward.rate", "network.reverse.rate")
    lines = []
    for field, length in zip(fields, lengths, strict=False):
        unit = "" if field == "seed" else " kbit/s"
        lines.append(f"  {field}: [{', '.join(f'{number + 1}{unit}' for number in range(length))}]")
    return BASE + "sweep:\n" + "\n".join(lines) + "\n"


def chain(length: int) -> str:
    links = "".join(f"  m{number}: {{scale: m{number + 1}, by: 2}}\n" for number in range(length))
    return f"{BASE}measures:\n{links}  m{length}: {{metric: throughput}}\n"


DEEP = f"nested more than {yaml_text.MAX_DEPTH} deep"
VALUES = f"more than {yaml_text.MAX_VALUES} values once its aliases are written out"
LARGE = "is too large for a campaign file"
FILE = "is larger than 8 MiB"
POINTS = f"but a campaign has at most {sweep.MAX_POINTS}"
REFUSED = {
    "flow sequences, 100,000 deep": (BASE + "title: " + "[" * 100_000 + "]" * 100_000, DEEP),
    "flow mappings, 90,000 deep": (BASE + "title: " + "{a: " * 90_000 + "}" * 90_000, DEEP),
    "block sequences, 100,000 deep": (BASE + "title:\n  " + "- " * 100_000 + "x", DEEP),
    "block mappings, 900 deep": (BASE + "title:\n" + "".join(" " * n + "a:\n" for n in range(1, 900)), DEEP),
    "integer of 100,000 digits": (BASE + "seed: " + "9" * 100_000, "a number has at most 400 characters"),
    "rate of 100,000 digits": (rate("9" * 100_000 + " Mbit/s"), "999...' is out of range: a rate must be at most 2^62"),
    "merge key that refers to itself": (BASE + "title: &t {<<: *t}", "'*t' refers to a value that contains it"),
    "list that contains itself": (BASE + "title: &t [*t]", "'*t' refers to a value that contains it"),
    "python tag": (BASE + "title: !!python/object/apply:os.system [id]", ":os.system is not allowed"),
    "own tag": (BASE + "title: !mine x", "the tag !mine is not allowed"),
    "date that does not exist": (BASE + "title: 2026-99-99", "quote the value"),
    "list bomb": (bomb("[x, x, x, x, x, x, x, x, x, x]", "[{}]"), VALUES),
    "merge bomb": (bomb("{k: 1, l: 2, m: 3, n: 4}", "{{<<: [{}]}}"), VALUES),
    "exponent": (BASE.replace("5 s", "1e1000000 s"), "is not a time"),
    "exponent of a count": (BASE + "repetitions: 1e1000000", "is not a number"),
    "exponent in a text": (BASE + "repetitions: '1e999999'", "at most 2^62"),
    "negative exponent": (rate("1e-1000000 Mbit/s"), "it must be greater than 0"),
    "huge exponent": (rate("1e999999999999999999 Mbit/s"), "is not a rate"),
    "100,001 repetitions": (BASE + "repetitions: 100001", "more than 100000 runs"),
    "sweep of 100,250 points": (axes(401, 250), f"the axes make 100250 combinations, {POINTS}"),
    "20,000 points of 6 repetitions": (axes(200, 100) + "repetitions: 6", "more than 100000 runs"),
    "sweep of 10^9 points": (axes(1000, 1000, 1000), f"the axes make 1000000000 combinations, {POINTS}"),
    "axis of 100,000 values": (axes(100_000), LARGE),
    "axis of 10,001 values": (axes(10_001), f"the list has 10001 values, but an axis has at most {sweep.MAX_VALUES}"),
    "wrong in the last of 98,000 points": (axes(280, 350).replace("280 kbit/s", "280 ms"), "'ms' is a unit of time"),
    "invalid at every point": (axes(3000) + "duration: 5", "duplicate key"),
    "wrong at every point": (axes(3000).replace("5 s", "5 m"), "'m' is not a unit of a time"),
    "10 MB of keys": (BASE + "".join(f"key{number}: 1\n" for number in range(700_000)), FILE),
    "7 MB of keys": (BASE + "".join(f"key{number}: 1\n" for number in range(500_000)), LARGE),
    "7 MB of list": (BASE + "title: [" + "x, " * 2_000_000 + "x]", LARGE),
    "7 MB of text": (BASE + "title: " + "x" * 7_000_000, LARGE),
    "10 MB of comment": (BASE + "# " + "x" * 10_000_000, FILE),
    "endless trace": (trace("/dev/zero"), "/dev/zero is not a regular file"),
    "FIFO as trace": (trace("fifo"), "fifo is not a regular file"),
    "folder as trace": (trace("."), "is not a regular file"),
    "FIFO as included file": ("include: fifo\n" + BASE, "fifo is not a file"),
    "digits of another script": (rate("\u0661 Mbit/s"), "contains ARABIC-INDIC DIGIT ONE (U+0661)"),
    "no-break space": (rate("1\u00a0Mbit/s"), "contains NO-BREAK SPACE (U+00A0)"),
    "measure of itself": (BASE + "measures: {a: {scale: a, by: 2}}", "refers to itself: a -> a"),
    "measures in a circle": (BASE + "measures: {a: {scale: b, by: 2}, b: {sum: [a]}}", "refers to itself: a -> b -> a"),
    "chain of measures": (chain(2000), f"refers through more than {MAX_CHAIN} measures"),
    "NUL": (BASE + "title: \0", "invalid YAML"),
}  # fmt: skip
ACCEPTED = {
    "99,999 repetitions": (BASE + "repetitions: 99999", 99_999),
    "2,000 points of 50 repetitions": (axes(2000) + "repetitions: 50", 100_000),
    "5,000 points": (axes(100, 50), 5000),
    "7 MB of comment": (BASE + "# " + "x" * 7_000_000, 1),
    "chain of measures": (chain(MAX_CHAIN - 1), 1),
}  # fmt: skip


def validated(text: str, folder: Path) -> tuple[int, str]:
    """Status and output of `validate` in a child with little memory."""
    os.mkfifo(folder / "fifo")
    file = folder / "c.yaml"
    file.write_text(text + "\n")
    done = backchannel("validate", file, memory_bytes=MEMORY_BYTES)
    return done.returncode, done.stderr if done.returncode else done.stdout


@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_file_is_refused_with_a_sentence(name: str, tmp_path: Path) -> None:
    text, message = REFUSED[name]
    status, output = validated(text, tmp_path)
    assert status == 2, output[-2000:]
    assert message in output
    lines = output.splitlines()
    assert len(lines) <= 3
    assert max(map(len, lines)) < 400 + len(str(tmp_path))


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_huge_campaign_is_valid_without_its_runs(name: str, tmp_path: Path) -> None:
    text, runs = ACCEPTED[name]
    status, output = validated(text, tmp_path)
    assert status == 0, output[-2000:]
    assert output.splitlines()[-1].partition(", 1 warning")[0] == f"{tmp_path}/c.yaml: good, {number_of(runs, 'run')}"


def test_runs_are_made_when_they_are_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(axes(2, 3) + "repetitions: 4\n")
    plan = load(file)
    runs = list(plan.runs)
    assert [(run.point, run.repetition) for run in runs] == [(point, each) for point in range(6) for each in range(4)]
    assert len({run.id for run in runs}) == 24
    assert plan.runs[-1] is runs[-1] is plan.runs[23]
    assert plan.runs[4:9:2] == [runs[4], runs[6], runs[8]]
    scenarios = dict(plan.first_scenarios())
    assert list(scenarios) == [point.number for point in plan.points] == list(range(6))
    assert [scenario.links[0].forward.rate_bps for scenario in scenarios.values()] == [1000, 2000, 3000] * 2
    assert [point.parameters["network.forward.rate"] for point in plan.points[1:6:2]] == [
        "2 kbit/s",
        "1 kbit/s",
        "3 kbit/s",
    ]
    with pytest.raises(IndexError):
        plan.runs[24]


def last(base: str, field: str, good: str, bad: str) -> str:
    """700 good points, and a last one that is wrong."""
    seeds = ", ".join(map(str, range(700)))
    return f"{base}sweep:\n  seed: [{seeds}]\n  {field}: [{good}]\n  include: [{{seed: 999, {field}: {bad}}}]\n"


FIELD = "network.forward.header_compression"
#: What is wrong with the last of many points (a field, two fields together, a line that the node binary cannot build):
#: the file, the line and the message.
LAST = {
    "a field": (last(BASE, "network.forward.rate", "1 Mbit/s", "1 kbit"), 14, "'kbit' is not a unit of a rate"),
    "two fields": (
        last(BASE.replace("right}", "right, start: 1 s}"), "duration", "5 s", "1 s"),
        7, "flow bulk may start at 1 s, but the run ends at 1 s",
    ),
    "a line": (
        last(BASE.replace("delay", "free_options: true, delay", 1), FIELD, "none", "rfc1144"),
        2, "free_options and rfc1144 exclude each other",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAST)
def test_the_last_of_many_points_is_validated_as_the_first(name: str, tmp_path: Path) -> None:
    text, line, message = LAST[name]
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(CampaignError) as raised:
        load(file)
    (problem,) = raised.value.problems
    assert message in problem.message
    assert problem.line == line


def test_points_share_what_the_sweep_does_not_set(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        BASE.replace(
            "forward: {rate: 1 Mbit/s, delay: 5 ms}", "forward: {rate: 1 Mbit/s, delay: 5 ms, queue: droptail}"
        )
        + "sweep: {network.forward.queue.limit: [5 packets, 9 packets], workload.bulk.size: [1 kB, 2 kB]}\n"
    )
    limits = [scenario.links[0].forward.queue.options for _, scenario in load(file).first_scenarios()]
    assert limits == [{"limit_packets": 5}] * 2 + [{"limit_packets": 9}] * 2


def counted_points(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Receives the number of points of each validation."""
    counts: list[int] = []
    validate = campaign._Expansion.validate

    def counted(self: campaign._Expansion, values: Any, points: Any) -> Any:
        counts.append(len(points))
        return validate(self, values, points)

    monkeypatch.setattr(campaign._Expansion, "validate", counted)
    return counts


def test_points_of_a_long_axis_are_validated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = counted_points(monkeypatch)
    file = tmp_path / "c.yaml"
    file.write_text(axes(300))
    load(file)
    assert sum(counts) == 300


def test_a_large_sweep_is_refused_after_a_few_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = counted_points(monkeypatch)
    file = tmp_path / "c.yaml"
    # The axis that changes slowest.
    file.write_text(axes(280, 350).replace(" 280]", " many]", 1))
    with pytest.raises(CampaignError, match="many"):
        load(file)
    assert counts == [280 + 350 - 1]
