"""What repetitions vary, what a simulation draws from its seed, and points whose repetitions would be one run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from experiments.labels import exact_note
from experiments.language import registry, source
from experiments.language.campaign import Plan, Run, expand
from experiments.language.problems import CampaignError
from experiments.language.variation import draws
from testbed import node_binary
from testbed.scenario import Scenario
from tests.sim.testbed.test_simulation import simulate

BASE = """\
name: t
backend: sim
network:
  topology: asymmetric-path
  forward: {rate: 50 Mbit/s, delay: 10 ms}
  reverse: {rate: 1 Mbit/s, delay: 10 ms}
stack: newreno
workload:
  - {name: down, from: server, to: client, start: 2 s}
  - {name: ranged, from: server, to: client, start: [1 s, 1.5 s]}
  - {name: up, from: client, to: server, stop: 4 s}
duration: 30 s
repetitions: 5
"""


def plan(more: str = "", text: str = BASE, folder: Path | None = None) -> Plan:
    return expand(replace(source.parse("c.yaml", text + more), folder=folder), ())


def starts(run: Run) -> dict[str, float]:
    return {flow["name"]: flow["start_s"] for flow in run.document.document["workload"]}


def delays(run: Run) -> dict[str, float]:
    return {link["name"]: link["forward"]["delay_s"] for link in run.document.document["links"]}


def test_a_start_is_delayed_by_100_ms_at_most_and_by_one_percent_of_the_flow() -> None:
    runs = plan("variation: {round_trip: none, processing: none}").runs
    for run in runs:
        assert 2 <= starts(run)["down"] < 2.1
        assert 0 <= starts(run)["up"] < 0.04
        drawn_s = run.document.document["variation"]["drawn"]["workload.down.start_s"]
        assert drawn_s == pytest.approx(starts(run)["down"] - 2)
        # In whole microseconds, so that a scenario that people read has no rounding errors.
        assert drawn_s == round(drawn_s, 6)
    assert len({starts(run)["down"] for run in runs}) == 5
    assert runs[0].document.document["variation"]["start_s"] == 0.1


def test_a_range_of_a_flow_stays_as_it_is() -> None:
    with_variation, without = plan().runs, plan("variation: none").runs
    assert [starts(run)["ranged"] for run in with_variation] == [starts(run)["ranged"] for run in without]


def test_draws_are_seeded_and_equal_at_every_point() -> None:
    swept = plan("sweep: {stack: [newreno, sack]}")
    assert [run.id for run in swept.runs] == [run.id for run in plan("sweep: {stack: [newreno, sack]}").runs]
    by_point = [[run.document.document["variation"] for run in swept.runs if run.point == point] for point in (0, 1)]
    assert by_point[0] == by_point[1]
    assert plan("seed: 2").runs[0].document.document["variation"] != plan().runs[0].document.document["variation"]


def test_a_host_takes_up_to_the_time_of_a_full_segment_on_the_fastest_line() -> None:
    nodes = plan().runs[0].document.document["nodes"]
    times = {node["name"]: node.get("processing_s") for node in nodes}
    assert times == {"server": 0.00024, "router1": None, "router2": None, "client": 0.00024}
    assert plan("variation: {processing: 1 ms}").runs[0].document.document["nodes"][0]["processing_s"] == 0.001
    for switched_off in ("variation: {processing: none}", "variation: none"):
        nodes = plan(switched_off).runs[0].document.document["nodes"]
        assert not [node["name"] for node in nodes if "processing_s" in node]


def test_a_round_trip_grows_by_one_percent_at_most() -> None:
    exact = delays(plan("variation: none").runs[0])
    runs = plan().runs
    growth = [[delays(run)[name] - exact[name] for name in exact] for run in runs]
    for server, line, client in growth:
        # 24 ms of propagation there and back; each end adds half of its draw in each direction.
        assert 0 < server < 0.00012
        assert line == 0
        assert 0 < client < 0.00012
    assert len({server for server, _, _ in growth}) == 5


def test_a_round_trip_that_the_file_draws_is_not_drawn_again() -> None:
    dumbbell = BASE.replace("asymmetric-path", "dumbbell")
    grown = plan("", dumbbell).runs[0].document.document["variation"]["drawn"]
    assert sum(name.startswith("links.") for name in grown) == 3
    drawn = dumbbell.replace("10 ms}\nstack", "10 ms}\n  rtt: [40 ms, 50 ms]\nstack")
    assert all(name.startswith("workload.") for name in plan("", drawn).runs[0].document.document["variation"]["drawn"])


def test_traces_start_at_a_drawn_offset(tmp_path: Path) -> None:
    (tmp_path / "lte.down").write_text("1\n3\n3\n1000\n")
    (tmp_path / "losses").write_text("0001 # a loss\n0")
    text = """\
name: t
backend: sim
network:
  nodes: [{name: a}, {name: b}]
  links:
    - name: air
      kind: mahimahi
      ends: [a, b]
      forward: {trace: lte.down, errors: [{model: recorded, trace: losses}]}
      reverse: {trace: lte.down, errors: [{model: recorded, trace: losses, offset: 3}]}
stack: newreno
workload: [{name: f, from: a, to: b}]
duration: 10 s
repetitions: 20
"""
    for more, varied in (("", True), ("variation: {phase: none}", False)):
        links = [run.document.document["links"][0] for run in plan(more, text, tmp_path).runs]
        for link in links:
            forward, reverse = link["forward"], link["reverse"]
            offset_s = forward["options"].get("offset_s")
            assert offset_s == reverse["options"].get("offset_s")
            assert (offset_s is not None and 0 <= offset_s <= 1) == varied
            assert ("offset_packets" in forward["errors"][0]["options"]) == varied
            assert reverse["errors"][0]["options"]["offset_packets"] == 3
        places = {link["forward"]["errors"][0]["options"].get("offset_packets") for link in links}
        assert places == (set(range(5)) if varied else {None})


def test_real_packets_vary_starts_and_traces_alone() -> None:
    real = BASE.replace("backend: sim", "backend: emulated").replace("newreno", "reno")
    run = plan("", real).runs[0]
    assert set(run.document.document["variation"]) == {"start_s", "drawn"}
    assert set(run.document.document["variation"]["drawn"]) == {"workload.down.start_s", "workload.up.start_s"}
    with pytest.raises(CampaignError, match=r"variation.processing: only simulations have a processing time"):
        plan("variation: {processing: 1 ms}", real)


def test_a_start_that_may_come_after_the_end_is_an_error() -> None:
    with pytest.raises(CampaignError, match=r"variation.start: flow up may start after it has stopped"):
        plan("variation: {start: 5 s}")


@pytest.mark.parametrize("value", ["off", "{starts: 1 s}", "{round_trip: 200 %}", "{phase: often}"])
def test_a_wrong_variation_is_an_error(value: str) -> None:
    with pytest.raises(CampaignError, match="variation"):
        plan(f"variation: {value}")


def test_without_variation_equal_repetitions_are_one_run() -> None:
    fixed = BASE.replace("start: [1 s, 1.5 s]", "start: 1 s")
    exact = plan("variation: none", fixed)
    assert (len(exact.runs), exact.points[0].is_exact) == (1, True)
    assert exact_note(exact).startswith("5 repetitions would be one run five times, because nothing in it is random.")
    for more, text in (("variation: none", BASE), ("", fixed)):
        varied = plan(more, text)
        assert (len(varied.runs), varied.points[0].is_exact, exact_note(varied)) == (5, False, "")
    policies = "variation: none\nsweep: {network.reverse.queue: [droptail, red]}"
    some = plan(policies, fixed)
    assert [run.point for run in some.runs] == [0, 1, 1, 1, 1, 1]
    assert "(at 1 of 2 combinations)" in exact_note(some)


def test_papers_campaigns_vary_what_their_papers_say_and_nothing_else() -> None:
    folders = ("asym", "ton", "aq", "acq", "pulsed", "ns2")
    files = [file for folder in folders for file in (node_binary.ROOT / "experiments" / folder).glob("*.yaml")]
    campaigns = {
        file.name: YAML(typ="safe").load(file.read_text())
        for file in files
        if file.name not in ("targets.yaml", "chosen.yaml")
    }
    assert len(campaigns) > 70
    assert [name for name, campaign in campaigns.items() if campaign.get("variation") != "none"] == []


# What draws --------------------------------------------------------------------------------------------------

#: Values of required options, and of those without which a mechanism does nothing.
OPTIONS: dict[str, dict[str, Any]] = {
    "uniform": {"probability": 0.05},
    "duplicate": {"probability": 0.05},
    "reorder": {"probability": 0.05},
    "recorded": {"trace": "000000001"},
    "cbr": {"rate_bps": 400_000},
    # With one of two seeds both flows share a queue.
    "fq-codel": {"flows": 2},
    # Its queue overflows, so that BLUE drops at random.
    "cake": {"limit_packets": 3},
    "exponential": {"mean_bytes": 20_000},
    "gilbert-elliott": {"p": 0.05, "r": 0.5},
    "red": {"min_fraction": 0.1, "max_fraction": 0.6, "weight": 0.1},
}


def scenario(seed: int, **line: Any) -> dict[str, Any]:
    """Bulk flows in both directions between hosts `a` and `b`; the line before `b` has the mechanism under test."""
    queue = {"name": "droptail", "options": {"limit_packets": 15}}
    way = {"rate_bps": 1_000_000, "delay_s": 0.01, "queue": queue}
    stack = line.pop("stack", {"name": "sack", "options": {}})
    workload = line.pop("workload", {"kind": "bulk"})
    direction = way | line.pop("direction", {})
    flow = {"start_s": 0.5, "bytes": 400_000}
    wire = {"name": "wire", "kind": "point-to-point", "ends": ["a", "r"], "options": {}}
    return {
        "version": 1, "seed": seed, "duration_s": 10.0,
        "nodes": [
            {"name": "a", "kind": "host", "stack": stack} | line.pop("host", {}),
            {"name": "r", "kind": "router"},
            {"name": "b", "kind": "host", "stack": stack},
        ],
        "links": [
            wire | {"forward": way | {"rate_bps": 10_000_000}, "reverse": way | {"rate_bps": 10_000_000}},
            {"name": "line", "kind": "point-to-point", "ends": ["r", "b"], "options": {}} | line
            | {"forward": direction, "reverse": direction},
        ],
        "workload": [
            {"name": "down", "from": "a", "to": "b", "port": 5001, **flow, **workload},
            {"name": "up", "kind": "bulk", "from": "b", "to": "a", "port": 5002, "start_s": 0.0},
        ],
        "capture": {"snaplen": 128, "at": ["none"], "telemetry": False, "counters": {"every_s": 0.1, "at": []}},
    }  # fmt: skip


def outcome(made: dict[str, Any], out: Path) -> str:
    """Everything a simulation counts."""
    return json.dumps(simulate(made, out)) + (out / "counters.json").read_text()


def named(name: str, **options: Any) -> dict[str, Any]:
    return {"name": name, "options": OPTIONS.get(name, {}) | options}


def cases(kind: str) -> dict[str, dict[str, Any]]:
    """The line of a scenario for each mechanism of a kind, and for the options that make it draw."""
    names = [entry.name for entry in registry.of_kind(kind) if not set(entry.backends) & {"emulated", "physical"}]
    match kind:
        case "policy":
            return {name: {"direction": {"queue": named(name)}} for name in names}
        case "error-model":
            made = {name: {"direction": {"errors": [named(name)]}} for name in names}
            return made | {"uniform, 0": {"direction": {"errors": [named("uniform", probability=0)]}}}
        case "middlebox":
            return {name: {"middleboxes": [{**named(name), "end": 0}]} for name in names}
        case "stack":
            made = {name: {"stack": named(name)} for name in names}
            return made | {f"sack, {name}": {"stack": named("sack", congestion=name)} for name in ("bbr", "bbr1")}
        case "workload":
            return {
                name: {"workload": {"kind": name, "options": OPTIONS.get(name, {})}} for name in names if name != "bulk"
            }
        case "direction":
            serial = [{"framing": "none"}, {"framing": "slip"}, {"framing": "ppp"}, {"header_compression": "rfc1144"}]
            return {str(options): {"direction": {"options": options}} for options in serial}
        case "link":
            radio = {"rate_bps": 1_000_000}
            trace = {"rate_bps": None, "options": {"trace": "10\n20\n25\n100"}}
            return {name: {"kind": name, "direction": trace if name == "mahimahi" else radio} for name in names}
    assert kind == "processing"
    return {"processing": {"host": {"processing_s": 0.001}}, "none": {}}


def test_ack_filtering_draws_if_it_removes_random_acks() -> None:
    """That it does is tested in agents/policies/src/ack_filter.rs."""
    assert registry.draws("policy", "ack-filtering", {"random": True})
    assert not registry.draws("policy", "ack-filtering", {"random": False})


KINDS = ["policy", "error-model", "middlebox", "stack", "workload", "direction", "link", "processing"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_mechanism_is_declared_random_if_and_only_if_two_seeds_differ(kind: str, tmp_path: Path) -> None:
    declared, differs = {}, {}
    for number, (case, line) in enumerate(cases(kind).items()):
        first, second = (scenario(seed, **json.loads(json.dumps(line))) for seed in (1, 2))
        for link in (*first["links"], *second["links"]):
            for way in ("forward", "reverse"):
                link[way] = {key: value for key, value in link[way].items() if value is not None}
        declared[case] = any(draws(Scenario.read(first)))
        differs[case] = outcome(first, tmp_path / f"{number}-1") != outcome(second, tmp_path / f"{number}-2")
    assert differs
    assert differs == declared
