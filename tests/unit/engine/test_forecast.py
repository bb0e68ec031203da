"""What a plan will take: from what its links can carry, and from what earlier runs took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analysis.store.documents import Batch
from analysis.store.rows import HistoryRow
from experiments.engine import pace
from experiments.engine.forecast import (
    BUILD_S,
    BYTES_A_STORE,
    COMMAND_S,
    ROW_BYTES_A_RUN,
    Forecast,
    Forecaster,
    effort_s,
    traffic,
)
from experiments.language import registry, source
from experiments.language.backends import Backend
from experiments.language.campaign import Plan, Run, expand, load
from testbed import build_cache

FILE = """\
name: t
backend: BACKEND
stack: newreno
network:
  topology: asymmetric-path
  forward: {rate: 1 Mbit/s, delay: 5 ms}
  reverse: {rate: 64 kbit/s, delay: 50 ms}
workload:
  - {name: f, from: server, to: client}
duration: 12 s
variation: {start: none}
repetitions: 10
"""
SIMULATED = FILE.replace("BACKEND", "sim")


def plan(backend: str = "emulated", **changes: str) -> Plan:
    text = FILE.replace("BACKEND", backend)
    for was, becomes in changes.items():
        text = text.replace(f"{was}: ", f"{was}: {becomes} #")
    return expand(source.parse("c.yaml", text))


def forecast(runs: Sequence[Run], history: Sequence[HistoryRow], cpus: int, **options: Any) -> Forecast:
    return Forecaster(runs[0].backend, history, cpus, **options).forecast(runs)


def captured(text: str) -> float:
    """Packets that are captured of a run of this campaign."""
    return traffic(expand(source.parse("c.yaml", text)).runs[0].scenario).captured


def past(of: Plan, took_s: float, size: int, cells: int = 1) -> list[HistoryRow]:
    return [HistoryRow(run.document, Batch(cells=cells), took_s, size) for run in of.runs]


def test_captured_packets_by_hand() -> None:
    # 1 Mbit/s for 12 s are 1000 packets of 1500 bytes and 500 acks, each at both ends of three links.
    assert traffic(plan().runs[0].scenario).captured == pytest.approx(1500 * 6)
    assert captured(f"{SIMULATED}capture: {{at: [client:client-access]}}\n") == pytest.approx(1500)
    # Two flows share the line.
    two = SIMULATED.replace("workload:", "workload:\n  - {name: g, from: server, to: client}")
    assert captured(two) == pytest.approx(1500 * 6)


@pytest.mark.parametrize(
    ("kind", "packets"),
    [
        # A probe every 50 ms, a frame of speech every 20 ms, 16 kbit/s of 100 bytes, a page of 30 kB a second.
        ("kind: probe", 20), ("kind: call", 50), ("kind: cbr, options: {rate: 16 kbit/s, packet: 100 B}", 20),
        ("kind: web", 20), ("kind: bulk", 1e6 / 12_000),
    ],
)  # fmt: skip
def test_an_application_that_sends_little_does_not_fill_the_line(kind: str, packets: float) -> None:
    text = SIMULATED.replace("name: f,", f"name: f, {kind},")
    assert captured(text) == pytest.approx(packets * 12 * 1.5 * 6)
    # Nor does it halve what a transfer beside it is expected to send.
    beside = SIMULATED.replace("workload:", f"workload:\n  - {{name: g, {kind}, from: server, to: client}}")
    share = 0.5 if kind == "kind: bulk" else 1.0
    own = 1e6 / 12_000 * 0.5 if kind == "kind: bulk" else packets
    assert captured(beside) == pytest.approx((1e6 / 12_000 * share + own) * 12 * 1.5 * 6)


@pytest.mark.parametrize("name", ["interval_s", "distance_s", "rate_bps"])
@pytest.mark.parametrize("default", [0.0, None])
def test_an_option_of_ones_own_workload_that_is_zero_or_absent_limits_nothing(
    monkeypatch: pytest.MonkeyPatch, name: str, default: float | None
) -> None:
    run = plan("sim").runs[0].scenario
    own = SimpleNamespace(params=[SimpleNamespace(name=name, default=default)])
    monkeypatch.setattr(registry, "find", lambda _kind, _name: own)
    assert traffic(run).captured == pytest.approx(1e6 / 12_000 * 12 * 1.5 * 6)


def test_effort_is_length_in_real_time_and_calculation_in_virtual_time() -> None:
    assert effort_s(plan().runs[0]) == 12
    # 1500 packets cross three links each, and every one is captured at six places.
    assert effort_s(plan("sim").runs[0]) == pytest.approx(0.25 + 1500 * (3 * 4e-7 + 6 * 6e-6))
    long = SIMULATED.replace("12 s", "12000 s")
    uncaptured = expand(source.parse("c.yaml", long + "capture: {at: [none]}\n")).runs[0]
    assert effort_s(uncaptured) == pytest.approx(0.25 + 1_500_000 * 3 * 4e-7)


def test_a_trace_carries_its_mean_rate(tmp_path: Path) -> None:
    # Three opportunities in 36 ms are 1 Mbit/s.
    (tmp_path / "slow").write_text("12\n24\n36\n")
    (tmp_path / "c.yaml").write_text(
        SIMULATED.replace("topology: asymmetric-path", "topology: asymmetric-path\n  link: mahimahi")
        .replace("forward: {rate: 1 Mbit/s", "forward: {trace: slow")
        .replace("reverse: {rate: 64 kbit/s", "reverse: {trace: slow")
        + "capture: {at: [client:client-access]}\n"
    )
    assert traffic(load(tmp_path / "c.yaml").runs[0].scenario).captured == pytest.approx(1500)


def test_nothing_takes_nothing_one_by_one_the_sum_and_many_at_once_less() -> None:
    nothing, runs = Forecaster(Backend.SIM, [], 2).forecast([]), plan().runs
    assert (nothing.runs, nothing.time_s, nothing.disk_bytes) == (0, 0.0, 0.0)
    alone = forecast(runs, [], 2, jobs=1)
    assert 10 * 12 < alone.time_s < 10 * 14 + 6
    together = forecast(runs, [], 2)
    assert together.cells > 4
    assert 12 < together.time_s < alone.time_s / 3


def test_a_lab_carries_one_run_after_another() -> None:
    runs = plan("physical").runs
    result = forecast(runs, past(plan("physical"), 12.5, 1000, cells=7), 2, jobs=4)
    assert result.cells == 1
    assert result.time_s > 10 * 12.5


def test_earlier_runs_of_a_point_are_believed() -> None:
    runs = plan().runs
    result = forecast(runs, past(plan(), 12.5, 7_000_000), 2, jobs=1)
    assert result.disk_bytes == 10 * (7_000_000 + ROW_BYTES_A_RUN)
    assert result.based_on == 10
    assert forecast(runs, past(plan(), 12.5, 1000, cells=7), 2).cells == 7


def test_other_points_scale_the_estimate() -> None:
    fresh = plan(duration="24 s").runs
    result = forecast(fresh, past(plan(), 12.5, 10_000_000), 2, jobs=1)
    bare = forecast(fresh, [], 2, jobs=1)
    usual = forecast(plan().runs, [], 2, jobs=1)
    files = [made.disk_bytes - 10 * ROW_BYTES_A_RUN - store for made, store in
             ((result, 0), (bare, BYTES_A_STORE), (usual, BYTES_A_STORE))]  # fmt: skip
    assert files[0] == pytest.approx(files[1] * 100_000_000 / files[2])
    assert bare.disk_bytes > usual.disk_bytes


def test_the_analysis_of_simulations_counts_and_that_of_real_packets_does_not() -> None:
    of = plan("sim")
    assert forecast(of.runs, past(of, 3.0, 1000), 2).time_s == pytest.approx(10 * 3.0 / 2 + COMMAND_S, rel=0.1)
    for backend, one_s in (("sim", 3.0 + 9.0), ("emulated", 12.5 + 1.0)):
        of = plan(backend)
        history = [replace(row, analysed_s=9.0) for row in past(of, 3.0 if backend == "sim" else 12.5, 1000)]
        alone = forecast(of.runs[:1], history, 2).time_s
        assert alone == pytest.approx(one_s + (COMMAND_S if backend == "sim" else BUILD_S), rel=0.1)


def test_runs_without_captures_store_their_telemetry() -> None:
    # 1500 packets. Measured: 786 kB of telemetry for 124,000 packets.
    sizes = []
    for telemetry in ("true", "false"):
        text = f"{SIMULATED}capture: {{at: [none], telemetry: {telemetry}, counters: {{every: 1 s}}}}\n"
        sizes.append(forecast(expand(source.parse("c.yaml", text)).runs[:1], [], 2).disk_bytes)
    assert sizes[0] - sizes[1] == pytest.approx(1500 * 786e3 / 124_000, rel=0.1)


def test_the_machines_pace_counts_where_no_run_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    of = plan("sim")
    modelled = forecast(of.runs, [], 2)
    learnt = Forecaster(Backend.SIM, past(of, 3.0, 10_000_000), 2).pace
    pace.keep("sim", learnt)
    assert pace.of("sim") == learnt
    assert pace.of("emulated") == pace.UNMEASURED
    fresh = forecast(of.runs, [], 2, pace=pace.of("sim"))
    assert fresh.time_s == pytest.approx(10 * 3.0 / 2 + COMMAND_S, rel=0.1)
    assert fresh.disk_bytes == pytest.approx(100_000_000 + 10 * ROW_BYTES_A_RUN + BYTES_A_STORE)
    assert (fresh.based_on, fresh.pace_runs, modelled.pace_runs) == (0, 10, 0)
    # A single slow run moves what ten have shown by a tenth of the way.
    pace.keep("sim", pace.Pace(learnt.time * 12, learnt.bytes, 1))
    assert pace.of("sim").time == pytest.approx(learnt.time * 2)
    (tmp_path / "backchannel/pace/runs.json").write_text("{")
    assert pace.of("sim") == pace.UNMEASURED


def test_the_suite_does_not_read_the_pace_of_the_users_machine() -> None:
    assert not any(build_cache.place("pace").parent.glob("pace/*"))
    assert build_cache.place("kernels").is_dir()
