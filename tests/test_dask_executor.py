"""The executor on a cluster of this machine, mostly without any run."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import dask
import pytest
from rich.console import Console

from analysis.store import Store
from experiments.engine import dask_executor, machine
from experiments.engine.dask_executor import DaskExecutor
from experiments.engine.options import Options
from experiments.engine.pool import Job, PoolStatus, Result
from experiments.engine.scheduling import run_campaign
from experiments.language.campaign import Run, load
from experiments.terminal import TerminalReporter
from testbed import node_binary


class Deaf:
    """Hears what must not be said, and how many cells are at work."""

    def __init__(self) -> None:
        self.lost: list[str] = []
        self.running: list[int] = []

    def on_status(self, machine_id: str, beat: PoolStatus) -> None:
        self.running.append(beat.running)

    def on_result(self, machine_id: str, job: Job, result: Result) -> None:
        pass

    def on_lost(self, machine_id: str, job: Job, reason: str) -> None:
        self.lost.append(reason)


def test_workers_that_live_are_never_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store.open(tmp_path).close()
    # Dask's client writes over its own copy of who is there, without the workers, as often as this says.
    with dask.config.set({"distributed.client.scheduler-info-interval": "1ms"}):
        executor = DaskExecutor(None, Options(tmp_path), Deaf())
    try:
        monkeypatch.setattr("experiments.engine.dask_executor.LOOK_S", 0.0)
        seen = []
        until_s = time.monotonic() + 3
        while time.monotonic() < until_s:
            executor.machines()
            seen.append(len(executor._workers))
        assert len(seen) > 100
        assert set(seen) == {seen[0]}
        assert seen[0] > 0
    finally:
        executor.close()


def test_a_worker_with_other_code_says_so() -> None:
    """In words: what a worker raises, Dask writes to its log with a traceback."""
    said = dask_executor._introduce({"topic": "unused"}, "0" * 64)
    assert said == (
        f"its sources have the digest {machine.sources()[:12]} and the runner's {'0' * 12}: bring both to one commit, "
        "a worker that a role made by './backchannel testbed site'"
    )


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the code, which is now what runs here."""
    for name in machine.FOLDERS:
        shutil.copytree(node_binary.ROOT / name, tmp_path / name)
    for name in ("Cargo.toml", "Cargo.lock"):
        shutil.copy(node_binary.ROOT / name, tmp_path / name)
    monkeypatch.setattr(node_binary, "ROOT", tmp_path)
    machine.sources.cache_clear()
    yield tmp_path
    machine.sources.cache_clear()


@pytest.mark.parametrize("name", ["testbed/links/src/lib.rs", "experiments/engine/pool.py", "Cargo.lock"])
def test_code_is_other_code_where_one_source_differs(copied: Path, name: str) -> None:
    before = machine.sources()
    (copied / "experiments/quickstart.yaml").write_text("a campaign is no code")
    machine.sources.cache_clear()
    assert machine.sources() == before
    with (copied / name).open("a") as file:
        file.write("\n")
    machine.sources.cache_clear()
    assert machine.sources() != before


def test_a_release_without_commit_or_rust_sources_is_held_against_the_runner(copied: Path) -> None:
    shutil.rmtree(copied / "testbed" / "links")
    (copied / machine.RELEASED).write_text("1" * 64 + "\n")
    assert machine.version().count("commit") == 0
    said = dask_executor._introduce({"topic": "unused"}, "0" * 64)
    assert f"the digest {'1' * 12} and the runner's {'0' * 12}" in str(said)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskExecutor]:
    """Three workers on this machine."""
    results = tmp_path_factory.mktemp("results")
    Store.open(results).close()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("os.cpu_count", lambda: 3)
        executor = DaskExecutor(None, Options(results), Deaf())
    executor._client.wait_for_workers(3)
    executor._look()
    yield executor
    executor.close()


@pytest.fixture
def three(cluster: DaskExecutor) -> DaskExecutor:
    """As if none of them had said anything."""
    for said in (cluster._beats, cluster._running, cluster._heard_s):
        said.clear()
    return cluster


def told(executor: DaskExecutor) -> list[tuple[int, int]]:
    """What the pools of all workers know: cells of their own, and beside them."""

    def known() -> tuple[int, int]:
        from experiments.engine.dask_executor import _pools

        ((pool, _),) = _pools.values()
        return pool._allowed, pool._others

    for _ in range(2):
        # What was new while a word was on its way follows it.
        for thread in executor._telling.values():
            thread.join(10)
        executor.machines()
    return sorted(executor._client.run(known).values())


def beat(worker: str, allowed: int, running: int) -> tuple[float, dict[str, Any]]:
    """A worker's word, as Dask hands it over."""
    return 0.0, {"worker": worker, **asdict(PoolStatus(0.5, 0.0, 0.0, running, 0, allowed, ()))}


def test_workers_of_one_machine_share_what_it_is_allowed(three: DaskExecutor) -> None:
    (machine,) = three.machines()
    for cells, shares in ((1, [0, 0, 1]), (5, [1, 2, 2]), (12, [4, 4, 4]), (0, [0, 0, 0])):
        three.allow(machine.id, cells)
        assert [share for share, _ in told(three)] == shares


def test_every_worker_hears_what_is_at_work_beside_it(three: DaskExecutor) -> None:
    (machine,) = three.machines()
    three.allow(machine.id, 12)
    told(three)
    for number, worker in enumerate(sorted(three._workers)):
        three._on_event(beat(worker, 4, number + 2))
    listener = three._listener
    assert isinstance(listener, Deaf)
    assert listener.running == [2], "the machine is read as often as one worker speaks"
    three._heard_s.clear()
    three._on_event(beat(max(three._workers), 4, 4))
    assert listener.running == [2, 9]
    assert told(three) == [(4, 5), (4, 6), (4, 7)]


def test_a_worker_that_did_not_hear_its_share_is_told_again(three: DaskExecutor) -> None:
    (machine,) = three.machines()
    three.allow(machine.id, 3)
    assert told(three) == [(1, 0)] * 3

    def forget() -> None:
        from experiments.engine.dask_executor import _pools

        ((pool, _),) = _pools.values()
        pool.allow(7)

    three._client.run(forget)
    assert told(three) == [(7, 0)] * 3
    three._on_event(beat(min(three._workers), 7, 0))
    assert told(three) == [(1, 0)] * 3


CAMPAIGN = """
name: single
backend: sim
network: {topology: line, forward: {rate: 10 Mbit/s, delay: 10 ms}}
stack: newreno
workload:
  - {name: bulk, from: left, to: right}
duration: 10 s
repetitions: 4
"""


def test_one_at_a_time_is_one_on_a_cluster_as_well(tmp_path: Path) -> None:
    file = tmp_path / "single.yaml"
    file.write_text(CAMPAIGN)
    plan = load(file)
    options = Options(tmp_path / "results", jobs=1, scheduler="local")
    assert run_campaign(plan, options, TerminalReporter(Console(quiet=True))).landed == 4
    store = Store.open(tmp_path / "results")
    manifests = [found["manifest"] for run_id in plan.run_ids if (found := store.run(run_id)) is not None]
    store.close()
    assert [one["batch"]["cells"] for one in manifests] == [1] * 4
    manifests.sort(key=lambda one: one["started"])
    for one, following in zip(manifests, manifests[1:], strict=False):
        assert one["started"] + one["took_s"] <= following["started"]


def test_a_run_that_a_worker_refuses_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Here:
        address = "tcp://10.0.0.7:1"

    store = Store.open(tmp_path)
    monkeypatch.setitem(dask_executor._pools, "topic", (None, store))  # type: ignore[arg-type]
    monkeypatch.setattr(dask_executor, "missing_for_emulation", lambda: ["it is not root"])
    monkeypatch.setattr(dask_executor, "get_worker", Here)
    job = Job(Run("r00", 0, 0, "emulated", {}), 1)
    result = dask_executor._run_here(asdict(job), {"topic": "topic"})
    assert (result.failed, result.problems) == (True, ("worker tcp://10.0.0.7:1: it is not root",))
    assert store.tried_runs(["r00"]) == {"r00"}
    store.close()
