"""The part of a Dask worker: a plugin that holds the worker's cells for one campaign.

The runner registers a `CampaignPlugin` under the campaign's name. Dask attaches it to every worker, also to later ones,
and tears it down with the worker or when the runner removes it. The functions below run on workers.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from distributed import Status, Worker, WorkerPlugin, get_worker

from analysis.store import Store, StoreError
from experiments.engine.executors import this_machine
from experiments.engine.jobs import Job, Machine, PoolStatus, Result
from experiments.engine.pool import CellPool
from testbed import own_nodes, sources
from testbed.capability import missing_for_emulation
from testbed.errors import TestbedError
from testbed.own_crates import Crate


class CampaignPlugin(WorkerPlugin):
    """The cells of a worker for one campaign, and the campaign's store.

    Args:
        name: of the plugin, and the topic of its status events.
        results: folder or database of the store.
        artefacts: folder or URL of the store's files; None for the default.
        runner_sources: digest of the runner's sources. Workers with other sources are rejected.
        crates: those of the user's that the campaign needs. A worker builds a node with them if it has none.
    """

    def __init__(
        self, name: str, results: str, artefacts: str | None, runner_sources: str, crates: Sequence[Crate] = ()
    ) -> None:
        self.name = name
        self._results = results
        self._artefacts = artefacts
        self._runner_sources = runner_sources
        self._crates = tuple(crates)

    def setup(self, worker: Worker) -> None:
        """Opens nothing yet: the plugin of a runner that was killed must cost later workers nothing."""
        self._worker = worker
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._pool: CellPool | None = None

    def teardown(self, worker: Worker) -> None:
        """Ends the cells: at once when the worker ends, otherwise in the background."""
        with self._lock:
            pool, store, self._pool, self._store = self._pool, self._store, None, None
        if pool is None or store is None:
            return
        if worker.status != Status.running:
            pool.stop()
            return

        def close() -> None:
            pool.close()
            store.close()

        threading.Thread(target=close, daemon=True).start()

    def register(self) -> Machine | str:
        """Opens the store. Returns the worker's machine, or why the worker cannot take runs.

        A string because Dask logs what a worker raises with a traceback.
        """
        digest = sources.digest()
        if digest != self._runner_sources:
            return (
                f"its sources have the digest {digest[:12]} and the runner's {self._runner_sources[:12]}; bring both "
                "to one commit, with './backchannel testbed site' for a worker that Ansible installed"
            )
        try:
            own_nodes.use(self._crates)
            with self._lock:
                if self._pool is None:
                    self._store = Store.open(self._results, self._artefacts)
                    self._store.sweep()
                    self._pool = CellPool(self._store, self._report)
        except (StoreError, TestbedError) as error:
            return str(error)
        return this_machine()

    async def execute(self, job: Job) -> Result:
        """Runs a job in a cell and waits for its result."""
        pool, store = self._pool, self._store
        assert pool is not None
        assert store is not None
        if job.run.backend.in_cell and (missing := await asyncio.to_thread(missing_for_emulation)):
            problem = f"worker {self._worker.address}: {'; '.join(missing)}"
            store.note_failure(job.run.id, job.attempt, problem)
            return Result((problem,), failed=True)
        loop = asyncio.get_running_loop()
        finished: asyncio.Future[Result] = loop.create_future()

        def finish(result: Result) -> None:
            # The runner may have given up the job.
            if not finished.done():
                finished.set_result(result)

        def on_result(result: Result) -> None:
            loop.call_soon_threadsafe(finish, result)

        pool.submit(job, on_result)
        return await finished

    def allow(self, cells: int) -> None:
        """Sets how many cells may be active here."""
        if self._pool is not None:
            self._pool.allow(cells)

    def stop(self) -> None:
        """Stops every run at once."""
        if self._pool is not None:
            self._pool.stop()

    def _report(self, status: PoolStatus) -> None:
        cells = [(cell, run, progress.as_json()) for cell, run, progress in status.cells]
        event = {"worker": self._worker.address, **asdict(replace(status, cells=())), "cells": cells}
        self._worker.loop.add_callback(self._worker.log_event, self.name, event)


# Dask passes the worker as `dask_worker`.


async def register(name: str, dask_worker: Any = None) -> Machine | str | None:
    """CampaignPlugin.register, or None while Dask has not attached the plugin yet.

    In a thread, because a node with crates of the user's takes minutes to build for the first time, and the scheduler
    gives up a worker that does not answer for so long.
    """
    plugin = dask_worker.plugins.get(name)
    return None if plugin is None else await asyncio.to_thread(plugin.register)


async def execute(name: str, job: Job) -> Result:
    """CampaignPlugin.execute, as a Dask task.

    A coroutine, because Dask's pool of threads starts one for every task and keeps it, and idle ones poll.
    """
    return await get_worker().plugins[name].execute(job)  # type: ignore[attr-defined, no-any-return]


def allow(name: str, cells: Mapping[str, int], dask_worker: Any = None) -> None:
    """CampaignPlugin.allow with the worker's own number; `cells` is by address."""
    dask_worker.plugins[name].allow(cells[dask_worker.address])


def stop(name: str, dask_worker: Any = None) -> None:
    """CampaignPlugin.stop."""
    dask_worker.plugins[name].stop()
