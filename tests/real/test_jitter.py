"""Jitter on real packets: the draws are those of the simulation, and the timing verdict still finds what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis import exchanges
from testbed import audit, fidelity
from testbed.cell import Cell
from testbed.report import Report
from tests.conftest import two_hosts, typed
from tests.sim.testbed.test_simulation import simulate

pytestmark = [pytest.mark.slow("tests/virtual_kernel has jitter"), pytest.mark.emulated]

JITTER_S = 0.008


def scenario() -> dict[str, Any]:
    made = two_hosts(rate_bps=5_000_000, delay_s=0.02, duration_s=6.0, seed=4)
    (line,) = made["links"]
    line["forward"] = {**line["forward"], "jitter_s": JITTER_S}
    line["reverse"] = {**line["forward"], "keep_order": True}
    options = {"interval_s": 0.004, "packet_bytes": 300}
    made["workload"] = [
        {"name": "probe", "kind": "probe", "from": "a", "to": "b", "start_s": 0.2, "port": 5001, "options": options}
    ]
    return made


def draws(folder: Path, direction: str) -> list[int]:
    """Deviations in ns that a direction drew, in the order in which packets left its queue."""
    lines = map(json.loads, (folder / "telemetry" / "links.jsonl").read_text().splitlines())
    drawn = [row for row in lines if "jitter_ns" in row and row["direction"] == direction]
    return [row["jitter_ns"] for row in sorted(drawn, key=lambda row: row["t_ns"] - row["jitter_ns"])]


def run(folder: Path) -> Report:
    made = typed(scenario())
    with Cell("jitter") as cell:
        cell.build(made)
        problems = [problem for line in cell.calibrate(made) for problem in line.problems]
        assert not problems
        return audit.audited(made, cell.run(made, folder), folder)


@pytest.fixture(scope="module")
def folders(emulation: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Of the emulated run, whose verdict is good, and of the simulated one."""
    base = tmp_path_factory.mktemp("jitter")
    found = fidelity.problems(run(base / "emulated"))
    assert found == [], [problem.sentence for problem in found]
    simulated = scenario()
    for node in simulated["nodes"]:
        node["stack"] = {"name": "sack", "options": {}}
    simulate(simulated, base / "sim")
    return base / "emulated", base / "sim"


def test_simulator_and_emulator_draw_the_same_for_each_packet(folders: tuple[Path, Path]) -> None:
    emulated, sim = (draws(folder, "forward") for folder in folders)
    count = min(len(emulated), len(sim))
    assert count > 1000
    assert emulated[:count] == sim[:count]
    assert max(map(abs, emulated)) <= JITTER_S * 1e9
    # Five standard deviations of the mean of uniform draws.
    assert abs(sum(emulated) / len(emulated)) < 5 * JITTER_S * 1e9 / (3 * len(emulated)) ** 0.5


def test_probes_overtake_each_other_on_one_way_and_not_on_the_other(folders: tuple[Path, Path]) -> None:
    for folder in folders:
        table = exchanges.read(folder, typed(scenario()).flow("probe"))
        assert table is not None
        answered = table.drop_nulls("returned_s").sort("seq")
        overtaken = answered["arrived_s"].diff().drop_nulls() < 0
        assert overtaken.sum() > 100
        # In order of arrival at the far end, they return in that order.
        assert answered.sort("arrived_s")["returned_s"].is_sorted()
        one_way_s = answered["arrived_s"] - answered["sent_s"]
        assert one_way_s.mean() == pytest.approx(0.02 + 300 * 8 / 5e6, abs=5e-4)


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ({"delay_s": 0.003}, "every packet took"),
        ({"reorder_every": 50}, "left after packets that had entered later"),
        ({"jitter_s": 0.002}, "had a jitter that the link did not report, or more than it declares"),
    ],
)
def test_a_fault_of_a_line_with_jitter_makes_the_run_invalid(
    kind: dict[str, float], sentence: str, emulation: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKCHANNEL_FAULT", json.dumps({"link": "line", "kind": kind}))
    made = typed(scenario())
    with Cell("faulty") as cell:
        cell.build(made)
        found = fidelity.problems(audit.audited(made, cell.run(made, tmp_path), tmp_path))
    assert any(sentence in problem.sentence for problem in found), [problem.sentence for problem in found]
