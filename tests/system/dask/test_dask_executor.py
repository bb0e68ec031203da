"""The Dask executor on a cluster of this machine, mostly without runs."""

from __future__ import annotations

import asyncio
import shutil
import threading
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
from experiments.engine.core import Event, JobLost, StatusRead
from experiments.engine.dask_executor import DaskExecutor
from experiments.engine.dask_worker import CampaignPlugin
from experiments.engine.jobs import Job, PoolStatus, Result
from experiments.engine.options import Options
from experiments.engine.scheduling import run_campaign
from experiments.language.backends import Backend
from experiments.language.campaign import Run, load
from experiments.terminal import TerminalReporter
from testbed import node_binary, sources
from testbed.scenario import ScenarioDocument
from tests.support.campaign_texts import one_line
from tests.support.dask_cluster import cluster_of
from tests.support.waiting import HANGS_S, wait_until


class Recorder:
    """Records losses and numbers of active cells."""

    def __init__(self) -> None:
        self.lost: list[str] = []
        self.running: list[int] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, JobLost):
            self.lost.append(event.reason)
        if isinstance(event, StatusRead):
            self.running.append(event.status.running)


@pytest.fixture(autouse=True, scope="module")
def shared_folder() -> Iterator[None]:
    """Workers of this machine reach its results folders."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("experiments.engine.dask_executor.is_url", lambda _: True)
        yield


def plugin(results: str = "unused", runner_sources: str = "0" * 64) -> CampaignPlugin:
    """The plugin of a worker, attached."""
    made = CampaignPlugin("topic", results, None, runner_sources)
    made.setup(SimpleNamespace(address="tcp://10.0.0.7:1"))  # type: ignore[arg-type]
    return made


def test_a_worker_with_other_sources_is_rejected() -> None:
    """By a message: Dask logs what a worker raises with a traceback."""
    assert plugin().register() == (
        f"its sources have the digest {sources.digest()[:12]} and the runner's {'0' * 12}; bring both to one commit, "
        "with './backchannel testbed site' for a worker that Ansible installed"
    )


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the sources that counts as the running ones."""
    for name in sources.FOLDERS:
        shutil.copytree(node_binary.ROOT / name, tmp_path / name)
    for name in ("Cargo.toml", "Cargo.lock"):
        shutil.copy(node_binary.ROOT / name, tmp_path / name)
    monkeypatch.setattr(node_binary, "ROOT", tmp_path)
    sources.digest.cache_clear()
    yield tmp_path
    sources.digest.cache_clear()


@pytest.mark.parametrize("name", ["testbed/links/src/lib.rs", "experiments/engine/pool.py", "Cargo.lock"])
def test_one_changed_source_changes_the_digest(copied: Path, name: str) -> None:
    before = sources.digest()
    (copied / "experiments/quickstart.yaml").write_text("a campaign is not a source")
    sources.digest.cache_clear()
    assert sources.digest() == before
    with (copied / name).open("a") as file:
        file.write("\n")
    sources.digest.cache_clear()
    assert sources.digest() != before


def test_a_release_without_commit_and_rust_sources_has_a_digest(copied: Path) -> None:
    shutil.rmtree(copied / "testbed" / "links")
    (copied / sources.RELEASED).write_text("1" * 64 + "\n")
    assert versions.version().count("commit") == 0
    assert f"the digest {'1' * 12} and the runner's {'0' * 12}" in str(plugin().register())


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskExecutor]:
    """Three workers on this machine."""
    results = tmp_path_factory.mktemp("results")
    Store.open(results).close()
    with cluster_of(3) as address:
        executor = DaskExecutor(address, Options(results), Recorder())
        executor._client.wait_for_workers(3)
        executor._query()
        yield executor
        executor.close()


def address_of(executor: DaskExecutor) -> str:
    """The address of its scheduler."""
    return str(executor._client.scheduler_info()["address"])


def limits(executor: DaskExecutor) -> list[int]:
    """The cells that the pools of all workers are allowed."""
    name = executor._name

    def known(dask_worker: Any) -> int:
        return int(dask_worker.plugins[name]._pool._allowed)

    for _ in range(2):
        # A change during a message is sent after it.
        if executor._sending is not None:
            executor._sending.join(HANGS_S)
        executor.machines()
    return sorted(executor._client.run(known).values())


def event(worker: str, allowed: int, running: int) -> tuple[float, dict[str, Any]]:
    """A worker's status as Dask delivers it."""
    return 0.0, {"worker": worker, **asdict(PoolStatus(0.5, 0.0, 0.0, running, 0, allowed, ()))}


def test_living_workers_are_never_reported_as_gone(
    three: DaskExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store.open(tmp_path).close()
    # At this interval Dask's client overwrites its copy of the scheduler's information, without the workers.
    with dask.config.set({"distributed.client.scheduler-info-interval": "1ms"}):
        executor = DaskExecutor(address_of(three), Options(tmp_path), Recorder())
    try:
        monkeypatch.setattr("experiments.engine.dask_executor.QUERY_INTERVAL_S", 0.0)
        seen = []
        for _ in range(300):
            executor.machines()
            seen.append(len(executor._workers))
        assert set(seen) == {seen[0]}
        assert seen[0] > 0
    finally:
        executor.close()


def test_one_worker_of_a_machine_makes_its_runs_and_others_stand_by(three: DaskExecutor) -> None:
    (machine,) = three.machines()
    for cells in (1, 12, 0):
        three.allow(machine.id, cells)
        assert limits(three) == [0, 0, cells]
    first, second, _ = three._workers
    assert three._serving() == {machine.id: first}
    # What a worker that has ended was allowed goes to the next.
    three.allow(machine.id, 5)
    assert limits(three) == [0, 0, 5]
    gone = three._workers.pop(first)
    assert three._serving() == {machine.id: second}
    assert limits(three) == [0, 5, 5]
    three._workers[first] = gone


def test_a_lost_number_of_cells_is_sent_again(three: DaskExecutor) -> None:
    (machine,) = three.machines()
    three.allow(machine.id, 3)
    limits(three)
    name, worker = three._name, three._serving()[machine.id]

    def forget(dask_worker: Any) -> None:
        dask_worker.plugins[name]._pool.allow(7)

    three._client.run(forget, workers=[worker])
    assert limits(three)[-1] == 7
    three._on_event(event(worker, 7, 2))
    assert 7 not in limits(three)
    recorder = three._post
    assert isinstance(recorder, Recorder)
    assert recorder.running[-1] == 2


def test_jobs_leave_no_threads_behind(three: DaskExecutor) -> None:
    name, job = three._name, Job(Run("r00", 0, 0, Backend.SIM, ScenarioDocument({})), 1)

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
    name, job = three._name, Job(Run("r01", 0, 0, Backend.SIM, ScenarioDocument({})), 1)

    class Silent:
        """Never answers."""

        def submit(self, job: Job, done: Any) -> None:
            pass

    def exchange(dask_worker: Any) -> None:
        plugin = dask_worker.plugins[name]
        kept = getattr(plugin, "silenced", None)
        plugin.silenced, plugin._pool = plugin._pool, kept or Silent()

    listener = three._post
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


CAMPAIGN = one_line("single", "repetitions: 4", "rate: 10 Mbit/s, delay: 10 ms", "3 s")


def test_one_job_at_a_time_on_a_cluster(three: DaskExecutor, tmp_path: Path) -> None:
    file = tmp_path / "single.yaml"
    file.write_text(CAMPAIGN)
    plan = load(file)
    options = Options(tmp_path / "results", jobs=1, scheduler=address_of(three))
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
    here = plugin(str(tmp_path), sources.digest())
    assert not isinstance(here.register(), str)
    job = Job(Run("r00", 0, 0, Backend.EMULATED, ScenarioDocument({})), 1)
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
