"""The load of a link is bounded by the links beside it."""

from __future__ import annotations

from typing import Any

from testbed.addressing import make_plan
from testbed.load import greatest_load_bps, links_between
from testbed.scenario import Change, DirectionSpec, Flow, LinkSpec, Named, Node, Scenario

KINDS = {"server": "host", "other": "host", "r1": "router", "r2": "router", "client": "host"}


def direction(rate_bps: int | None, **more: Any) -> DirectionSpec:
    return DirectionSpec(rate_bps=rate_bps, queue=Named(name="droptail"), **more)


def link(name: str, ends: tuple[str, str], forward: int | None, reverse: int | None) -> LinkSpec:
    return LinkSpec(name=name, kind="point-to-point", ends=ends, forward=direction(forward), reverse=direction(reverse))


def flow(name: str, start: str, end: str, kind: str = "bulk", **options: Any) -> Flow:
    return Flow.read({"name": name, "kind": kind, "from": start, "to": end, "port": 5000, "options": options})


def loads(workload: list[Flow], *links: LinkSpec, real: tuple[str, ...] = ()) -> dict[str, float | None]:
    names = {end for link in links for end in link.ends}
    nodes = tuple(Node.read({"name": name, "kind": KINDS[name]}) for name in KINDS if name in names)
    scenario = Scenario(version=1, seed=1, duration_s=1, nodes=nodes, links=links, workload=tuple(workload))
    return greatest_load_bps(scenario, make_plan(nodes, links), real)


def chain(middle: tuple[int | None, int | None]) -> list[LinkSpec]:
    return [
        link("access", ("server", "r1"), 10**8, 10**8),
        link("beside", ("other", "r1"), 10**8, 10**8),
        link("middle", ("r1", "r2"), *middle),
        link("wire", ("r2", "client"), None, None),
    ]


SLOW_REVERSE = (10_000_000, 30_000)


def test_the_narrowest_line_of_a_path_bounds_all_of_its_links() -> None:
    result = loads([flow("a", "server", "client"), flow("b", "client", "server")], *chain(SLOW_REVERSE))
    # Twice the line, once for both transfers; the line itself carries no more than its rate.
    assert result == {"access": 2 * 1.003e7, "beside": 0, "middle": 1.003e7, "wire": 2 * 1.003e7}


def test_a_real_link_has_no_bound_of_its_own() -> None:
    """Nothing enforces the rate that the scenario declares for it. Simulated radios carry ten times as much."""
    workload = [flow("a", "server", "client")]
    bounded = loads(workload, *chain(SLOW_REVERSE), real=("access",))
    assert bounded == {"access": 2 * 1.003e7, "beside": 0, "middle": 1.003e7, "wire": 2 * 1.003e7}
    only = link("only", ("server", "other"), 28_800, 28_800)
    assert loads([flow("a", "server", "other")], only, real=("only",)) == {"only": None}
    assert loads([flow("a", "server", "other")], only) == {"only": 57_600}


def test_a_source_with_a_rate_adds_its_rate() -> None:
    udp = flow("u", "other", "client", "cbr", rate_bps=5e7)
    result = loads([flow("a", "server", "client"), udp], *chain(SLOW_REVERSE))
    assert result == {"access": 2 * 1.003e7, "beside": 5e7, "middle": 1.003e7, "wire": 5e7 + 2 * 1.003e7}


def test_without_a_rate_only_the_links_own_rates_are_bounds() -> None:
    result = loads([flow("a", "server", "other")], *chain((None, None)))
    assert result == {"access": 2e8, "beside": 2e8, "middle": 0, "wire": 0}
    only = link("only", ("server", "other"), None, None)
    assert loads([flow("a", "server", "other")], only) == {"only": None}


def test_a_rate_that_changes_counts_with_its_greatest() -> None:
    schedule = [Change(at_s=1, rate_bps=3_000_000), Change(at_s=2, delay_s=0.1)]
    only = link("only", ("server", "other"), 10**6, 10**6).replace(forward=direction(10**6, schedule=schedule))
    assert loads([flow("a", "server", "other")], only) == {"only": 4e6}


def test_the_routes_give_a_packets_path() -> None:
    links = [
        link("access", ("server", "r1"), 1, 1),
        link("middle", ("r1", "r2"), 1, 1),
        link("w", ("r2", "client"), 1, 1),
    ]
    nodes = [Node.read({"name": name, "kind": kind}) for name, kind in KINDS.items() if name != "other"]
    assert links_between(make_plan(nodes, links), "server", "client") == {"access", "middle", "w"}
