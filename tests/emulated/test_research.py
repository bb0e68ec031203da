"""The research stack on real wires, with the kernel's TCP at the other end and with itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.execute import analyse
from testbed.cell import Cell
from tests.conftest import two_hosts

pytestmark = pytest.mark.emulated

LOSSY = {"errors": [{"name": "uniform", "options": {"probability": 0.005}},
                    {"name": "uniform", "options": {"probability": 0.003, "effect": "damage"}}]}  # fmt: skip


@pytest.fixture(scope="module")
def cell(emulation: None) -> Iterator[Cell]:
    with Cell("research") as cell:
        yield cell


def scenario(left: dict[str, Any], right: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Both hosts send 3 MB to each other at once, over a line that loses and damages packets both ways."""
    made = two_hosts(rate_bps=20_000_000, delay_s=0.01, duration_s=12.0, **changes)
    line = made["links"][0]
    line["forward"], line["reverse"] = line["forward"] | LOSSY, line["reverse"] | LOSSY
    made["nodes"][0]["stack"], made["nodes"][1]["stack"] = left, right
    made["workload"] = [
        {"name": "right", "kind": "bulk", "from": "a", "to": "b", "start_s": 0.0, "port": 5001, "bytes": 3_000_000},
        {"name": "left", "kind": "bulk", "from": "b", "to": "a", "start_s": 0.0, "port": 5002, "bytes": 3_000_000},
    ]
    return made


def stack(name: str, **options: Any) -> dict[str, Any]:
    return {"name": name, "options": options}


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (stack("modern"), stack("reno")),
        (stack("modern", sack=False, timestamps=False), stack("cubic")),
        (stack("newreno", rto_min_s=0.2, timer="modern"), stack("reno", sack=False, timestamps=False)),
        (stack("reno"), stack("sack", rto_min_s=0.2, timer="modern")),
        (stack("modern"), stack("modern", window_scaling=False)),
    ],
    ids=lambda one: "-".join([one["name"], *(f"{key}={value}" for key, value in one["options"].items())]),
)
def test_both_ways_at_once_every_byte_arrives(
    cell: Cell, tmp_path: Path, left: dict[str, Any], right: dict[str, Any]
) -> None:
    made = scenario(left, right)
    cell.build(made)
    report = cell.run(made, tmp_path)
    lost = report["driver"]["links"]["line"]
    assert lost["forward"]["error_losses"] > 5
    assert lost["reverse"]["error_losses"] > 5
    for flow in report["flows"].values():
        assert flow["receive"]["payload_ok"]
        assert flow["receive"]["bytes"] == 3_000_000
        assert flow["receive"]["end"] == "finished"
        assert flow["send"]["outcome"] == "completed"


def test_the_kernel_gets_its_address_back(cell: Cell, tmp_path: Path) -> None:
    """A testbed that ran the research stack runs the kernel's again."""
    made = two_hosts(duration_s=2.0)
    made["nodes"][0]["stack"] = stack("newreno")
    cell.build(made)
    assert cell.run(made, tmp_path / "1")["flows"]["bulk"]["receive"]["bytes"] > 50_000
    assert cell.run(two_hosts(duration_s=2.0), tmp_path / "2")["flows"]["bulk"]["receive"]["bytes"] > 50_000


def test_the_wire_carries_what_virtual_time_carries(cell: Cell, tmp_path: Path) -> None:
    """The same endpoint on the same line, in real and in virtual time: throughput within 3 %."""
    from tests.test_sim import simulate

    made = two_hosts(rate_bps=1_000_000, delay_s=0.05, duration_s=15.0)
    for node in made["nodes"]:
        node["stack"] = stack("newreno", max_window_segments=30)
    cell.build(made)
    found = []
    for name, run in (("real", cell.run), ("virtual", simulate)):
        report = run(made, tmp_path / name)
        rows = {(row["metric"], row["subject"]): row["value"] for row in analyse(tmp_path / name, made, report)}
        found.append(rows["throughput", "bulk"])
    assert found[0] == pytest.approx(found[1], rel=0.03)
