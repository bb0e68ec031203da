"""Screened runs: the values of ordinary ones, with the same ids, in a row each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa
from rich.console import Console

from analysis.results import Quantity
from analysis.store import RowDamaged, Store
from analysis.store.rows import RunRow
from analysis.store.schema import screened
from analysis.store.screened import Screened, known
from experiments.engine import screen as screening
from experiments.engine.options import Options
from experiments.engine.scheduling import run_campaign
from experiments.engine.screen import screen
from experiments.language import source
from experiments.language.campaign import Plan, Run, expand
from experiments.terminal import TerminalReporter
from testbed import node_binary
from testbed.addressing import as_json, make_plan
from tests.support.waiting import wait_until

CAMPAIGN = """\
name: screened
backend: sim
network:
  topology: asymmetric-path
  forward: {rate: 4 Mbit/s, delay: 10 ms}
  reverse: {rate: 200 kbit/s, delay: 10 ms}
stack: newreno
workload:
  - {name: down, from: server, to: client, start: [0 s, 0.2 s]}
  - {name: up, from: client, to: server, start: [0 s, 0.2 s]}
duration: 2 s
repetitions: 3
sweep: {network.reverse.queue.policy: [droptail, acks-first]}
"""
COUNTERS = "capture={at: [none], telemetry: false, counters: {every: 0.1 s}}"


def stored_run(store: Store, run_id: str) -> RunRow:
    row = store.run(run_id)
    assert row is not None
    return row


def plan(*overrides: str) -> Plan:
    return expand(source.parse("screened.yaml", CAMPAIGN), overrides)


def test_a_screened_run_has_the_id_and_the_values_of_the_run_that_counters_measure(tmp_path: Path) -> None:
    campaign = plan(COUNTERS)
    run_campaign(campaign, Options(tmp_path / "ordinary"), TerminalReporter(Console(quiet=True), quiet=True))
    with Store.open(tmp_path / "ordinary") as store:
        ordinary = {
            run_id: {Quantity(row.name, row.subject, row.unit): row.value for row in stored_run(store, run_id).metrics}
            for run_id in campaign.run_ids
        }
    with Store.open(tmp_path / "screened") as store:
        have, progress = screen(store, campaign.runs, None)
        assert (progress.made, progress.failed) == (6, {})
    assert {run_id: dict(row.values) for run_id, row in have.items()} == ordinary
    assert not [path for path in (tmp_path / "screened").rglob("*") if path.suffix in (".json", ".pcap")]


def test_in_memory_the_simulator_answers_each_line_with_what_it_writes_otherwise(tmp_path: Path) -> None:
    (scenario,) = (run.scenario for run in plan(COUNTERS, "repetitions=1").runs[:1])
    network = as_json(make_plan(scenario.nodes, scenario.links))
    request = {"scenario": scenario.as_json(), "nodes": network}
    captured = {"scenario": plan().runs[0].scenario.as_json(), "nodes": network}
    lines = "\n".join(json.dumps(line) for line in (request, {"scenario": 1}, captured, request))
    words = [node_binary.path(), "simulate"]
    done = subprocess.run(
        [*words, "--in-memory"], input=lines, capture_output=True, text=True, check=True, cwd=tmp_path
    )
    first, broken, refused, second = map(json.loads, done.stdout.splitlines())
    assert not list(tmp_path.iterdir())
    written = subprocess.run(
        [*words, "--out", tmp_path], input=json.dumps(request), capture_output=True, text=True, check=True
    )
    counters = json.loads((tmp_path / "counters.json").read_text())
    assert first == second == {"report": json.loads(written.stdout), "counters": counters}
    assert "invalid scenario" in broken["error"]
    assert "a simulation in memory has counters, and neither captures nor telemetry" in refused["error"]


def test_a_simulator_that_ends_fails_one_run_and_is_restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = plan()
    bad = campaign.runs[2].id
    real = screening.Simulator.run

    def run(self: screening.Simulator, run: Run, names: Sequence[str] | None) -> Screened:
        if run.id == bad:
            self._process.kill()
        return real(self, run, names)

    monkeypatch.setattr(screening.Simulator, "run", run)
    with Store.open(tmp_path) as store:
        have, progress = screen(store, campaign.runs, ["throughput"], jobs=1)
        assert (len(have), list(progress.failed)) == (5, [bad])
        assert "the simulation failed: it was ended by SIGKILL" in progress.failed[bad]


def test_what_was_screened_is_made_with_captures_under_the_same_id(tmp_path: Path) -> None:
    campaign = plan()
    with Store.open(tmp_path) as store:
        have, _ = screen(store, campaign.runs[:1], ["throughput"])
        (run_id,) = have
        # It is not a result, so `run` runs it.
        assert not store.valid_runs(campaign.run_ids)
        options = Options(tmp_path, only=[run_id])
        assert run_campaign(campaign, options, TerminalReporter(Console(quiet=True), quiet=True)).landed == 1
        assert any(file.path.endswith(".pcap.gz") for file in stored_run(store, run_id).files)
        (value,) = (
            row.value for row in stored_run(store, run_id).metrics if (row.name, row.subject) == ("throughput", "down")
        )
    (screened_value,) = (v for quantity, v in have[run_id].values.items() if quantity.subject == "down")
    assert screened_value == pytest.approx(value, rel=0.02)


def test_stored_runs_are_not_made_again_unless_a_metric_is_missing(tmp_path: Path) -> None:
    campaign = plan()
    with Store.open(tmp_path) as store:
        screen(store, campaign.runs[:4], ["throughput"])
        first, progress = screen(store, campaign.runs, ["throughput"])
        assert (progress.reused, progress.made) == (4, 2)
        # Neither flow has a size, so that no run has a value of this; it was measured nevertheless.
        both, progress = screen(store, campaign.runs, ["throughput", "completion_time"])
        assert (progress.reused, progress.made) == (0, 6)
        assert {run_id: row.values for run_id, row in both.items()} == {
            run_id: row.values for run_id, row in first.items()
        }
        assert screen(store, campaign.runs, ["completion_time"])[1].reused == 6


def test_a_killed_screening_keeps_what_it_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c.yaml").write_text(CAMPAIGN.replace("repetitions: 3", "repetitions: 800"))
    program = textwrap.dedent(f"""
        from pathlib import Path
        from analysis.store import Store
        from experiments.engine import screen
        from experiments.language.campaign import load
        screen.BATCH = 10
        with Store.open(Path({str(tmp_path / "r")!r})) as store:
            screen.screen(store, load(Path({str(tmp_path / "c.yaml")!r})).runs, ["throughput"], jobs=1)
    """)
    process = subprocess.Popen([sys.executable, "-c", program], env=os.environ)

    def stored() -> int:
        if not (tmp_path / "r/results.sqlite").exists():
            return 0
        with Store.open(tmp_path / "r") as store:
            return int(store.scalars(sa.select(sa.func.count()).select_from(screened))[0])

    wait_until(lambda: stored() >= 10, "a batch is stored")
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = stored()
    assert kept % 10 == 0
    campaign = expand(source.read(tmp_path / "c.yaml"))
    monkeypatch.setattr(screening, "BATCH", 10)
    with Store.open(tmp_path / "r") as store:
        have = known(store, campaign.run_ids)
        assert len(have) == kept
        some = [run for run in campaign.runs if run.id in have] + list(campaign.runs[-3:])
        assert screen(store, some, ["throughput"])[1].made == 3


def test_a_metric_that_needs_captures_is_refused_with_the_reason(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        _, progress = screen(store, plan().runs[:1], ["ack_compression"])
    (reason,) = progress.failed.values()
    assert "a run without captures has no such metric: ack_compression" in reason


def test_a_damaged_row_is_not_read(tmp_path: Path) -> None:
    campaign = plan()
    with Store.open(tmp_path) as store:
        screen(store, campaign.runs[:1], ["throughput"])
        with store.writing() as connection:
            connection.execute(sa.update(screened).values(metrics=sa.func.replace(screened.c.metrics, "down", "dawn")))
        with pytest.raises(RowDamaged, match="differs from its checksum"):
            known(store, campaign.run_ids)
