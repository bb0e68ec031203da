"""Flows of two networks, matched for a comparison."""

from __future__ import annotations

from testbed.scenario import Flow
from web.flow_roles import matched


def flow(name: str, kind: str, sender: str, receiver: str, group: str | None = None) -> Flow:
    return Flow.read({"name": name, "kind": kind, "from": sender, "to": receiver, "port": 5001, "group": group})


HOME = [
    flow("download", "bulk", "server", "client"), flow("upload", "bulk", "client", "server"),
    flow("ping", "probe", "client", "server"),
]  # fmt: skip


def test_names_come_first_then_kind_and_direction() -> None:
    office = [
        flow("backup", "bulk", "client2", "server"), flow("ping", "probe", "client", "server"),
        flow("voice", "call", "client", "server"),
    ]  # fmt: skip
    assert matched(HOME, office, {}) == {"ping": "ping", "backup": "upload"}


def test_a_flow_of_the_other_direction_is_no_match() -> None:
    two = [flow("backup", "bulk", "client", "server"), flow("sync", "bulk", "client", "server")]
    assert matched(HOME, two, {}) == {"backup": "upload"}


def test_where_the_networks_have_other_sides_the_kind_decides() -> None:
    line = [flow("transfer", "bulk", "left", "right")]
    assert matched(HOME, line, {}) == {"transfer": "download"}


def test_what_somebody_says_comes_before_names() -> None:
    assert matched(HOME, HOME, {"upload": "download"}) == {"upload": "download", "ping": "ping"}
    assert matched(HOME, HOME, {"upload": ""})["download"] == "download"
    assert "upload" not in matched(HOME, HOME, {"upload": ""})


def test_what_somebody_says_of_a_third_network_changes_nothing_here() -> None:
    assert matched(HOME, HOME, {"backup": "upload"}) == {name: name for name in ("download", "upload", "ping")}
