"""The Dask executor on a cluster of this machine, mostly without runs."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import pytest
from rich.console import Console

from analysis import versions
from analysis.store import Store
from experiments.engine import dask_worker
from experiments.engine.dask_executor import DaskExecutor
from experiments.engine.dask_worker import CampaignPlugin
from experiments.engine.options import Options
from experiments.engine.pool import Job, PoolStatus, Result
from experiments.engine.scheduling import run_campaign
from experiments.language.campaign import Run, load
from experiments.terminal import TerminalReporter
from testbed import node_binary
from testbed.scenario import ScenarioDocument
from tests.support.campaign_texts import one_line
from tests.support.waiting import wait_until


class Recorder:
    """A listener that records losses and numbers of active cells."""

    def __init__(self) -> None:
        self.lost: list[str] = []
        self.running: list[int] = []

    def on_status(self, machine_id: str, status: PoolStatus) -> None:
        self.running.append(status.running)

    def on_result(self, machine_id: str, job: Job, result: Result) -> None:
        pass

    def on_lost(self, machine_id: str, job: Job, reason: str) -> None:
        self.lost.append(reason)


def test_living_workers_are_never_reported_as_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store.open(tmp_path).close()
    # At this interval Dask's client overwrites its copy of the scheduler's information, without the workers.
    with dask.config.set({"distributed.client.scheduler-info-interval": "1ms"}):
        executor = DaskExecutor(None, Options(tmp_path), Recorder())
    try:
        monkeypatch.setattr("experiments.engine.dask_executor.QUERY_INTERVAL_S", 0.0)
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


def plugin(results: str = "unused", runner_sources: str = "0" * 64) -> CampaignPlugin:
    """The plugin of a worker, attached."""
    made = CampaignPlugin("topic", results, None, runner_sources)
    made.setup(SimpleNamespace(address="tcp://10.0.0.7:1"))  # type: ignore[arg-type]
    return made


def test_a_worker_with_other_sources_is_rejected() -> None:
    """By a message: Dask logs what a worker raises with a traceback."""
    assert plugin().introduce() == (
        f"its sources have the digest {versions.sources()[:12]} and the runner's {'0' * 12}; bring both to one commit, "
        "with './backchannel testbed site' for a worker that Ansible installed"
    )


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the sources that counts as the running ones."""
    for name in versions.FOLDERS:
        shutil.copytree(node_binary.ROOT / name, tmp_path / name)
    for name in ("Cargo.toml", "Cargo.lock"):
        shutil.copy(node_binary.ROOT / name, tmp_path / name)
    monkeypatch.setattr(node_binary, "ROOT", tmp_path)
    versions.sources.cache_clear()
    yield tmp_path
    versions.sources.cache_clear()


@pytest.mark.parametrize("name", ["testbed/links/src/lib.rs", "experiments/engine/pool.py", "Cargo.lock"])
def test_one_changed_source_changes_the_digest(copied: Path, name: str) -> None:
    before = versions.sources()
    (copied / "experiments/quickstart.yaml").write_text("a campaign is not a source")
    versions.sources.cache_clear()
    assert versions.sources() == before
    with (copied / name).open("a") as file:
        file.write("\n")
    versions.sources.cache_clear()
    assert versions.sources() != before


def test_a_release_without_commit_and_rust_sources_has_a_digest(copied: Path) -> None:
    shutil.rmtree(copied / "testbed" / "links")
    (copied / versions.RELEASED).write_text("1" * 64 + "\n")
    assert versions.version().count("commit") == 0
    assert f"the digest {'1' * 12} and the runner's {'0' * 12}" in str(plugin().introduce())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskExecutor]:
    """Three workers on this machine."""
    results = tmp_path_factory.mktemp("results")
    Store.open(results).close()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("os.cpu_count", lambda: 3)
        executor = DaskExecutor(None, Options(results), Recorder())
    executor._client.wait_for_workers(3)
    executor._query()
    yield executor
    executor.close()


@pytest.fixture
def three(cluster: DaskExecutor) -> DaskExecutor:
    """The cluster, without any status received."""
    for received in (cluster._statuses, cluster._running, cluster._reported_s):
        received.clear()
    return cluster


def limits(executor: DaskExecutor) -> list[tuple[int, int]]:
    """The limits that the pools of all workers know: cells of their own, and cells of the others."""
    name = executor._name

    def known(dask_worker: Any) -> tuple[int, int]:
        pool = dask_worker.plugins[name]._pool
        return pool._allowed, pool._others

    for _ in range(2):
        # A change during a message is sent after it.
        for thread in executor._sending.values():
            thread.join(10)
        executor.machines()
    return sorted(executor._client.run(known).values())


def event(worker: str, allowed: int, running: int) -> tuple[float, dict[str, Any]]:
    """A worker's status as Dask delivers it."""
    return 0.0, {"worker": worker, **asdict(PoolStatus(0.5, 0.0, 0.0, running, 0, allowed, ()))}


def test_workers_of_one_machine_share_what_it_is_allowed(three: DaskExecutor) -> None:
    (machine,) = three.machines()
    for cells, shares in ((1, [0, 0, 1]), (5, [1, 2, 2]), (12, [4, 4, 4]), (0, [0, 0, 0])):
        three.allow(machine.id, cells)
        assert [share for share, _ in limits(three)] == shares


def test_every_worker_knows_the_active_cells_of_the_others(three: DaskExecutor) -> None:
    (machine,) = three.machines()
    three.allow(machine.id, 12)
    limits(three)
    for number, worker in enumerate(sorted(three._workers)):
        three._on_event(event(worker, 4, number + 2))
    listener = three._listener
    assert isinstance(listener, Recorder)
    assert listener.running == [2], "a machine's status comes at the rate of one worker's"
    three._reported_s.clear()
    three._on_event(event(max(three._workers), 4, 4))
    assert listener.running == [2, 9]
    assert limits(three) == [(4, 5), (4, 6), (4, 7)]


def test_a_lost_share_is_sent_again(three: DaskExecutor) -> None:
    (machine,) = three.machines()
    three.allow(machine.id, 3)
    assert limits(three) == [(1, 0)] * 3

    name = three._name

    def forget(dask_worker: Any) -> None:
        dask_worker.plugins[name]._pool.allow(7)

    three._client.run(forget)
    assert limits(three) == [(7, 0)] * 3
    three._on_event(event(min(three._workers), 7, 0))
    assert limits(three) == [(1, 0)] * 3


def test_jobs_leave_no_threads_behind(three: DaskExecutor) -> None:
    name, job = three._name, Job(Run("r00", 0, 0, "sim", ScenarioDocument({})), 1)

    class Answering:
        """Answers from another thread, as cells do."""

        def submit(self, job: Job, done: Any) -> None:
            threading.Timer(0.0, done, [Result(("done",))]).start()

    def exchange(dask_worker: Any) -> int:
        plugin = dask_worker.plugins[name]
        kept = getattr(plugin, "kept", None)
        plugin.kept, plugin._pool = plugin._pool, kept or Answering()
        return threading.active_count()

    before = max(three._client.run(exchange).values())
    results = three._client.gather(
        [three._client.submit(dask_worker.execute, name, job, key=f"answered-{number}") for number in range(150)]
    )
    after = max(three._client.run(exchange).values())
    assert {result.problems for result in results} == {("done",)}
    assert after <= before + 3


def test_jobs_of_a_broken_connection_are_lost_although_their_workers_stay(three: DaskExecutor) -> None:
    name, job = three._name, Job(Run("r01", 0, 0, "sim", ScenarioDocument({})), 1)

    class Silent:
        """Never answers."""

        def submit(self, job: Job, done: Any) -> None:
            pass

    def exchange(dask_worker: Any) -> None:
        plugin = dask_worker.plugins[name]
        kept = getattr(plugin, "silenced", None)
        plugin.silenced, plugin._pool = plugin._pool, kept or Silent()

    listener = three._listener
    assert isinstance(listener, Recorder)
    three._client.run(exchange)
    try:
        (machine,) = three.machines()
        three.allow(machine.id, 3)
        three.submit(machine.id, job)
        workers = set(three._workers)

        async def break_connection() -> None:
            assert three._client.scheduler_comm is not None
            three._client.scheduler_comm.comm.abort()

        three._client.sync(break_connection)
        wait_until(lambda: three.machines() and listener.lost, "the loss of the job")
        assert listener.lost == ["the connection to the Dask scheduler broke"]
        assert set(three._workers) == workers
        assert not three._submitted
    finally:
        listener.lost.clear()
        three._client.run(exchange)


CAMPAIGN = one_line("single", "repetitions: 4", "rate: 10 Mbit/s, delay: 10 ms", "10 s")


def test_one_job_at_a_time_on_a_cluster(tmp_path: Path) -> None:
    file = tmp_path / "single.yaml"
    file.write_text(CAMPAIGN)
    plan = load(file)
    options = Options(tmp_path / "results", jobs=1, scheduler="local")
    assert run_campaign(plan, options, TerminalReporter(Console(quiet=True))).landed == 4
    store = Store.open(tmp_path / "results")
    manifests = [result.documents.manifest for run_id in plan.run_ids if (result := store.run(run_id)) is not None]
    store.close()
    assert [manifest.batch.cells for manifest in manifests] == [1] * 4
    spans = [(manifest.started, manifest.took_s) for manifest in manifests]
    known = sorted((started, took_s) for started, took_s in spans if started is not None and took_s is not None)
    assert len(known) == 4
    for (started, took_s), (following, _) in pairwise(known):
        assert started + took_s <= following


def test_a_run_that_a_worker_cannot_execute_counts_as_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_worker, "missing_for_emulation", lambda: ["it is not root"])
    Store.open(tmp_path).close()
    here = plugin(str(tmp_path), versions.sources())
    assert not isinstance(here.introduce(), str)
    job = Job(Run("r00", 0, 0, "emulated", ScenarioDocument({})), 1)
    # A loop runs in the main thread after a test in a browser: Playwright leaves it there.
    with ThreadPoolExecutor(1) as thread:
        result = thread.submit(lambda: asyncio.run(here.execute(job))).result()
    assert (result.failed, result.problems) == (True, ("worker tcp://10.0.0.7:1: it is not root",))
    store = Store.open(tmp_path)
    assert store.tried_runs(["r00"]) == {"r00"}
    store.close()
    here.teardown(SimpleNamespace(status=None))  # type: ignore[arg-type]


def test_the_plugin_opens_nothing_before_its_runner_asks(three: DaskExecutor) -> None:
    """The plugin of a killed runner stays with the scheduler. Later workers attach it at no cost."""
    results = "postgresql://nobody@192.0.2.1/nothing"
    three._client.register_plugin(
        CampaignPlugin("of-a-killed-runner", results, None, "0" * 64), name="of-a-killed-runner"
    )

    def state(dask_worker: Any) -> tuple[bool, bool]:
        result = dask_worker.plugins["of-a-killed-runner"]
        return result._store is None, result._pool is None

    assert set(three._client.run(state).values()) == {(True, True)}
    three._client.unregister_worker_plugin("of-a-killed-runner")
    assert not any(three._client.run(lambda dask_worker: "of-a-killed-runner" in dask_worker.plugins).values())
