"""Captures to hold the classifier against: our own runs, and the kernel's TCP over lines that spoil packets."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed import node_binary
from testbed.addressing import as_json
from testbed.cell import Cell
from tests.conftest import LATE_IS_FINE, run_validly, two_hosts, typed
from tests.support.addresses import planned

#: What a line does to packets of the data, and whether to their acks as well.
SPOILT: dict[str, tuple[dict[str, Any], bool]] = {
    "loss": ({"errors": [{"name": "uniform", "options": {"probability": 0.02}}]}, True),
    "damage": ({"errors": [{"name": "uniform", "options": {"probability": 0.03, "effect": "damage"}}]}, True),
    "small-queue": ({"queue": {"name": "droptail", "options": {"limit_packets": 4}}}, False),
    "reordering": ({"errors": [{"name": "reorder", "options": {"probability": 0.02, "delay_s": 0.01}}]}, False),
    "duplicates": ({"errors": [{"name": "duplicate", "options": {"probability": 0.02}}]}, True),
}
STACKS = ("tahoe", "reno-bsd", "newreno", "sack", "modern")


def spoilt(name: str, stack: dict[str, Any], seed: int, duration_s: float) -> dict[str, Any]:
    """Two hosts on such a line."""
    scenario = two_hosts(rate_bps=4_000_000, delay_s=0.015, duration_s=duration_s, seed=seed)
    variant, acks_too = SPOILT[name]
    scenario["links"][0]["forward"] |= variant
    if acks_too:
        scenario["links"][0]["reverse"] = scenario["links"][0]["reverse"] | variant
    for node in scenario["nodes"]:
        node["stack"] = stack
    return scenario


def of_the_kernel(folder: Path) -> Iterator[Path]:
    """The kernel's TCP, in a cell, captured at both ends."""
    with Cell("corpus") as cell:
        for seed, name in enumerate(SPOILT):
            for stack in ("reno", "cubic"):
                options = {"sack": name != "small-queue"}
                scenario = spoilt(name, {"name": stack, "options": options}, seed + 1, 4.0) | {"fidelity": LATE_IS_FINE}
                cell.build(typed(scenario))
                out = folder / f"kernel-{name}-{stack}"
                # Of a capture that lost packets everybody may think something else.
                run_validly(cell, scenario, out)
                yield from sorted((out / "captures").glob("*.pcap"))


def of_the_research_stack(folder: Path) -> Iterator[Path]:
    """The research TCP in virtual time, captured at both ends."""
    for seed, name in enumerate(SPOILT):
        for stack in STACKS:
            scenario = spoilt(name, {"name": stack, "options": {}}, seed + 1, 3.0)
            # Whole packets, so that every checksum can be seen.
            scenario["capture"]["snaplen"] = 65_535 if stack == "sack" else 128
            out = folder / f"research-{name}-{stack}"
            given = {"scenario": scenario, "nodes": as_json(planned(scenario))}
            node_binary.call("simulate", "--out", str(out), stdin=json.dumps(given))
            yield from sorted((out / "captures").glob("*.pcap"))


def of_campaigns(results: Path, folder: Path) -> Iterator[Path]:
    """An emulated campaign's, at every interface."""
    for number, packed in enumerate(sorted(results.glob("runs/*/*/captures/*.pcap.gz"))):
        path = folder / f"campaign-{number}" / "captures" / packed.name.removesuffix(".gz")
        path.parent.mkdir(parents=True)
        with gzip.open(packed) as source, path.open("wb") as target:
            shutil.copyfileobj(source, target)
        yield path
