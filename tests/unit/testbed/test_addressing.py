"""Addressing and routes are a pure function of the scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from testbed.addressing import (
    Plan,
    Route,
    addresses_of,
    controller_routes,
    interfaces,
    ip_batch,
    ipv6_batch,
    ipv6_of,
    make_plan,
)
from testbed.errors import TestbedError
from testbed.scenario import LinkSpec, Node

NODES = [
    {"name": "server", "kind": "host"},
    {"name": "r1", "kind": "router"},
    {"name": "r2", "kind": "router"},
    {"name": "client", "kind": "host"},
]
LINKS: list[dict[str, Any]] = [
    {"name": "access-server", "ends": ["server", "r1"]},
    {"name": "bottleneck", "ends": ["r1", "r2"]},
    {"name": "access-client", "ends": ["r2", "client"]},
]


DIRECTION = {"queue": {"name": "droptail"}}


def plan_of(nodes: Sequence[Mapping[str, Any]], links: list[dict[str, Any]]) -> Plan:
    """The plan of links that have only a name and ends."""
    rest = {"kind": "point-to-point", "forward": DIRECTION, "reverse": DIRECTION}
    return make_plan([Node.read(node) for node in nodes], [LinkSpec.read({**rest, **link}) for link in links])


def test_figure_7_routes_both_ways() -> None:
    plan = plan_of(NODES, LINKS)
    server = plan.nodes["server"]
    assert [(route.subnet, route.via) for route in server.routes] == [("0.0.0.0/0", "10.1.0.2")]
    r1 = plan.nodes["r1"]
    assert [(route.subnet, route.via, route.interface) for route in r1.routes] == [
        ("10.3.0.0/24", "10.2.0.2", "r1-eth1")
    ]
    assert plan.nodes["client"].address == "10.3.0.2"
    assert "neighbour replace 10.2.0.2 lladdr 02:bc:00:02:00:02 dev r1-eth1 nud permanent" in ip_batch(r1)


def test_ipv6_takes_the_same_ways() -> None:
    """The addresses are those of core::ip::ipv6_of, whose test has the same pairs."""
    assert ipv6_of("198.18.7.254") == "2001:db8:c612:7::fe"
    plan = plan_of(NODES, LINKS)
    assert ipv6_batch(plan.nodes["server"]) == [
        "address replace 2001:db8:a01::1/64 dev server-eth0 nodad",
        "neighbour replace 2001:db8:a01::2 lladdr 02:bc:00:01:00:02 dev server-eth0 nud permanent",
        "route replace ::/0 via 2001:db8:a01::2 dev server-eth0",
    ]
    assert ipv6_batch(plan.nodes["r1"])[-1] == "route replace 2001:db8:a03::/64 via 2001:db8:a02::2 dev r1-eth1"
    assert plan.nodes["client"].address_over(6) == "2001:db8:a03::2"
    assert addresses_of(interfaces(plan))["client"] == ["10.3.0.2", "2001:db8:a03::2"]
    assert controller_routes(plan.nodes["server"], "cubic", 6) == [
        "route replace 2001:db8:a01::/64 dev server-eth0 proto kernel src 2001:db8:a01::1 congctl cubic",
        "route replace ::/0 via 2001:db8:a01::2 dev server-eth0 congctl cubic",
    ]


def test_a_declared_route_over_ipv6_leads_to_one_address_and_names_the_source() -> None:
    nodes: list[dict[str, Any]] = [{**NODES[0], "routes": [{"to": "client", "via": "r1"}]}, *NODES[1:]]
    lines = ipv6_batch(plan_of(nodes, LINKS).nodes["server"])
    assert "route replace 2001:db8:a03::2/128 via 2001:db8:a01::2 dev server-eth0 src 2001:db8:a01::1" in lines


def test_hosts_do_not_forward() -> None:
    nodes = [{"name": name, "kind": "host"} for name in ("a", "b", "c")]
    links = [{"name": "ab", "ends": ["a", "b"]}, {"name": "bc", "ends": ["b", "c"]}]
    with pytest.raises(TestbedError, match="'a' and 'c' are not connected"):
        plan_of(nodes, links)


@pytest.mark.parametrize(
    ("nodes", "links", "words"),
    [
        ([*NODES, {"name": "lonely", "kind": "host"}], LINKS, "'lonely' has no link"),
        (NODES, [*LINKS, {"name": "x", "ends": ["r1", "nowhere"]}], "'nowhere', which is not a node"),
        ([*NODES, NODES[0]], LINKS, "node 'server' is defined twice"),
        ([{"name": "averylongname", "kind": "host"}], [], "at most 9 characters"),
        (
            [*NODES, {"name": "p", "kind": "host"}, {"name": "q", "kind": "host"}],
            [*LINKS, {"name": "pq", "ends": ["p", "q"]}],
            "not connected",
        ),
    ],
)
def test_errors_name_the_node_or_link(nodes: list[dict[str, str]], links: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(TestbedError, match=words):
        plan_of(nodes, links)


def star(hosts: int, hub: str = "hub") -> tuple[list[dict[str, str]], list[dict[str, Any]]]:
    names = [f"h{number}" for number in range(hosts)]
    nodes = [{"name": hub, "kind": "router"}, *({"name": name, "kind": "host"} for name in names)]
    return nodes, [{"name": name, "ends": [name, hub]} for name in names]


def test_a_host_behind_one_router_has_one_route() -> None:
    plan = plan_of(*star(3))
    assert plan.nodes["h1"].routes == (Route("0.0.0.0/0", "10.2.0.2", "h1-eth0"),)
    assert plan.nodes["hub"].routes == ()


def test_hosts_side_by_side_reach_each_other_without_a_route() -> None:
    nodes = [{"name": name, "kind": "host"} for name in "ab"]
    plan = plan_of(nodes, [{"name": "wire", "ends": ["a", "b"]}])
    assert plan.nodes["a"].routes == ()


def test_a_thousand_hosts_have_distinct_addresses() -> None:
    plan = plan_of(*star(1000))
    ends = [end for link in plan.links.values() for end in link]
    assert len({end.address for end in ends}) == len({end.mac for end in ends}) == 2000
    assert all(
        0 < int(part) < 255 or place in (1, 2) for end in ends for place, part in enumerate(end.address.split("."))
    )
    assert all(len(end.name) <= 15 for end in ends)


def test_more_links_than_a_long_name_has_room_for_are_rejected() -> None:
    with pytest.raises(TestbedError, match="'manyhosts' has too many links"):
        plan_of(*star(200, hub="manyhosts"))
