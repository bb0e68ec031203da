"""Addresses and routes of networks large and small."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.addressing import Route, make_plan
from testbed.errors import TestbedError


def star(hosts: int, hub: str = "hub") -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    names = [f"h{number}" for number in range(hosts)]
    nodes = [{"name": hub, "kind": "router"}, *({"name": name, "kind": "host"} for name in names)]
    return nodes, [{"name": name, "ends": [name, hub]} for name in names]


def test_a_host_behind_one_router_has_one_route() -> None:
    plan = make_plan(*star(3))
    assert plan.nodes["h1"].routes == (Route("0.0.0.0/0", "10.2.0.2", "h1-eth0"),)
    assert plan.nodes["hub"].routes == ()


def test_hosts_side_by_side_reach_each_other_without_a_route() -> None:
    nodes = [{"name": name, "kind": "host"} for name in "ab"]
    plan = make_plan(nodes, [{"name": "wire", "ends": ["a", "b"]}])
    assert plan.nodes["a"].routes == ()


def test_a_thousand_hosts_have_addresses_of_their_own() -> None:
    plan = make_plan(*star(1000))
    ends = [end for link in plan.links.values() for end in link]
    assert len({end.address for end in ends}) == len({end.mac for end in ends}) == 2000
    assert all(
        0 < int(part) < 255 or place in (1, 2) for end in ends for place, part in enumerate(end.address.split("."))
    )
    assert all(len(end.name) <= 15 for end in ends)


def test_more_links_than_a_long_name_has_room_for_are_refused() -> None:
    with pytest.raises(TestbedError, match="'manyhosts' has too many links"):
        make_plan(*star(200, hub="manyhosts"))
