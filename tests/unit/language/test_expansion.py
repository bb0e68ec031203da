"""From files to runs: sweeps, seeds, overrides, identities."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, strategies as st

from experiments.language import registry, source
from experiments.language.campaign import Plan, expand, load
from experiments.language.identity import canonical_json, run_identity
from experiments.language.problems import CampaignError
from testbed.node_binary import ROOT

BASE = """\
name: t
network: {topology: line, forward: {rate: 1 Mbit/s, delay: 5 ms}}
workload: [{name: f, from: left, to: right, start: [0 s, 0.5 s]}]
duration: 5 s
"""


def plan(more: str = "", *overrides: str) -> Plan:
    return expand(source.parse("c.yaml", BASE + more), overrides)


def points(planned: Plan) -> list[tuple[str, ...]]:
    return [tuple(point.parameters.values()) for point in planned.points]


def test_quickstart_is_four_points_of_three_repetitions() -> None:
    planned = load(ROOT / "experiments/quickstart.yaml")
    assert (len(planned.points), len(planned.runs)) == (4, 12)
    scenario = planned.runs[0].document.document
    bottleneck = next(link for link in scenario["links"] if link["name"] == "bottleneck")
    assert bottleneck["reverse"]["rate_bps"] == 28_800
    assert bottleneck["reverse"]["queue"] == {"name": "droptail", "options": {"limit_packets": 10}}


def test_axes_combine_and_the_last_runs_fastest() -> None:
    planned = plan("sweep: {stack: [reno, cubic], duration: [1 s, 2 s]}")
    assert points(planned) == [("reno", "1 s"), ("reno", "2 s"), ("cubic", "1 s"), ("cubic", "2 s")]
    assert [run.document.document["duration_s"] for run in planned.runs] == [1.0, 2.0, 1.0, 2.0]


def test_labels_are_written_as_in_the_file() -> None:
    stacks = "stack: [newreno, {name: newreno, sack: true}]"
    planned = plan(f"backend: sim\nsweep: {{{stacks}, workload.f.start: [0 s, [0 s, 0.1 s]]}}")
    assert points(planned)[1] == ("newreno", "[0 s, 0.1 s]")
    assert points(planned)[2] == ("newreno true", "0 s")


@pytest.mark.parametrize(
    ("more", "end"),
    [
        ("sweep: {network.link: [point-to-point, wifi]}", "same rate (where network.link=wifi)"),
        ("sweep: {duration: [1 s, 2 s], network.link: [leo, wifi]}", "same rate (where network.link=wifi)"),
        ("sweep: {duration: [1 s, 2 s], network.link: [wavelan, wifi]}", "same rate"),
    ],
)
def test_a_problem_of_some_combinations_names_them(more: str, end: str) -> None:
    base = BASE.replace("delay: 5 ms}}", "delay: 50 ms}, reverse: {rate: 2 Mbit/s, delay: 50 ms}}")
    with pytest.raises(CampaignError) as caught:
        expand(source.parse("c.yaml", base + more))
    (problem,) = caught.value.problems
    assert problem.message.endswith(end)


def test_zipped_axes_advance_together() -> None:
    planned = plan("sweep: {zip: {stack: [reno, cubic], duration: [2 s, 3 s]}, network.forward.delay: [1 ms, 2 ms]}")
    assert points(planned) == [
        ("reno", "2 s", "1 ms"), ("reno", "2 s", "2 ms"), ("cubic", "3 s", "1 ms"), ("cubic", "3 s", "2 ms"),
    ]  # fmt: skip


def test_exclude_and_include() -> None:
    planned = plan("""\
sweep:
  stack: [reno, cubic, bbr]
  duration: [2 s, 3 s]
  exclude: [{stack: [cubic, bbr], duration: 2 s}]
  include: [{duration: 9 s, stack: cubic}]
""")
    assert points(planned) == [
        ("reno", "2 s"), ("reno", "3 s"), ("cubic", "3 s"), ("bbr", "3 s"), ("cubic", "9 s"),
    ]  # fmt: skip
    # Alone, `include` is an explicit list.
    planned = plan("sweep: {include: [{stack: reno, duration: 1 s}, {stack: bbr, duration: 2 s}]}")
    assert points(planned) == [("reno", "1 s"), ("bbr", "2 s")]


def test_a_swept_policy_keeps_the_options_of_its_queue() -> None:
    text = "sweep: {network.forward.queue.limit: [7 packets], network.forward.queue: [ack-filtering]}"
    queue = plan(text).runs[0].document.document["links"][0]["forward"]["queue"]
    assert queue == {"name": "ack-filtering", "options": {"limit_packets": 7}}


def with_queue(queue: str, more: str = "") -> Plan:
    return expand(source.parse("c.yaml", BASE.replace("delay: 5 ms", f"delay: 5 ms, queue: {queue}") + more))


def test_a_policy_holds_others_and_a_child_can_be_swept() -> None:
    values = "[codel, {policy: red, limit: 8 packets, child: {policy: acks-first, limit: 9 packets}}]"
    planned = with_queue("{policy: fq-drr, child: red}", f"sweep: {{network.forward.queue.child: {values}}}")
    assert points(planned) == [("codel",), ("red 8 packets acks-first 9 packets",)]
    queues = [run.document.document["links"][0]["forward"]["queue"]["options"]["child"] for run in planned.runs]
    child = {"name": "acks-first", "options": {"limit_packets": 9}}
    assert queues[1] == {"name": "red", "options": {"limit_packets": 8, "child": child}}


def test_the_id_of_a_run_covers_the_child_with_its_defaults() -> None:
    ids = [with_queue(f"{{policy: fq-drr{child}}}").runs[0].id for child in (
        "", ", child: codel", ", child: {policy: codel, target: 5 ms}", ", child: {policy: codel, target: 6 ms}",
    )]  # fmt: skip
    assert ids[1] == ids[2]
    assert len(set(ids)) == 3


def test_a_child_that_draws_makes_its_parent_draw() -> None:
    def child(name: str, **options: Any) -> dict[str, Any]:
        return {"child": {"name": name, "options": options}}

    assert not registry.draws("policy", "fq-drr", child("codel"))
    assert registry.draws("policy", "fq-drr", child("ack-filtering", **child("red")))


def test_a_limit_that_is_written_out_over_a_child_makes_another_run() -> None:
    """The default of a limit does not apply over a child, so that writing it out changes the queue."""
    queues = ("", ", child: codel", ", child: codel, limit: 20 packets", ", child: codel, limit: 21 packets")
    ids = [with_queue(f"{{policy: fq-drr{more}}}").runs[0].id for more in (*queues, ", limit: 20 packets")]
    assert len(set(ids[:4])) == 4
    assert ids[4] == ids[0]


def test_an_option_of_the_default_stack_can_be_swept() -> None:
    runs = plan("sweep: {stack.sack: [true, false]}").runs
    assert [run.document.document["nodes"][0]["stack"]["options"] for run in runs] == [{"sack": True}, {"sack": False}]


def test_a_flow_is_found_by_number_and_by_name() -> None:
    for field in ("workload.0.size", "workload.f.size"):
        assert plan("", f"{field}=2 kB").runs[0].document.document["workload"][0]["bytes"] == 2000


def test_an_override_ends_the_axis_of_its_field_or_is_one() -> None:
    planned = plan("sweep: {stack: [reno, cubic], duration: [1 s, 2 s]}", "stack.name=bbr")
    assert points(planned) == [("1 s",), ("2 s",)]
    assert planned.runs[0].document.document["nodes"][0]["stack"]["name"] == "bbr"
    assert points(plan("", "sweep.stack=[reno, bbr]")) == [("reno",), ("bbr",)]
    # Whether the file and the option call an entry of a list by its name or its number.
    for swept, set_ in (("f", "f"), ("f", "0"), ("0", "f")):
        assert points(plan(f"sweep: {{workload.{swept}.size: [1 kB, 3 kB]}}", f"workload.{set_}.size=2 kB")) == [()]
    # An exclusion of an overridden value applies to it.
    sweep = "sweep: {stack: [reno, cubic], duration: [1 s, 2 s], exclude: [{stack: cubic, duration: 2 s}]}"
    assert points(plan(sweep, "stack=cubic")) == [("1 s",)]
    assert points(plan(sweep, "stack=reno")) == [("1 s",), ("2 s",)]


def test_repetitions_are_paired_over_points() -> None:
    planned = plan("repetitions: 3\nsweep: {stack: [reno, cubic]}")
    by_point = [[run for run in planned.runs if run.point == number] for number in (0, 1)]
    seeds = [[run.document.document["seed"] for run in runs] for runs in by_point]
    starts = [[run.document.document["workload"][0]["start_s"] for run in runs] for runs in by_point]
    assert seeds[0] == seeds[1]
    assert starts[0] == starts[1]
    assert len(set(seeds[0])) == len(set(starts[0])) == 3


def test_flows_have_a_version_of_ip_of_their_own_that_of_the_campaign_or_both_in_turn() -> None:
    text = """\
name: t
backend: sim
stack: newreno
network: {topology: line, forward: {rate: 1 Mbit/s, delay: 5 ms}}
workload:
  - {name: many, from: left, to: right, count: 3}
  - {name: old, from: left, to: right, ip: 4}
  - {name: own, from: left, to: right}
duration: 5 s
"""

    def versions(more: str) -> list[list[int]]:
        return [[flow.ip for flow in run.scenario.workload] for run in expand(source.parse("c.yaml", text + more)).runs]

    assert versions("") == versions("ip: 4\n") == [[4, 4, 4, 4, 4]]
    assert versions("ip: both\n") == [[4, 6, 4, 4, 6]]
    assert versions("sweep: {ip: [4, 6]}\n") == [[4, 4, 4, 4, 4], [6, 6, 6, 4, 6]]
    ids = {more: expand(source.parse("c.yaml", text + more)).runs[0].id for more in ("", "ip: 4\n", "ip: 6\n")}
    assert ids[""] == ids["ip: 4\n"] != ids["ip: 6\n"]


def test_a_dumbbell_s_flow_with_a_stack_of_the_kernel_has_it_on_its_hosts() -> None:
    text = BASE.replace("topology: line", "topology: dumbbell").replace(
        "from: left, to: right", "from: server, to: client"
    )
    udp = "{name: u, kind: cbr, from: server, to: client, stack: reno, options: {rate: 10 kbit/s}}"
    planned = expand(source.parse("c.yaml", text.replace("0.5 s]}]", f"0.5 s]}}, {udp}]") + "stack: newreno\n"))
    nodes = planned.runs[0].scenario.nodes
    stacks = {node.name: node.stack.name for node in nodes if node.stack is not None}
    assert stacks == {"server1": "newreno", "client1": "newreno", "server2": "reno", "client2": "reno"}


def test_ids_are_those_of_every_other_machine() -> None:
    # Fixed text: a change of this value makes every stored run a stranger, so it must be meant (identity.FORMAT).
    assert canonical_json({"b": 1.0, "a": [0.1, "é", True]}) == '{"a":[0.1,"\\u00e9",true],"b":1}'
    ids = [run.id for run in plan("seed: 7").runs]
    assert ids == [run.id for run in plan("seed: 7").runs]
    assert all(re.fullmatch("[0-9a-f]{24}", id) for id in ids)


def test_spelling_makes_no_other_run() -> None:
    def only_id(text: str) -> str:
        return expand(source.parse("c.yaml", text)).runs[0].id

    told = BASE.replace("delay: 5 ms", "delay: 0.005 s, queue: {policy: droptail, limit: 20 packets}")
    assert only_id(told.replace("1 Mbit/s", "1000 kbit/s")) == only_id(BASE)
    assert only_id(BASE + "stack: {name: reno, sack: true}") == only_id(BASE)
    assert only_id(BASE + "title: other") == only_id(BASE)
    assert only_id(BASE + "stack: {name: reno, sack: false}") != only_id(BASE)


def test_another_seed_or_backend_makes_other_runs() -> None:
    assert not {run.id for run in plan("seed: 1").runs} & {run.id for run in plan("seed: 2").runs}
    scenario = plan().runs[0].document.document
    assert run_identity("emulated", scenario) != run_identity("sim", scenario)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def _shuffled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shuffled(value[key]) for key in reversed(value)}
    return [_shuffled(item) for item in value] if isinstance(value, list) else value


@given(JSON)
def test_canonical_json_knows_no_order_and_loses_nothing(value: Any) -> None:
    text = canonical_json(value)
    assert text == canonical_json(_shuffled(value))
    assert json.loads(text) == value
    assert text == canonical_json(json.loads(text))
