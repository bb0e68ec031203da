"""Executes runs on the workers of a Dask cluster, by its scheduler's address.

A plugin (experiments.engine.dask_worker) gives each worker a pool of cells for a campaign. One worker of a machine
makes its runs, and others stand by. Workers write runs to the store, so only the outcome returns here. Runs of a lost
worker are lost, and the engine submits them again.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from distributed import Client, Future

from analysis.store import is_url
from experiments.engine import dask_worker
from experiments.engine.core import JobEnded, JobLost, StatusRead
from experiments.engine.dask_security import check_encryption, message_of, root_cause
from experiments.engine.executors import Post
from experiments.engine.jobs import Job, Machine, PoolStatus, Result
from experiments.engine.options import Options
from testbed import own_nodes, sources
from testbed.errors import TestbedError, Unavailable
from testbed.report import Progress

#: Time-outs in seconds: scheduler's answer, first worker, end of the connection, message to every worker.
CONNECT_S, WORKER_S, CLOSE_S, SEND_S = 10.0, 30.0, 3.0, 5.0
#: Seconds for which a scheduler may be unreachable.
UNREACHABLE_S = 10.0
#: Seconds between two queries of the scheduler's workers.
QUERY_INTERVAL_S = 0.5
#: States of futures that will have no result.
FORGOTTEN = ("lost", "cancelled")
#: Jobs that a worker takes at once. The runner limits the cells, and a waiting job takes no thread.
MOST_JOBS = 1024
_numbers = itertools.count()


@dataclass(frozen=True)
class _Submitted:
    """A job and where it runs."""

    machine_id: str
    worker: str
    job: Job
    future: Future[Any]


class DaskExecutor:
    """The workers of a cluster.

    Args:
        address: of the scheduler.
        options: results and artefacts are used.
        post: receives events.

    Raises:
        Unavailable: no scheduler answers, it has no worker, or workers cannot reach the store.
    """

    def __init__(self, address: str, options: Options, post: Post) -> None:
        # This program reports errors itself.
        dask_loggers = [name for name in logging.root.manager.loggerDict if "distributed" in name]
        for name in ["tornado", "asyncio", *dask_loggers]:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        self._post = post
        self._lock = threading.Lock()
        if not is_url(options.results):
            raise Unavailable(
                f"workers of the scheduler {address} may be on other machines, so --results must be a PostgreSQL URL "
                "that they reach too, with --artefacts (docs/distributed.md)"
            )
        check_encryption(address, "client")
        try:
            self._client = Client(address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise Unavailable(f"no Dask scheduler answers at {address}: {root_cause(error)}") from None
        self._address = address
        self._answered_s = self._served_s = time.monotonic()
        #: Name of the plugin and topic of its events.
        self._name = f"backchannel-{os.getpid()}-{time.time_ns()}"
        #: Machine by worker address, oldest first, and the reason for each rejected worker.
        self._workers: dict[str, Machine] = {}
        self._rejected: dict[str, str] = {}
        #: Cells by machine, those last sent to each worker, and the thread that sends.
        self._allowed: dict[str, int] = {}
        self._sent: dict[str, int] = {}
        self._sending: threading.Thread | None = None
        #: By run id.
        self._submitted: dict[str, _Submitted] = {}
        self._queried_s = 0.0
        plugin = dask_worker.CampaignPlugin(
            self._name, str(options.results), options.artefacts, sources.digest(), own_nodes.in_use()
        )
        try:
            self._client.subscribe_topic(self._name, self._on_event)
            self._client.wait_for_workers(1, timeout=WORKER_S)
            # A worker with other sources may fail to load the plugin. `_query` rejects it.
            with suppress(Exception):
                self._client.register_plugin(plugin, name=self._name)
            self._query()
            if not self._workers:
                raise Unavailable(next(iter(self._rejected.values()), "its worker has just ended"))
        except TimeoutError:
            self.close()
            raise Unavailable(
                f"the Dask scheduler {address} has no worker; start './backchannel dask worker'"
            ) from None
        except BaseException:
            self.close()
            raise

    def machines(self) -> list[Machine]:
        """Machines that can take jobs now."""
        if self._client.status == "running":
            self._answered_s = time.monotonic()
        elif time.monotonic() - self._answered_s > UNREACHABLE_S:
            raise TestbedError(
                f"the Dask scheduler {self._address} does not answer; finished runs are stored, and the same command "
                "continues when the scheduler is back"
            )
        else:
            return []
        if time.monotonic() - self._queried_s > QUERY_INTERVAL_S:
            self._query()
        if self._workers:
            self._served_s = time.monotonic()
        elif time.monotonic() - self._served_s > WORKER_S:
            reason = next(iter(self._rejected.values()), f"the Dask scheduler {self._address} has no worker any more")
            raise TestbedError(
                f"{reason}; finished runs are stored, and the same command continues when there is a worker"
            )
        self._send_allowed()
        return [self._workers[worker] for worker in self._serving().values()]

    def submit(self, machine_id: str, job: Job) -> None:
        """Submits a job to the machine's worker, whose end or loss is posted."""
        with self._lock:
            worker = self._serving()[machine_id]
        future = self._client.submit(
            dask_worker.execute,
            self._name,
            job,
            workers=[worker],
            allow_other_workers=False,
            pure=False,
            retries=0,
            key=f"backchannel-{job.run.id}-{job.attempt}-{os.getpid()}-{next(_numbers)}",
        )
        with self._lock:
            self._submitted[job.run.id] = _Submitted(machine_id, worker, job, future)
        future.add_done_callback(lambda done: self._on_done(machine_id, job, done))

    def allow(self, machine_id: str, cells: int) -> None:
        """Sets how many cells may be active on a machine."""
        with self._lock:
            self._allowed[machine_id] = cells
        self._send_allowed()

    def stop(self) -> None:
        """Stops every run at once."""
        if self._workers and self._client.status == "running":
            self._send(dask_worker.stop, workers=list(self._workers)).join(SEND_S)

    def close(self) -> None:
        """Ends everything that was created for this campaign."""
        with self._lock:
            submitted, self._submitted = list(self._submitted.values()), {}
        if self._client.status == "running":
            self._client.cancel([entry.future for entry in submitted], force=True)
            _in_thread(lambda: self._client.unregister_worker_plugin(self._name)).join(SEND_S)
        self._client.close(timeout=CLOSE_S)

    def _serving(self) -> dict[str, str]:
        """The worker of each machine that makes its runs: the one that came first."""
        serving: dict[str, str] = {}
        for worker, machine in self._workers.items():
            serving.setdefault(machine.id, worker)
        return serving

    def _send_allowed(self) -> None:
        """Sends changed numbers of cells to the workers, in the background.

        One message at a time, so that the last one is the last to arrive.
        """
        if self._sending is not None and self._sending.is_alive():
            return
        with self._lock:
            cells = {worker: self._allowed.get(machine_id, 0) for machine_id, worker in self._serving().items()}
            changed = {worker: number for worker, number in cells.items() if self._sent.get(worker) != number}
            self._sent |= changed
        if changed:
            self._sending = self._send(dask_worker.allow, changed, workers=list(changed))

    def _send(self, function: Callable[..., None], *arguments: Any, workers: list[str]) -> threading.Thread:
        """Calls a function of dask_worker on workers, in a thread. `machines` detects workers that are gone."""
        return _in_thread(
            lambda: self._client.run(function, self._name, *arguments, workers=workers, on_error="ignore")
        )

    def _query(self) -> None:
        """Updates the list of workers. Jobs of workers that are gone are lost."""
        self._queried_s = time.monotonic()
        present = self._client.sync(self._worker_addresses)
        if present is None:
            return
        new = present - self._workers.keys() - self._rejected.keys()
        if new:
            answers = self._client.run(dask_worker.register, self._name, workers=sorted(new), on_error="return")
            for worker, answer in answers.items():
                if isinstance(answer, Machine):
                    with self._lock:
                        self._workers[worker] = answer
                elif answer is not None:  # None: Dask is still attaching the plugin
                    reason = answer if isinstance(answer, str) else message_of(answer)
                    self._rejected[worker] = f"the worker {worker} cannot take runs: {reason}"
        gone = self._workers.keys() - present
        with self._lock:
            for worker in gone:
                del self._workers[worker]
                self._sent.pop(worker, None)
        for entry in self._lose(lambda entry: entry.worker in gone):
            entry.future.cancel(force=True)
            self._post(JobLost(entry.machine_id, entry.job, f"the worker {entry.worker} is gone"))
        # The scheduler forgets the jobs of a client whose connection breaks, and the workers stay.
        for entry in self._lose(lambda entry: entry.future.status in FORGOTTEN):
            self._post(JobLost(entry.machine_id, entry.job, "the connection to the Dask scheduler broke"))

    def _lose(self, is_lost: Callable[[_Submitted], bool]) -> list[_Submitted]:
        with self._lock:
            lost = [entry for entry in self._submitted.values() if is_lost(entry)]
            for entry in lost:
                del self._submitted[entry.job.run.id]
        return lost

    async def _worker_addresses(self) -> set[str] | None:
        """Workers by the scheduler's answer, or None without an answer.

        Not `Client.scheduler_info`: it reads a copy that Dask keeps overwriting, without any worker in it.
        """
        if self._client.scheduler is None:
            return None
        try:
            return set((await self._client.scheduler.identity(n_workers=-1))["workers"])
        except OSError:
            return None

    def _on_done(self, machine_id: str, job: Job, future: Future[Any]) -> None:
        with self._lock:
            entry = self._submitted.get(job.run.id)
            if entry is None or entry.future is not future:
                return
            if future.status in FORGOTTEN:  # the worker is gone, or the connection broke; `_query` reports the loss
                return
            del self._submitted[job.run.id]
        try:
            result: Result = future.result()
        except Exception as error:  # noqa: BLE001 (an error of Dask's: errors of a job are in its result)
            if self._client.status == "running":  # otherwise `machines` reports the scheduler
                self._post(JobLost(machine_id, job, f"a worker did not return its result: {message_of(error)}"))
            return
        self._post(JobEnded(machine_id, job, result))

    def _on_event(self, event: Any) -> None:
        """Handles the status of a worker."""
        _, values = event
        worker = values.pop("worker")
        cells = tuple((cell, run, Progress.from_json(progress)) for cell, run, progress in values["cells"])
        status = PoolStatus(**{**values, "cells": cells})
        with self._lock:
            machine = self._workers.get(worker)
            if machine is None:
                return
            if status.allowed != self._sent.get(worker):
                # The number is on its way or was lost. Send it again.
                self._sent.pop(worker, None)
        self._post(StatusRead(machine.id, status))


def _in_thread(call: Callable[[], object]) -> threading.Thread:
    """Makes a call that may fail because a worker or the scheduler is gone."""

    def run() -> None:
        with suppress(Exception, asyncio.CancelledError):
            call()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread
