"""Routes that nodes of a campaign declare: where packets go on sim and emulated, and mistakes with their lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from experiments.language import source
from experiments.language.campaign import Plan, expand
from experiments.language.problems import CampaignError
from experiments.language.routes import route
from testbed import node_binary
from testbed.addressing import controller_routes, ip_batch, make_plan
from testbed.cell import topology_key
from tests.conftest import backchannel, two_hosts, typed
from tests.support.only_run import only_run

PAGE = (node_binary.ROOT / "docs/campaigns.md").read_text(encoding="utf-8")
(TEXT,) = re.findall(r"^```yaml\n(name: parallel-lines\n.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
SLOW = "routes: [{to: right2, via: east, link: slow}]"
#: Two bottlenecks in a row, each of which a flow of its own shares with the long one.
CHAIN = """\
name: chain
backend: sim
network:
  nodes: [{name: a}, {name: b}, {name: c}, {name: r1, kind: router}, {name: r2, kind: router}, {name: r3, kind: router}]
  links:
    - {name: a-r1, ends: [a, r1], forward: {rate: 100 Mbit/s, delay: 1 ms}}
    - {name: one, ends: [r1, r2], forward: {rate: 2 Mbit/s, delay: 5 ms}}
    - {name: b-r2, ends: [b, r2], forward: {rate: 100 Mbit/s, delay: 1 ms}}
    - {name: two, ends: [r2, r3], forward: {rate: 1 Mbit/s, delay: 5 ms}}
    - {name: c-r3, ends: [c, r3], forward: {rate: 100 Mbit/s, delay: 1 ms}}
stack: newreno
workload:
  - {name: long, from: a, to: c}
  - {name: first, from: a, to: b}
  - {name: last, from: b, to: c}
duration: 20 s
"""


def planned(text: str = TEXT, *overrides: str) -> Plan:
    return expand(source.parse("c.yaml", text), overrides)


def links_of(plan: Plan, start: str, end: str) -> list[str]:
    return [f"{link.name}/{way}" for link, way in route(plan.runs[0].scenario, start, end)]


def throughputs(results: Path) -> dict[str, float]:
    return {row.subject: row.value for row in only_run(results)[0].metrics if row.name == "throughput"}


def test_packets_and_acks_take_the_declared_line() -> None:
    plan = planned()
    assert links_of(plan, "left1", "right1") == ["left1-west/forward", "fast/forward", "east-right1/forward"]
    assert links_of(plan, "left2", "right2") == ["left2-west/forward", "slow/forward", "east-right2/forward"]
    assert links_of(plan, "right2", "left2") == ["east-right2/reverse", "slow/reverse", "left2-west/reverse"]
    # Without routes, both take the line that is listed first.
    assert "fast/forward" in links_of(planned(TEXT.replace(f", {SLOW}", "")), "left2", "right2")


def test_a_line_that_carries_one_way_is_on_no_route_back() -> None:
    made = two_hosts()
    (line,) = made["links"]
    # Listed first, so that a route the other way would take them if it could.
    one_way = {**line, "options": {"one_way": True}}
    made["links"] = [{**one_way, "name": "there"}, {**one_way, "name": "back", "ends": ["b", "a"]}, line]
    there, back = (route(typed(made), *ends) for ends in (("a", "b"), ("b", "a")))
    assert [[(link.name, way) for link, way in found] for found in (there, back)] == [
        [("there", "forward")], [("back", "forward")],
    ]  # fmt: skip


def test_a_kernel_gets_a_route_to_each_address() -> None:
    scenario = planned().runs[0].scenario
    west = make_plan(scenario.nodes, scenario.links).nodes["west"]
    assert "route replace 10.6.0.2/32 via 10.2.0.2 dev west-eth1" in ip_batch(west)
    assert "route replace 10.6.0.2/32 via 10.2.0.2 dev west-eth1 congctl cubic" in controller_routes(west, "cubic")


def test_another_route_is_another_network_and_another_run() -> None:
    runs = [planned(text).runs[0] for text in (TEXT, TEXT.replace(f", {SLOW}", ""))]
    assert runs[0].id != runs[1].id
    assert topology_key(runs[0].scenario) != topology_key(runs[1].scenario)


def test_parallel_lines_carry_a_flow_each_in_simulation(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(TEXT + "stack: newreno\n")
    backchannel("run", tmp_path / "c.yaml", "--backend", "sim", "--results", tmp_path / "results", status=0)
    found = throughputs(tmp_path / "results")
    assert 5e6 < found["first"] < 10e6
    assert 0.5e6 < found["second"] < 1e6


def test_two_bottlenecks_in_a_row_are_shared_apart(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CHAIN)
    backchannel("run", tmp_path / "c.yaml", "--results", tmp_path / "results", status=0)
    found = throughputs(tmp_path / "results")
    assert 1.6e6 < found["long"] + found["first"] < 2e6
    assert 0.8e6 < found["long"] + found["last"] < 1e6


@pytest.mark.parametrize(
    ("new", "line", "field", "message"),
    [
        ("routes: [{to: right9, via: east, link: slow}]", 6, "to", "unknown destination 'right9'"),
        ("routes: [{to: west, via: east, link: slow}]", 6, "to", "cannot lead to the node itself"),
        ("routes: [{to: right2, via: right2}]", 6, "via",
         "'right2' is not a neighbour of west; its neighbours are: east, left1, left2"),
        ("routes: [{to: right2, via: left1}]", 6, "via", "'left1' is a host, and hosts do not forward packets"),
        ("routes: [{to: right2, via: east}]", 6, "via", "several links lead to 'east': add 'link', one of fast, slow"),
        ("routes: [{to: right2, via: east, link: left1-west}]", 6, "link", "'left1-west' does not lead to 'east'"),
        ("routes: [{to: right2}]", 6, "via", "this field is missing"),
        ("routes: [{to: right2, by: east}]", 6, "by", "unknown field 'by'; allowed: to, via, link"),
        ("routes: [{to: right1, via: east, link: slow}, {to: right1, via: east, link: fast}]", 6, "to",
         "there are two routes to 'right1'; remove one"),
    ],
)  # fmt: skip
def test_mistakes_have_lines_and_sentences(new: str, line: int, field: str, message: str) -> None:
    with pytest.raises(CampaignError) as caught:
        planned(TEXT.replace(SLOW, new))
    assert any(
        problem.line == line and problem.field.endswith(field) and message in problem.message
        for problem in caught.value.problems
    ), caught.value


def test_a_one_way_link_carries_nothing_back() -> None:
    text = TEXT.replace("{name: slow, ends: [west, east],", "{name: slow, one_way: true, ends: [west, east],")
    with pytest.raises(CampaignError, match="the link to 'west' is one-way, and leads from there to east"):
        planned(text)


def test_routes_in_a_circle_are_found_at_the_flow() -> None:
    text = TEXT.replace(SLOW, "routes: [{to: right2, via: east, link: slow}]").replace(
        "routes: [{to: left2, via: west, link: slow}]",
        "routes: [{to: left2, via: west, link: slow}, {to: right2, via: west, link: fast}]",
    )
    with pytest.raises(CampaignError) as caught:
        planned(text)
    (problem,) = caught.value.problems
    assert problem.field == "workload.1.from"
    assert "packets from left2 do not reach right2" in problem.message
