"""The scorecard as a page of docs/."""

from __future__ import annotations

from dataclasses import replace

from analysis.statistics import Interval, exact_interval
from experiments.papers.choices import Choice
from experiments.papers.page import MOST, page
from experiments.papers.scorecard import Artefact, OrderingScore, Score, ValueScore


def value(measured: float | None, *, within: bool, label: str = "Reno", half: float | None = 0.1034e6) -> ValueScore:
    interval = None if half is None or measured is None else Interval(measured - half, measured + half, 0.95, "t")
    return ValueScore(
        measure="throughput", cell={"protocol": label}, relation="approx", published=6.95e6, unit="bit/s",
        tolerance={"rel": 0.1}, origin="stated", measured=measured, runs=10, interval=interval,
        within=within,
    )  # fmt: skip


def score(backend: str, *values: ValueScore, asked: int = 10, tie: bool = False) -> Score:
    ordering = OrderingScore(
        measure="throughput", axis="protocol", order=["a", "b"], where={}, min_ratio=None, measured=[2.0, 1.0],
        tie=tie, holds=True,
    )  # fmt: skip
    return Score(backend=backend, campaign="c", asked=asked, valid=10, values=values, orderings=[ordering])


def artefact(name: str, paper: str, *scores: Score, source: str = "simulated") -> Artefact:
    return Artefact(name, paper, "A title", "7", source, 1, 1, {one.backend: one for one in scores})


def rows(text: str) -> dict[str, list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return {line.split("`")[1]: [cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines}


def test_a_row_has_published_measured_verdict_and_what_was_chosen() -> None:
    choice = Choice(
        artefacts=("asym-x",), fields={"stack.ack_every": 1}, default="language", by="ours", when="after", reason="r"
    )
    passing = artefact("asym-x", "asym", score("sim", value(6.54e6, within=True), tie=True))
    failing = artefact("asym-y", "asym", score("sim", value(None, within=False, half=None), asked=12))
    # Whichever ran last.
    both = artefact("ton-x", "ton", score("emulated", value(9e6, within=False)), score("sim", value(7e6, within=True)))
    computed = artefact("aq-x", "aq", score("theory", value(6.95e6, within=True, half=None)), source="theory")
    text = page([passing, failing, both, computed], [choice])
    assert rows(text) == {
        "asym-x": [
            "`asym-x`<br>A title", "Reno throughput: 6.95 Mbit/s", "6.54 ± 0.10 Mbit/s<br>1 of 1 orderings (1 as ties)",
            "pass", "`stack.ack_every`",
        ],
        "asym-y": [
            "`asym-y`<br>A title", "Reno throughput: 6.95 Mbit/s", "**nothing**<br>1 of 1 orderings<br>10 of 12 runs",
            "**incomplete**",
        ],
        "ton-x": [
            "`ton-x`<br>A title", "Reno throughput: 6.95 Mbit/s", "7.00 ± 0.10 Mbit/s<br>1 of 1 orderings",
            "**9.00 ± 0.10 Mbit/s**<br>1 of 1 orderings", "sim: pass<br>emulated: **fail**",
        ],
        "aq-x": [
            "`aq-x`<br>A title", "Reno throughput: 6.95 Mbit/s", "6.95 Mbit/s<br>1 of 1 orderings", "pass",
            "arithmetic",
        ],
    }  # fmt: skip
    assert "2 of 4 artefacts pass" in text
    assert "inconclusive" not in text


def test_an_interval_around_no_middle_is_written_by_its_ends() -> None:
    skewed = replace(value(6.5e6, within=True), interval=Interval(5.5e6, 8.1e6, 0.95, "bonferroni"))
    certain = replace(value(6.5e6, within=True), interval=exact_interval(6.5e6))
    text = page(
        [artefact("asym-x", "asym", score("sim", skewed)), artefact("asym-y", "asym", score("sim", certain))], []
    )
    assert rows(text)["asym-x"][2].startswith("6.5 [5.5, 8.1] Mbit/s<br>")
    assert rows(text)["asym-y"][2].startswith("6.5 Mbit/s<br>")


def test_an_inconclusive_verdict_is_marked() -> None:
    doubtful = replace(value(6.3e6, within=True), conclusive=False)
    one = artefact("asym-x", "asym", score("sim", doubtful))
    both = artefact("ton-x", "ton", score("sim", doubtful), score("emulated", value(6.95e6, within=True)))
    text = page([one, both], [])
    assert rows(text)["asym-x"][3] == "pass (inconclusive)"
    assert rows(text)["ton-x"][4] == "sim: pass (inconclusive)<br>emulated: pass"
    assert "2 verdicts of a backend are inconclusive" in text


def test_of_many_values_those_outside_the_tolerance_are_listed() -> None:
    many = [value(6.95e6, within=True, label=f"p{number}") for number in range(MOST)]
    text = page([artefact("acq-x", "acq", score("sim", *many, value(1e6, within=False, label="odd")))], [])
    row = rows(text)["acq-x"]
    assert row[1:3] == [
        "odd throughput: 6.95 Mbit/s", f"**1.00 ± 0.10 Mbit/s**<br>{MOST} of {MOST + 1} values<br>1 of 1 orderings",
    ]  # fmt: skip
