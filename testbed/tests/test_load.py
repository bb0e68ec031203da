"""What may pass a link follows from the lines beside it."""

from __future__ import annotations

from typing import Any

from testbed.traffic import links_between, passing_bps

from testbed.addressing import make_plan

NODES = [
    {"name": "server", "kind": "host"},
    {"name": "other", "kind": "host"},
    {"name": "r1", "kind": "router"},
    {"name": "r2", "kind": "router"},
    {"name": "client", "kind": "host"},
]


def link(name: str, ends: list[str], forward: float | None, reverse: float | None) -> dict[str, Any]:
    return {"name": name, "ends": ends, "forward": {"rate_bps": forward}, "reverse": {"rate_bps": reverse}}


def passing(workload: list[dict[str, Any]], middle: tuple[float | None, float | None]) -> dict[str, float | None]:
    links = [
        link("access", ["server", "r1"], 1e8, 1e8),
        link("beside", ["other", "r1"], 1e8, 1e8),
        link("middle", ["r1", "r2"], *middle),
        link("wire", ["r2", "client"], None, None),
    ]
    return passing_bps({"links": links, "workload": workload}, make_plan(NODES, links))


def flow(name: str, start: str, end: str, kind: str = "bulk", **options: Any) -> dict[str, Any]:
    return {"name": name, "from": start, "to": end, "kind": kind, "options": options}


def test_the_narrowest_line_of_a_path_bounds_all_of_its_links() -> None:
    found = passing([flow("a", "server", "client"), flow("b", "client", "server")], (1e7, 3e4))
    # Twice the line, once for both transfers; the line itself carries no more than its rate.
    assert found == {"access": 2 * 1.003e7, "beside": 0, "middle": 1.003e7, "wire": 2 * 1.003e7}


def test_what_nothing_slows_down_comes_on_top() -> None:
    udp = flow("u", "other", "client", "cbr", rate_bps=5e7)
    found = passing([flow("a", "server", "client"), udp], (1e7, 3e4))
    assert found == {"access": 2 * 1.003e7, "beside": 5e7, "middle": 1.003e7, "wire": 5e7 + 2 * 1.003e7}


def test_where_no_rate_is_known_nothing_is_bounded_but_by_the_links_own() -> None:
    found = passing([flow("a", "server", "other")], (None, None))
    assert found == {"access": 2e8, "beside": 2e8, "middle": 0, "wire": 0}
    links = [link("only", ["server", "other"], None, None)]
    plan = make_plan(NODES[:2], links)
    assert passing_bps({"links": links, "workload": [flow("a", "server", "other")]}, plan) == {"only": None}


def test_a_rate_that_changes_counts_with_its_greatest() -> None:
    links = [link("only", ["server", "other"], 1e6, 1e6)]
    links[0]["forward"]["schedule"] = [{"at_s": 1, "rate_bps": 3e6}, {"at_s": 2, "delay_s": 0.1}]
    plan = make_plan(NODES[:2], links)
    assert passing_bps({"links": links, "workload": [flow("a", "server", "other")]}, plan) == {"only": 4e6}


def test_a_packets_way_is_told_by_the_routes() -> None:
    links = [
        link("access", ["server", "r1"], 1, 1),
        link("middle", ["r1", "r2"], 1, 1),
        link("w", ["r2", "client"], 1, 1),
    ]
    plan = make_plan([one for one in NODES if one["name"] != "other"], links)
    assert links_between(plan, "server", "client") == {"access", "middle", "w"}
