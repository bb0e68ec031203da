"""Scenarios of connections that a base station splits, and what must hold of them."""

from __future__ import annotations

from typing import Any


def splitting(air: dict[str, Any], wire: dict[str, Any], box: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Kernels on both hosts; at the base station between them, two connections of the research stack for each flow."""
    return over_base({"name": "reno", "options": {}}, "point-to-point", air, wire, box, **changes)


def over_base(
    stack: dict[str, Any], kind: str, air: dict[str, Any], wire: dict[str, Any], box: dict[str, Any], **changes: Any
) -> dict[str, Any]:
    """Hosts with a stack, and a base station between them with a middlebox before a second hop of this kind."""
    return {
        "version": 1,
        "seed": 5,
        "nodes": [
            {"name": "server", "kind": "host", "stack": stack},
            {"name": "base", "kind": "base-station"},
            {"name": "mobile", "kind": "host", "stack": stack},
        ],
        "links": [
            {
                "name": "wire", "kind": "point-to-point", "ends": ["server", "base"],
                "forward": wire, "reverse": wire, "options": {},
            },
            {
                "name": "air", "kind": kind, "ends": ["base", "mobile"], "forward": air, "reverse": air,
                "options": {}, "middleboxes": [{**box, "end": 0}],
            },
        ],
        "capture": {"snaplen": 64, "at": ["none"]},
        **changes,
    }  # fmt: skip


def both_ways(down_bytes: int, up_bytes: int) -> list[dict[str, Any]]:
    """Downloads that the server opens, and uploads that the mobile host opens, at once."""
    flow = {"kind": "bulk", "start_s": 0.0}
    return [
        {**flow, "name": "down", "from": "server", "to": "mobile", "port": 5001, "bytes": down_bytes},
        {**flow, "name": "up", "from": "mobile", "to": "server", "port": 5002, "bytes": up_bytes},
    ]


def check_whole(report: dict[str, Any], sizes: dict[str, int]) -> None:
    """The receiver read what the sender wrote, byte for byte, and both ends closed in order."""
    for name, size in sizes.items():
        flow = report["flows"][name]
        assert flow["receive"]["payload_ok"], name
        assert flow["receive"]["blake3"] == flow["send"]["blake3"], name
        assert (flow["receive"]["bytes"], flow["send"]["bytes"]) == (size, size), name
        assert (flow["receive"]["end"], flow["send"]["outcome"]) == ("finished", "completed"), name
