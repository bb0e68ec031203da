"""The research stack on real wires, with the kernel's TCP at the other end and with itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed import fidelity, node_binary
from testbed.cell import Cell
from tests.conftest import queue, two_hosts, typed
from tests.sim.testbed.test_simulation import scenario as stacked
from tests.support.processes import run_with_a_pause

pytestmark = pytest.mark.emulated


def named(name: str, **options: Any) -> dict[str, Any]:
    return {"name": name, "options": options}


#: Everything that a network may do to packets.
LOSSY = {
    "errors": [
        named("uniform", probability=0.001),
        named("uniform", probability=0.001, effect="damage"),
        named("reorder", probability=0.002, delay_s=0.002),
        named("duplicate", probability=0.002),
    ]
}
#: Each way, in each of five pairings.
EACH_BYTES = 40_000_000
ALIKE = pytest.mark.slow("each of its two options, or its stack, is in another pairing")


@pytest.fixture(scope="module")
def cell(emulation: None) -> Iterator[Cell]:
    with Cell("research") as cell:
        yield cell


def scenario(left: dict[str, Any], right: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Both hosts send at the same time over a line that loses, damages, reorders and duplicates packets."""
    made = two_hosts(rate_bps=400_000_000, delay_s=0.0003, duration_s=60.0, **changes)
    line = made["links"][0]
    deep = {"queue": queue(limit_packets=200)}
    line["forward"], line["reverse"] = line["forward"] | LOSSY | deep, line["reverse"] | LOSSY | deep
    made["capture"] = {"snaplen": 64, "at": ["none"]}
    made["nodes"][0]["stack"], made["nodes"][1]["stack"] = left, right
    made["workload"] = [
        {"name": "right", "kind": "bulk", "from": "a", "to": "b", "start_s": 0.0, "port": 5001, "bytes": EACH_BYTES},
        {"name": "left", "kind": "bulk", "from": "b", "to": "a", "start_s": 0.0, "port": 5002, "bytes": EACH_BYTES},
    ]
    return made


def check_both_ways(report: dict[str, Any]) -> None:
    """Both flows of `scenario` arrived as they were sent, and ended in order."""
    for flow in report["flows"].values():
        assert flow["receive"]["payload_ok"]
        assert flow["receive"]["bytes"] == EACH_BYTES
        assert flow["receive"]["end"] == "finished"
        assert flow["send"]["outcome"] == "completed"


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (named("modern"), named("reno")),
        pytest.param(named("modern", sack=False, timestamps=False), named("cubic"), marks=ALIKE),
        (named("newreno", rto_min_s=0.2, timer="modern"), named("reno", sack=False, timestamps=False)),
        pytest.param(named("reno"), named("sack", rto_min_s=0.2, timer="modern"), marks=ALIKE),
        (named("modern"), named("modern", window_scaling=False)),
    ],
    ids=lambda item: "-".join([item["name"], *(f"{key}={value}" for key, value in item["options"].items())]),
)
def test_bytes_arrive_in_both_ways(cell: Cell, tmp_path: Path, left: dict[str, Any], right: dict[str, Any]) -> None:
    made = scenario(left, right)
    cell.build(typed(made))
    report = cell.run(typed(made), tmp_path).as_json()
    for direction in ("forward", "reverse"):
        events = report["driver"]["links"]["line"][direction]["events"]
        assert all(events[kind] > 10 for kind in ("lost", "damaged", "reordered", "duplicated")), events
    check_both_ways(report)


def test_the_kernel_gets_its_address_back(cell: Cell, tmp_path: Path) -> None:
    """A network that ran the research stack runs the kernel's stack again."""
    made = two_hosts(duration_s=2.0)
    made["nodes"][0]["stack"] = named("newreno")
    cell.build(typed(made))
    assert cell.run(typed(made), tmp_path / "1").as_json()["flows"]["bulk"]["receive"]["bytes"] > 0
    again = cell.run(typed(two_hosts(duration_s=2.0)), tmp_path / "2").as_json()
    assert again["flows"]["bulk"]["receive"]["bytes"] > 0


@pytest.mark.parametrize("end", ["send", pytest.param("receive", marks=pytest.mark.slow("the other end"))])
def test_a_stopped_end_reports_how_late_it_was(end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments wait in the kernel while an end does not run. The other end only sees a longer round trip."""
    mark = f"BACKCHANNEL_TEST_LATE={os.getpid()}-{end}"
    monkeypatch.setenv(*mark.split("="))
    made = stacked("newreno", duration_s=5.0)
    report = run_with_a_pause(typed(made), tmp_path, mark, lambda words: words[1:3] == [b"load", end.encode()])
    late_s = report.as_json()["flows"]["bulk"][end]["lateness_s"]
    assert 0.25 < late_s["max"] < 30
    name = {"send": "sender", "receive": "receiver"}[end]
    assert any(f"its {name} handled a segment or timer" in problem.sentence for problem in fidelity.problems(report))


@pytest.mark.parametrize("sized", [True, pytest.param(False, marks=pytest.mark.slow("what every other run does"))])
def test_a_run_ends_with_its_last_transfer_where_all_have_a_size(cell: Cell, tmp_path: Path, sized: bool) -> None:
    made = two_hosts(duration_s=12.0 if sized else 4.0)
    if sized:
        for flow in made["workload"]:
            flow["bytes"] = 100_000
    cell.build(typed(made))
    report = cell.run(typed(made), tmp_path).as_json()
    if sized:
        assert report["duration_s"] < 11
        assert all(flow["receive"]["bytes"] == 100_000 for flow in report["flows"].values())
        assert all(flow["send"]["outcome"] == "completed" for flow in report["flows"].values())
    else:
        assert report["duration_s"] == 4.0


def test_links_can_be_measured_after_a_run_of_the_research_stack(cell: Cell, tmp_path: Path) -> None:
    made = stacked("modern", rate_bps=2_000_000, delay_s=0.005, duration_s=0.5)
    cell.build(typed(made))
    cell.run(typed(made), tmp_path).as_json()
    made["links"][0]["forward"]["rate_bps"] = 1_000_000
    measured = [(entry.direction, entry.problems) for entry in cell.calibrate(typed(made))]
    assert measured == [("forward", ()), ("reverse", ())]


def test_frames_that_came_together_do_not_wait_for_another() -> None:
    """The reset behind a SYN ends the endpoint at once. Without the rule it waits for 0.2 s (LONGEST_WAIT_NS)."""
    words = [sys.executable, "-m", "tests.support.queued_frames", node_binary.path(), "5"]
    done = subprocess.run([node_binary.path(), "cell", "--", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # The shortest of five, because a busy machine makes single ones longer.
    assert float(done.stdout) < 0.1
