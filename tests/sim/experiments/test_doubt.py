"""Conclusions of campaigns under changes that should not matter."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from analysis.question import Asked
from analysis.results import Results
from experiments.language import source
from experiments.language.campaign import expand
from experiments.papers.doubt import conclusions, examine, halved_plan, repetitions_within
from tests.conftest import backchannel
from tests.sim.experiments.test_sensitivity import THROUGHPUT, results
from tests.support.questions import asking

#: The order of the two lines is that of the second half of the run alone, as nobody should conclude from it.
FRAGILE = """\
name: fragile
backend: sim
network:
  topology: asymmetric-path
  reverse: {rate: 1 Mbit/s, delay: 5 ms}
stack: newreno
workload: [{name: f, from: server, to: client, start: [0 s, 0.2 s]}]
duration: 6 s
repetitions: 3
capture: {at: [none], telemetry: false, counters: {every: 0.5 s}}
question: {metric: throughput, of: f}
sweep:
  axes:
    line:
      slow at last: {network.forward: {rate: 4 Mbit/s, delay: 5 ms, changes: [{at: 3 s, rate: 100 kbit/s}]}}
      fast at last: {network.forward: {rate: 1 Mbit/s, delay: 5 ms, changes: [{at: 3 s, rate: 20 Mbit/s}]}}
"""


def asked(*points: Sequence[float]) -> Asked:
    return asking(results(*points), THROUGHPUT)


#: Three runs each: at 10, far above it, 10 % above it, about 5 % above it, below it, and such that nobody can tell.
TEN, FAR, HIGHER, NEAR, LOWER, WIDE = (
    [10.0, 10.1, 9.9], [20.0, 20.2, 19.8], [11.0, 11.1, 10.9], [10.45, 10.6, 10.4], [5.0, 5.1, 4.9], [2.0, 10.0, 21.0],
)  # fmt: skip


@pytest.mark.parametrize(
    ("original", "changed", "outcome"),
    [
        (FAR, HIGHER, "survives"),
        (FAR, LOWER, "flips"),
        (FAR, WIDE, "cannot tell"),
        # Equal within 5 %, where the original difference is far beyond that.
        (FAR, TEN, "flips"),
        # A difference that may be smaller than 5 %, and one that is: no contradiction.
        (NEAR, TEN, "cannot tell"),
        (TEN, TEN, "survives"),
        (TEN, FAR, "flips"),
        (TEN, WIDE, "cannot tell"),
    ],
)
def test_a_conclusion_flips_only_where_the_changed_runs_show_the_contrary(
    original: Sequence[float], changed: Sequence[float], outcome: str
) -> None:
    first = asked(TEN, original)
    (conclusion,), _ = conclusions(first)
    assert first.question is not None
    assert examine(conclusion, first.question, asked(TEN, changed)).outcome == outcome


def test_what_runs_do_not_decide_is_no_conclusion_and_points_are_found_by_their_values() -> None:
    first = asked(TEN, WIDE, FAR)
    decided, undecided = conclusions(first)
    assert [(each.first, each.second, each.relation) for each in decided] == [
        ({"policy": "0"}, {"policy": "2"}, "above")
    ]
    assert undecided == 2  # 1 against 0, and the answer: 2 against 1
    assert first.question is not None
    changed = asked(FAR, WIDE, TEN)
    swapped = Results("t", [*reversed(changed.points)], changed.values)
    assert examine(decided[0], first.question, swapped).outcome == "survives"
    without = Results("t", changed.points[:2], changed.values)
    assert examine(decided[0], first.question, without).outcome == "cannot tell"


def test_half_of_the_measured_time_keeps_the_warm_up() -> None:
    plan = expand(source.parse("c.yaml", FRAGILE), ["warm_up=2 s"])
    half = halved_plan(plan)
    assert {run.duration_s for run in half.runs} == {4.0}
    assert not {run.id for run in half.runs} & set(plan.run_ids)
    with pytest.raises(ValueError, match=r"flow 'f' starts at 3\.\d+ s, after the half at 3 s"):
        halved_plan(expand(source.parse("c.yaml", FRAGILE), ["workload.f.start=[3.1 s, 3.2 s]"]))


def test_repetitions_follow_the_time_that_a_change_may_take() -> None:
    assert [repetitions_within(20, expected_s, 600.0) for expected_s in (600.0, 1200.0, 13_000.0)] == [20, 10, 0]


def test_a_fragile_conclusion_flips_and_a_sound_one_survives(tmp_path: Path) -> None:
    file, results = tmp_path / "fragile.yaml", str(tmp_path / "results")
    file.write_text(FRAGILE)
    only = [word for change in ("seeds", "half", "perturbed") for word in ("--only", change)]
    done = backchannel("doubt", str(file), *only, "--results", results, "--json", status=1)
    document = json.loads(done.stdout)
    assert document["flips"] is True
    for row in document["conclusions"]:
        assert {name: change["outcome"] for name, change in row["changes"].items()} == {
            "seeds": "survives", "half": "flips", "perturbed 1": "survives", "perturbed 2": "survives",
        }  # fmt: skip
    # Everything is stored under the ids that the report has.
    campaigns = {column["campaign"] for column in document["columns"]}
    listed = json.loads(backchannel("results", "--results", results, "--json").stdout)
    assert campaigns == {campaign["id"] for campaign in listed}
    # And nothing is made twice.
    plan = backchannel("doubt", str(file), *only, "--results", results, "--plan").stdout
    assert plan.count(" 0 to be made") == 5


def test_what_cannot_be_changed_is_left_out_with_its_reason(tmp_path: Path) -> None:
    file = tmp_path / "fragile.yaml"
    file.write_text(FRAGILE.replace("name: f,", "name: f, size: 1 MB,"))
    plan = backchannel("doubt", str(file), "--results", str(tmp_path / "results"), "--plan")
    assert "htb              Linux in virtual time with its own HTB instead of the emulator: left out: " in plan.stdout
    assert "half             half of the measured time: 6 runs on sim, 6 to be made" in plan.stdout
    assert not (tmp_path / "results").exists()
    wrong = backchannel("doubt", str(file), "--only", "seed", status=2)
    message = wrong.stderr
    assert "unknown change 'seed'; allowed: seeds, half, perturbed, virtual-kernel, htb, netem, emulated" in message


def test_listed_links_are_shaped_by_the_kernel_too(tmp_path: Path) -> None:
    network = """network:
  nodes: [{name: a}, {name: r, kind: router}, {name: b}]
  links:
    - {name: near, ends: [a, r], forward: {rate: 10 Mbit/s, delay: 1 ms}}
    - {name: far, ends: [r, b], forward: {rate: 1 Mbit/s, delay: 5 ms}}
stack: reno
workload: [{name: f, from: a, to: b, start: [0 s, 0.2 s]}]
duration: 6 s
repetitions: 3
sweep: {network.links.far.forward.rate: [1 Mbit/s, 2 Mbit/s]}
"""
    file = tmp_path / "listed.yaml"
    file.write_text("name: listed\nbackend: virtual-kernel\n" + network)
    plan = backchannel("doubt", str(file), "--results", str(tmp_path / "results"), "--plan", "--only", "htb").stdout
    assert "with its own HTB" in plan
    assert "left out" not in plan


def test_what_compares_nothing_is_refused_at_once(tmp_path: Path) -> None:
    file, results = tmp_path / "single.yaml", tmp_path / "results"
    one_point = FRAGILE.partition("sweep:")[0].replace(
        "  reverse:", "  forward: {rate: 4 Mbit/s, delay: 5 ms}\n  reverse:"
    )
    file.write_text(one_point)
    done = backchannel("doubt", str(file), "--results", str(results))
    assert (done.returncode, results.exists()) == (2, False)
    assert "fragile has one combination, so it compares nothing and has no conclusions to doubt; sweep a" in done.stderr


def test_changes_of_runs_that_decide_nothing_are_not_run(tmp_path: Path) -> None:
    file, results = tmp_path / "undecided.yaml", str(tmp_path / "results")
    # Losses at random, and two runs: far too few to tell a tenth of the ack line's rate.
    text = FRAGILE.partition("sweep:")[0].replace("repetitions: 3", "repetitions: 2")
    lossy = "  forward: {rate: 10 Mbit/s, delay: 20 ms, errors: [{model: uniform, probability: 2 %}]}\n  reverse:"
    file.write_text(f"{text.replace('  reverse:', lossy)}sweep: {{network.reverse.rate: [1 Mbit/s, 1.1 Mbit/s]}}\n")
    done = backchannel("doubt", str(file), "--only", "half", "--only", "seeds", "--results", results, status=0)
    assert "decide nothing, so there is nothing to doubt, and no change was run" in " ".join(done.stdout.split())
    listed = json.loads(backchannel("results", "--results", results, "--json").stdout)
    assert [campaign["name"] for campaign in listed] == ["fragile"]
