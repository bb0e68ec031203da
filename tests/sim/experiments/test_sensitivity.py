"""Perturbed links, and which conclusions survive them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from analysis.results import Quantity, Results
from analysis.statistics import RunKey
from experiments.language import source
from experiments.language.campaign import expand
from experiments.papers.sensitivity import assess, perturbed_plan
from tests.conftest import backchannel

CAMPAIGN = """\
name: t
backend: sim
network:
  topology: asymmetric-path
  forward: {rate: 50 Mbit/s, delay: 10 ms, queue: {policy: droptail, limit: 2000 packets}}
  reverse: {rate: 1 Mbit/s, delay: 10 ms, changes: [{at: 1 s, rate: 2 Mbit/s}]}
stack: newreno
workload: [{name: f, from: server, to: client}]
duration: 2 s
repetitions: 3
sweep: {network.reverse.queue.policy: [droptail, acks-first]}
"""
#: Values of the sample points, for three repetitions each.
THROUGHPUT = Quantity("throughput", "f", "rate")


def results(*points: Sequence[float]) -> Results:
    values = {
        number: {THROUGHPUT: {RunKey(repetition, repetition): value for repetition, value in enumerate(of_point)}}
        for number, of_point in enumerate(points)
    }
    return Results("t", [{"policy": str(number)} for number in range(len(points))], values)


def test_rates_delays_and_buffers_change_within_the_bound_and_equally_at_every_point() -> None:
    plan = expand(source.parse("c.yaml", CAMPAIGN))
    perturbed = perturbed_plan(plan, 1, 0.01)
    assert not {run.id for run in plan.runs} & {run.id for run in perturbed.runs}
    lines = [run.document.document["links"][1] for run in perturbed.runs]
    first = lines[0]
    assert 49_500_000 <= first["forward"]["rate_bps"] <= 50_500_000
    assert first["forward"]["rate_bps"] != 50_000_000
    assert 0.0099 <= first["forward"]["delay_s"] <= 0.0101
    assert first["forward"]["delay_s"] != first["reverse"]["delay_s"] != 0.01
    assert 1980 <= first["forward"]["queue"]["options"]["limit_packets"] <= 2020
    # The change of the rate has the rate's factor.
    assert first["reverse"]["schedule"][0]["rate_bps"] == pytest.approx(2 * first["reverse"]["rate_bps"], abs=2)
    assert {line["forward"]["rate_bps"] for line in lines} == {first["forward"]["rate_bps"]}
    others = perturbed_plan(plan, 2, 0.01).runs[0].document.document["links"][1]
    assert others["forward"]["rate_bps"] != first["forward"]["rate_bps"]


def test_the_buffers_of_children_change_and_their_parent_gets_none() -> None:
    """Over a child the default of a limit does not apply, so that a perturbed copy must not state it."""
    nested = "{policy: fq-drr, child: {policy: ack-filtering, child: {policy: codel, limit: 500 packets}}}"
    campaign = CAMPAIGN.replace("{policy: droptail, limit: 2000 packets}", nested)
    run = perturbed_plan(expand(source.parse("c.yaml", campaign)), 1, 0.01).runs[0]
    queue = run.document.document["links"][1]["forward"]["queue"]
    middle = queue["options"]["child"]
    assert set(queue["options"]) == set(middle["options"]) == {"child"}
    limit = middle["options"]["child"]["options"]["limit_packets"]
    assert limit != 500
    assert 495 <= limit <= 505


def test_a_shared_medium_keeps_one_rate_and_one_latency() -> None:
    radio = CAMPAIGN.replace("asymmetric-path", "packet-radio").replace("client", "mobile").replace("50 Mbit", "1 Mbit")
    radio = radio.replace(", changes: [{at: 1 s, rate: 2 Mbit/s}]", "")
    plan = perturbed_plan(expand(source.parse("c.yaml", radio)), 1, 0.01)
    air = next(link for link in plan.runs[0].document.document["links"] if link["kind"] != "point-to-point")
    ways = [(air[way]["rate_bps"], air[way]["delay_s"]) for way in ("forward", "reverse")]
    assert ways[0] == ways[1] != (1_000_000, 0.01)


def test_what_survives() -> None:
    original = results([1.0, 1.1, 1.2], [2.0, 2.15, 2.2], [2.0, 2.3, 2.15])
    same, swapped = results([1.1] * 3, [2.1] * 3, [2.2] * 3), results([3.0] * 3, [2.1] * 3, [2.2] * 3)
    result = assess(original, [same, swapped], "throughput", 0.001)
    assert [row.inside for row in result.means] == [1, 2, 2]
    kept = {
        (ordering.greater["policy"], ordering.less["policy"]): (ordering.is_clear, ordering.kept)
        for ordering in result.orderings
    }
    assert kept == {("1", "0"): (True, 1), ("2", "0"): (True, 1), ("2", "1"): (False, 2)}
    assert result.count(clear=True) == (0, 2)
    assert result.count(clear=True, with_first=True) == (0, 2)
    assert result.count(clear=False) == (1, 1)
    with pytest.raises(ValueError, match="no combination has the metric 'goodput'"):
        assess(original, [same], "goodput", 0.001)


def test_equal_means_survive_if_they_stay_equal_and_one_run_has_no_interval() -> None:
    result = assess(results([1.0], [1.0]), [results([2.0], [2.0]), results([1.0], [2.0])], "throughput", 0.001)
    assert [row.inside for row in result.means] == [None, None]
    assert [(ordering.is_clear, ordering.kept) for ordering in result.orderings] == [(False, 1)]


def test_the_command_prints_a_table_and_json(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(CAMPAIGN)
    done = backchannel("sensitivity", file, "-n", "2", "--by", "1 %", "--json", status=0)
    report = json.loads(done.stdout)
    assert (report["perturbations"], report["by"], len(report["means"]), len(report["orderings"])) == (2, 0.01, 2, 1)
    assert all(len(row["perturbed"]) == 2 and row["n"] == 3 for row in report["means"])
    refused = backchannel("sensitivity", file, "--by", "50 %", status=2)
    assert "--by is a share above 0 and up to 10 %" in refused.stderr
