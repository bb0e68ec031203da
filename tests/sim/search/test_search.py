"""Searches with known answers, from screened runs to the campaign that is written."""

from __future__ import annotations

import builtins
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.search.evaluate import Candidate, Evaluated, Evaluator
from experiments.search.file import SearchFile, read
from experiments.search.loop import ADAPTIVE_MISSING, BATCH, FIRST, Search, Shrunk, compared, search, shrink
from testbed import units
from tests.conftest import backchannel

#: With acks first an upload starves where the download's acks fill the line (asym 4.4).
OTHER = "  - {name: other, from: server, to: client, start: [0 s, 0.2 s], size: 2 kB}\n"
CAMPAIGN = f"""\
name: asymmetric
network:
  topology: asymmetric-path
  forward: {{rate: 10 Mbit/s, delay: 10 ms, queue: {{policy: droptail, limit: 50 packets}}}}
  reverse: {{rate: 1 Mbit/s, delay: 10 ms, queue: {{policy: droptail, limit: 20 packets}}}}
stack: newreno
workload:
  - {{name: download, from: server, to: client, start: [0 s, 0.2 s]}}
  - {{name: upload, from: client, to: server, start: [0 s, 0.2 s]}}
{OTHER}duration: 20 s
warm_up: 1 s
"""
SEARCH = """\
name: starved
campaign: asymmetric.yaml
axes:
  network.reverse.rate: {from: 30 kbit/s, to: 5 Mbit/s, scale: log}
  network.reverse.queue.policy: [droptail, acks-first]
question: {where: starvation(upload) > 0.75}
repetitions: 4
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "asymmetric.yaml").write_text(CAMPAIGN)
    (tmp_path / "starved.yaml").write_text(SEARCH)
    return tmp_path


class Made(Evaluator):
    """Evaluates by a function of the fields in the place of simulations, with noise from the seed."""

    def __init__(self, number: Any, noise: float = 0.0) -> None:
        self.runs = 0
        self._number, self._noise = number, noise
        self.made: dict[str, int] = {}

    def evaluate(self, candidates: Sequence[Candidate], repetitions: int, seed: int) -> list[Evaluated]:
        rows = []
        for candidate in candidates:
            self.runs += max(repetitions - self.made.get(candidate.key, 0), 0)
            self.made[candidate.key] = max(repetitions, self.made.get(candidate.key, 0))
            noise = random.Random(f"{candidate.key}/{seed}")
            number = self._number(dict(candidate.fields), candidate)
            samples = {at: number + self._noise * noise.uniform(-1, 1) for at in range(repetitions)}
            rows.append(Evaluated(candidate, samples, ("id",) * repetitions))
        return rows

    def duration_s(self, candidate: Candidate) -> float:
        return float(candidate.duration.removesuffix(" s") or 20.0)

    def scenario(self, candidate: Candidate) -> Any:
        return None


class Gaps(Made):
    """Repetitions differ by hundreds and combinations by one. Each combination lacks a value of another repetition."""

    def evaluate(self, candidates: Sequence[Candidate], repetitions: int, seed: int) -> list[Evaluated]:
        rows = super().evaluate(candidates, repetitions, seed)
        return [
            replace(row, samples={at: 100.0 * at + bool(row.candidate.fields) for at in row.samples if at != lacking})
            for lacking, row in enumerate(rows)
        ]


def test_repetitions_are_compared_with_their_own_seed(folder: Path) -> None:
    """Also where a repetition of either has no value."""
    file = read(folder / "starved.yaml")
    greatest = replace(file, question=replace(file.question, kind="max"))
    candidate = Candidate((("field", 1),))
    state = Search(greatest, Evaluated(candidate, {}, ()))
    result = compared(state, Gaps(lambda fields, of: 0.0), candidate, 1.0, 5, 1)
    assert result.samples == {2: 1.0, 3: 1.0, 4: 1.0}


def no_optuna(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *arguments: Any, **more: Any) -> Any:
        if name == "optuna":
            raise ImportError(name)
        return real(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", absent)


def test_intervals_prune_and_what_matters_gets_all_repetitions(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_optuna(monkeypatch)
    file = read(folder / "starved.yaml")

    def number(fields: dict[str, Any], candidate: Candidate) -> float:
        return 1.0 if fields.get("network.reverse.queue.policy") == "acks-first" else -1.0

    evaluator = Made(number, noise=0.01)
    state = search(file, evaluator, 80)
    assert state.note == ADAPTIVE_MISSING
    shown = {point.candidate.key for point in state.found}
    for place, (key, point) in enumerate(state.points.items()):
        shows = dict(point.candidate.fields)["network.reverse.queue.policy"] == "acks-first"
        assert (key in shown) == shows
        # The last ones may find no runs left.
        if place < len(state.points) - BATCH:
            assert evaluator.made[key] == (file.repetitions if shows else FIRST)
    assert 76 <= evaluator.runs <= 80


def test_no_more_runs_than_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_optuna(monkeypatch)
    evaluator = Made(lambda fields, candidate: 1.0, noise=0.01)
    search(read(folder / "starved.yaml"), evaluator, 41)
    # Of what is left no point has its first repetitions.
    assert evaluator.runs == 40


def test_the_smallest_campaign_keeps_what_is_needed_and_nothing_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = read(folder / "starved.yaml")

    def number(fields: dict[str, Any], candidate: Candidate) -> float:
        needs = fields.get("network.reverse.queue.policy") == "acks-first" and "upload" not in candidate.without
        # It takes more than 3 s to show.
        return 1.0 if needs and float(candidate.duration.removesuffix(" s") or 20.0) > 3 else -1.0

    evaluator = Made(number, noise=0.01)
    point = Candidate((("network.reverse.rate", "50 kbit/s"), ("network.reverse.queue.policy", "acks-first")))
    (found,) = evaluator.evaluate([point], 4, 1)
    state = Search(file, found)
    state.points[point.key] = found
    monkeypatch.setattr(type(file.question.expression), "check", lambda self, scenario: None)
    shrunk = shrink(state, evaluator, Shrunk(point, 1.0, ()))
    assert shrunk.candidate.fields == (("network.reverse.queue.policy", "acks-first"),)
    assert (shrunk.candidate.without, shrunk.candidate.duration) == (frozenset({"download", "other"}), "5 s")


def test_the_starved_upload_is_found_shrunk_repeated_and_resumed(folder: Path) -> None:
    words = (
        "search",
        folder / "starved.yaml",
        "--runs",
        "64",
        "--no-linux",
        "--results",
        folder / "r",
        "--out",
        folder,
    )
    done = backchannel(*words, "--json", status=0)
    document = json.loads(done.stdout)
    # Without acks-first no upload starves, and on a fast line it does not with them either.
    for point in document["points"]:
        if point["shows"]:
            assert point["fields"]["network.reverse.queue.policy"] == "acks-first"
            assert float(point["fields"]["network.reverse.rate"].removesuffix(" bit/s")) < 400_000
    assert document["sim"]["shows"] is True
    campaign = (folder / "starved-found.yaml").read_text()
    assert "acks-first" in campaign
    assert "name: other" not in campaign
    assert backchannel("validate", folder / "starved-found.yaml").returncode == 0
    # What is written is what was run.
    plan = json.loads(backchannel("plan", folder / "starved-found.yaml", "--results", folder / "r", "--json").stdout)
    assert plan["campaign"] == document["sim"]["campaign"]
    assert all(run["done"] for run in plan["runs"])
    page = (folder / "starved-map.html").read_text()
    assert page.count("<circle") == len(document["points"])
    again = backchannel(*words, "--json")
    assert json.loads(again.stdout) == document


@pytest.mark.parametrize(
    ("kind", "question", "axis", "slowest_bps", "fastest_bps"),
    [
        # On a faster ack line both flows gain: the download more, but where its own line is slow.
        ("flips", "throughput(download) - 0.3 * throughput(upload)", "network.forward.rate", 0, 2e6),
        ("differs", "throughput(download)", "network.forward.rate", 2e6, 20e6),
        ("max", "throughput(download)", "network.reverse.rate", 1e6, 20e6),
        ("min", "throughput(upload)", "network.reverse.rate", 0, 200e3),
    ],
)
def test_each_answer(folder: Path, kind: str, question: str, axis: str, slowest_bps: float, fastest_bps: float) -> None:
    campaign = CAMPAIGN.replace("1 Mbit/s", "200 kbit/s").replace("duration: 20 s", "duration: 8 s")
    campaign = campaign.replace("warm_up: 1 s", "warm_up: 2 s").replace(OTHER, "")
    # What is found is run as a campaign, and these questions need no captures.
    campaign += "capture: {at: [none], telemetry: false, counters: {every: 100 ms, at: [bottleneck]}}\n"
    (folder / "asymmetric.yaml").write_text(campaign)
    between = ", between: {network.reverse.rate: [100 kbit/s, 5 Mbit/s]}" if kind in ("flips", "differs") else ""
    (folder / "asked.yaml").write_text(
        f"campaign: asymmetric.yaml\naxes: {{{axis}: {{from: 100 kbit/s, to: 20 Mbit/s, scale: log}}}}\n"
        f"question: {{{kind}: {question}{between}}}\nrepetitions: 5\n"
    )
    words = ("search", folder / "asked.yaml", "--runs", "80", "--no-linux", "--results", folder / "r", "--json")
    done = backchannel(*words, "--out", folder, status=0)
    document = json.loads(done.stdout)
    shown = [row for row in document["fresh_seeds"] if row["shows"]]
    assert all(row["low"] > 0 for row in shown)
    assert slowest_bps <= units.parse(shown[0]["fields"][axis], "rate") <= fastest_bps
    assert document["sim"]["shows"] is True
    assert (folder / "asked-found.yaml").exists()
    assert "<svg" in (folder / "asked-map.html").read_text()


def test_an_ordering_that_the_campaign_does_not_decide_cannot_flip(folder: Path) -> None:
    question = "question: {flips: throughput(download), between: {workload.other.size: [2 kB, 2.1 kB]}}"
    text = SEARCH.replace("question: {where: starvation(upload) > 0.75}", question)
    (folder / "starved.yaml").write_text(text)
    done = backchannel("search", folder / "starved.yaml", "--results", folder / "r", "--out", folder, status=1)
    assert "the campaign itself does not decide the ordering" in done.stderr


def test_what_a_question_names_must_exist(folder: Path) -> None:
    (folder / "starved.yaml").write_text(SEARCH.replace("(upload)", "(uplaod)"))
    done = backchannel("search", folder / "starved.yaml", "--results", folder / "r", status=2)
    assert "unknown subject of starvation 'uplaod'" in done.stderr
    assert not (folder / "r").exists()


def test_a_value_that_no_campaign_can_have_is_reported_for_the_search_file(folder: Path) -> None:
    file = folder / "starved.yaml"
    file.write_text(SEARCH.replace("acks-first]", "acks-frist]"))
    done = backchannel("search", file, "--results", folder / "r", status=2)
    assert (
        f"{file}: network.reverse.queue.policy: unknown policy 'acks-frist'; did you mean 'acks-first'?" in done.stderr
    )


def test_optuna_proposes_points_where_the_score_is_high(folder: Path) -> None:
    file: SearchFile = read(folder / "starved.yaml")

    def number(fields: dict[str, Any], candidate: Candidate) -> float:
        return -abs(float(fields.get("network.reverse.rate", "0 b").split()[0]) - 300_000) / 1e5

    state = search(file, Made(number), 200)
    shares = [
        file.axes[0].share(dict(point.candidate.fields)["network.reverse.rate"]) for point in state.points.values()
    ]
    best = file.axes[0].share("300000 bit/s")
    near = [abs(share - best) < 0.1 for share in shares]
    design, adaptive = near[: state.designed], near[state.designed :]
    assert sum(adaptive) / len(adaptive) > 2 * sum(design) / len(design)
