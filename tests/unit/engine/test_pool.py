"""Which cell gets which run."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from analysis.store import PendingRun, Store
from analysis.store.documents import Documents, Manifest
from experiments.engine import pool
from experiments.engine.execution import Finish, Worker, lines_key
from experiments.engine.jobs import Job, Result
from experiments.engine.pool import CellPool
from experiments.language import source
from experiments.language.backends import Backend
from experiments.language.campaign import Run, expand
from testbed.errors import TestbedError
from testbed.local_folders import private_folder
from testbed.report import Phase, Progress, Report
from testbed.scenario import ScenarioDocument
from testbed.slots import Slots
from tests.support.campaign_texts import one_line
from tests.support.waiting import HANGS_S, wait_until

FILE = one_line("pool", "repetitions: 6\nvariation: {round_trip: none}\nsweep: {network.forward.delay: [10 ms, 20 ms]}")


class Made:
    """A worker that is done when the test says so; it notes what it ran, and calibrates like a real one."""

    log: list[tuple[str, str]] = []
    gates: dict[str, threading.Event] = {}

    def __init__(self, name: str, on_progress: Any, _cells: object, _building: object) -> None:
        self.name = name
        self.calibrated: frozenset[str] = frozenset()

    def run(self, run: Run, attempt: int, folder: Path) -> Finish:
        self.log.append((self.name, run.id))
        assert self.gates[run.id].wait(HANGS_S)
        self.calibrated |= {lines_key(run.scenario)}
        return lambda batch: PendingRun(
            run.id, "sim", Documents(run.document.document, Manifest(batch=batch).as_json()), [], [], 1, folder
        )

    def close(self) -> None:
        pass

    kill = close


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    monkeypatch.setattr(pool, "Worker", Made)
    result = sorted(expand(source.parse("pool.yaml", FILE)).runs, key=lambda run: (run.repetition, run.point))
    Made.log, Made.gates = [], {run.id: threading.Event() for run in result}
    return result


class Watched:
    """A pool with the results that came back."""

    def __init__(self, tmp_path: Path) -> None:
        self.store = Store.open(tmp_path / "results")
        self.pool = CellPool(self.store, lambda beat: None)
        self.pool.allow(2)
        self.results: dict[str, Result] = {}
        self.news = threading.Condition()

    def submit(self, run: Run) -> None:
        def done(result: Result) -> None:
            with self.news:
                self.results[run.id] = result
                self.news.notify_all()

        self.pool.submit(Job(run, 1), done)

    def until(self, runs: list[Run]) -> None:
        with self.news:
            assert self.news.wait_for(lambda: all(run.id in self.results for run in runs), HANGS_S)

    def started(self, count: int) -> None:
        wait_until(lambda: len(Made.log) >= count, f"{count} started runs")

    def idle(self) -> None:
        """Returns once no cell is at work: a cell is released after its result."""
        wait_until(lambda: self.pool.status(0.5, 0.0).running == 0, "an idle pool")


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    result = Watched(tmp_path)
    yield result
    for gate in Made.gates.values():
        gate.set()
    result.pool.close()
    result.store.close()


def test_no_more_at_once_than_allowed(runs: list[Run], watched: Watched) -> None:
    for run in runs[:5]:
        watched.submit(run)
    # Whoever is to begin is at work from here on, whenever its thread comes to it.
    assert watched.pool.status(0.5, 0.0).running == 2
    watched.pool.allow(3)
    assert watched.pool.status(0.5, 0.0).running == 3
    watched.started(3)
    for run in runs:
        Made.gates[run.id].set()
    watched.until(runs[:5])
    assert {name for name, _ in Made.log} == {"cell 1", "cell 2", "cell 3"}


def test_a_cell_goes_on_with_lines_that_it_has_measured(runs: list[Run], watched: Watched) -> None:
    for run in runs:
        watched.submit(run)
    watched.started(2)
    for count, run in enumerate(runs):
        # One ends after the other; each leaves its cell to a run of its own point.
        Made.gates[run.id].set()
        watched.started(min(len(runs), count + 3))
    watched.until(runs)
    points = {run.id: run.point for run in runs}
    for cell in ("cell 1", "cell 2"):
        assert len({points[run_id] for name, run_id in Made.log if name == cell}) == 1


def test_nobody_is_passed_over_for_ever(runs: list[Run], watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "MOST_PASSED_OVER", 2)
    first, second = ([run for run in runs if run.point == point] for point in (0, 1))
    for run in [first[0], second[0], *first[1:]]:
        Made.gates[run.id].set()
    Made.gates[first[0].id].clear()
    watched.pool.allow(1)
    for run in [first[0], second[0], *first[1:]]:
        watched.submit(run)
    Made.gates[first[0].id].set()
    watched.until([second[0], *first])
    assert [run_id for _, run_id in Made.log].index(second[0].id) == 3


def test_a_pool_that_is_stopped_gives_every_job_back(runs: list[Run], watched: Watched) -> None:
    watched.pool.allow(1)
    for run in runs[:4]:
        watched.submit(run)
    watched.started(1)
    watched.pool.stop()
    watched.until(runs[1:4])
    assert all(watched.results[run.id].stopped for run in runs[1:4])
    assert watched.store.valid_runs([run.id for run in runs]) == set()


def test_nothing_begins_before_the_pool_was_told_how_many_may(runs: list[Run], tmp_path: Path) -> None:
    made = CellPool(Store.open(tmp_path / "untold"), lambda beat: None)
    made.submit(Job(runs[0], 1), lambda result: None)
    assert made.status(0.5, 0.0).running == 0
    made.stop()
    made.close()


def test_a_run_is_told_how_many_cells_were_busy_beside_it(runs: list[Run], watched: Watched) -> None:
    watched.submit(runs[0])
    watched.submit(runs[1])
    for run in runs[:2]:
        Made.gates[run.id].set()
    watched.until(runs[:2])
    assert [watched.results[run.id].cells for run in runs[:2]] == [2, 2]
    landed = watched.store.run(runs[0].id)
    assert landed is not None
    assert landed.documents.manifest.batch.cells == 2
    watched.idle()
    Made.gates[runs[2].id].set()
    watched.submit(runs[2])
    watched.until([runs[2]])
    assert watched.results[runs[2].id].cells == 1


def test_an_unnoted_failure_comes_back_too(runs: list[Run], watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: Any, **__: Any) -> None:
        raise TestbedError("no capture can be read")

    def full(*_: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(watched.store, "commit_run", lost)
    monkeypatch.setattr(watched.store, "note_failure", full)
    Made.gates[runs[0].id].set()
    watched.submit(runs[0])
    watched.until(runs[:1])
    assert str(watched.results[runs[0].id].error) == "the disk is full"
    assert "analysis" not in [name for name, *_ in watched.pool.status(0.5, 0.0).cells]


def emulated_run() -> Run:
    return replace(expand(source.parse("pool.yaml", FILE)).runs[0], backend=Backend.EMULATED)


def test_testbeds_are_built_as_few_at_once_as_the_gate_lets(tmp_path: Path) -> None:
    may, gate = threading.Event(), threading.BoundedSemaphore(1)
    testbed = mock.Mock(**{"calibrate.return_value": [], "run.side_effect": TestbedError("enough")})
    testbed.build.side_effect = lambda _: may.wait(HANGS_S)
    make = mock.Mock(return_value=testbed)
    progress: list[Progress] = []
    ended: list[str] = []

    def work(name: str) -> None:
        worker = Worker(name, progress.append, make, gate)
        with pytest.raises(TestbedError) as failure:
            worker.run(emulated_run(), 1, tmp_path)
        ended.append(str(failure.value))

    threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    wait_until(lambda: make.called, "the first testbed")
    # Time in which another one would begin.
    threads[0].join(0.3)
    assert (make.call_count, progress) == (1, [Progress(Phase.BUILDING)])
    may.set()
    for thread in threads:
        thread.join(HANGS_S)
    assert ended == ["enough"] * 3
    assert make.call_count == 3


def gate_of(cells: CellPool) -> Slots:
    assert isinstance(cells.building, Slots)
    return cells.building


def test_the_gate_is_that_of_all_processes_of_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.slots.runtime_folder", lambda: private_folder(tmp_path / "slots"))
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    store = Store.open(tmp_path / "results")
    first, second, third, fourth = (gate_of(CellPool(store, lambda beat: None)) for _ in range(4))
    assert [first.take(), second.take(), third.take()] == [True, True, False]
    second.release()
    assert fourth.take()


def test_whatever_is_built_goes_through_the_gate_and_nothing_else(tmp_path: Path) -> None:
    run = emulated_run()
    renamed = [{**link, "name": "other"} for link in run.document.document["links"]]
    other = replace(run, document=ScenarioDocument({**run.document.document, "links": renamed}))
    report = Report(t0_epoch_ns=0)
    testbed = mock.Mock(**{"build.return_value": True, "calibrate.return_value": [], "run.return_value": report})
    gate = mock.MagicMock()
    worker = Worker("a", lambda progress: None, lambda _name, _on_progress: testbed, gate)
    for entry, entered in ((run, 1), (run, 1), (other, 2), (other, 2), (run, 3)):
        worker.run(entry, 1, tmp_path)
        assert gate.__enter__.call_count == entered
    worker.close()
    worker.run(run, 1, tmp_path)
    assert gate.__enter__.call_count == 4


class Held:
    """Keeps no CPU awake, and says so."""

    holders: set[Held] = set()

    @property
    def active(self) -> bool:
        return self in self.holders

    def take(self) -> None:
        self.holders.add(self)

    def release(self) -> None:
        self.holders.discard(self)


def test_one_of_two_processes_keeps_the_cpus_awake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[CellPool] = []
    news = threading.Condition()

    def in_real_time(self: CellPool) -> bool:
        with news:
            asked.append(self)
            news.notify_all()
        return True

    def beats(of: CellPool, count: int) -> None:
        with news:
            have = asked.count(of)
            assert news.wait_for(lambda: asked.count(of) >= have + count, HANGS_S)

    monkeypatch.setattr("testbed.slots.runtime_folder", lambda: private_folder(tmp_path / "slots"))
    monkeypatch.setattr(pool, "STATUS_INTERVAL_S", 0.01)
    monkeypatch.setattr("testbed.cpu_hold.CpuHold", Held)
    monkeypatch.setattr(
        "experiments.engine.machine.cpu_seconds", lambda: {"busy": 1.0, "niced": 0.0, "idle": 1.0, "steal": 0.1}
    )
    monkeypatch.setattr(CellPool, "_in_real_time", in_real_time)
    store = Store.open(tmp_path / "results")
    first, second = CellPool(store, lambda beat: None), CellPool(store, lambda beat: None)
    for entry in (first, second):
        beats(entry, 3)
    assert len(Held.holders) == 1
    # When the one that holds ends, the other does.
    first.close()
    beats(second, 3)
    assert len(Held.holders) == 1
    second.close()


@pytest.mark.parametrize(("before", "after"), [(0, 10), (15, 15)])
def test_analysis_has_a_lower_priority_and_raises_none_that_is_lower_already(before: int, after: int) -> None:
    found = []

    def analyse() -> None:
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, max(before, os.getpriority(os.PRIO_PROCESS, thread)))
        pool._lower_priority()
        found.append(os.getpriority(os.PRIO_PROCESS, thread))

    analyst = threading.Thread(target=analyse)
    analyst.start()
    analyst.join()
    assert found == [after]
