"""Executes runs on a Dask cluster: one of this machine for this campaign, or a lab's by its scheduler's address.

A plugin (experiments.engine.dask_worker) gives each Dask worker a pool of cells per campaign. The engine decides how
many cells a machine runs. Its workers share that number (experiments.engine.shares) and learn how many cells the others
run. Workers write runs to the store, so only the outcome returns here. Runs of a lost worker are lost, and the engine
submits them again.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import dask
from distributed import Client, Future, LocalCluster

from analysis.store import is_url
from analysis.versions import sources
from experiments.engine import dask_worker
from experiments.engine.dask_security import check_encryption, message_of, protocol, root_cause
from experiments.engine.executors import Listener, Machine
from experiments.engine.pool import STATUS_INTERVAL_S, Job, PoolStatus, Result
from experiments.engine.shares import Shares
from testbed.errors import TestbedError, Unavailable
from testbed.local_folders import ScratchFolder
from testbed.report import Progress

if TYPE_CHECKING:
    from experiments.engine.options import Options

#: Time-outs in seconds: scheduler's answer, first worker, end of the connection, message to every worker.
CONNECT_S, WORKER_S, CLOSE_S, SEND_S = 10.0, 30.0, 3.0, 5.0
#: Seconds for which the end of this machine's workers is waited for before they are killed.
CLUSTER_CLOSE_S = 60.0
#: Seconds for which a scheduler may be unreachable.
UNREACHABLE_S = 10.0
#: Seconds between two queries of the scheduler's workers.
QUERY_INTERVAL_S = 0.5
#: A machine's status is due after this part of STATUS_INTERVAL_S, because its workers' intervals vary.
DUE = 0.9
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
        address: of a scheduler; None starts a cluster on this machine with one worker per CPU.
        options: results and artefacts are used.
        listener: receives status, results and losses.

    Raises:
        Unavailable: no scheduler answers, it has no worker, or workers cannot reach the store.
        TestbedError: the cluster of this machine does not start.
    """

    def __init__(self, address: str | None, options: Options, listener: Listener) -> None:
        # This program reports errors itself.
        dask_loggers = [name for name in logging.root.manager.loggerDict if "distributed" in name]
        for name in ["tornado", "asyncio", *dask_loggers]:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        self._listener = listener
        self._lock = threading.Lock()
        self._cluster: LocalCluster | None = None
        if address is not None and not is_url(options.results):
            raise Unavailable(
                f"workers of the scheduler {address} may be on other machines, so --results must be a PostgreSQL URL "
                "that they reach too, with --artefacts (docs/distributed.md)"
            )
        if address is None:
            self._scratch = ScratchFolder()
            # Of the scheduler and the workers. The default is a name in the temporary directory that all users share.
            dask.config.set({"temporary-directory": str(self._scratch.path)})
            try:
                with ignore_interrupts_in_children():
                    self._cluster = LocalCluster(
                        n_workers=os.cpu_count() or 1, threads_per_worker=MOST_JOBS, processes=True,
                        dashboard_address=None, host="127.0.0.1", protocol=protocol(), memory_limit=0,
                        # The scheduler opens this port even without a dashboard. Port 0 avoids a clash.
                        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
                    )  # fmt: skip
            except (OSError, RuntimeError, TimeoutError) as error:
                self._scratch.close()
                raise TestbedError(
                    f"the workers of this machine did not start: {root_cause(error)}; the same command tries again"
                ) from None
        else:
            check_encryption(address, "client")
        try:
            self._client = Client(self._cluster or address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise Unavailable(f"no Dask scheduler answers at {address}: {root_cause(error)}") from None
        self._address = address or "of this machine"
        self._answered_s = self._served_s = time.monotonic()
        #: Name of the plugin and topic of its events.
        self._name = f"backchannel-{os.getpid()}-{time.time_ns()}"
        #: Machine by worker address, and the reason for each rejected worker.
        self._workers: dict[str, Machine] = {}
        self._rejected: dict[str, str] = {}
        #: Last status of each worker that has jobs.
        self._statuses: dict[str, PoolStatus] = {}
        #: By machine: its shares, the cells (own, others) last sent to each worker, and the thread that sends.
        self._shares: dict[str, Shares] = {}
        self._sent: dict[str, dict[str, tuple[int, int]]] = {}
        self._sending: dict[str, threading.Thread] = {}
        #: By machine: time of its last status, and active cells by worker at that time.
        self._reported_s: dict[str, float] = {}
        self._running: dict[str, dict[str, int]] = {}
        #: By run id.
        self._submitted: dict[str, _Submitted] = {}
        self._queried_s = 0.0
        plugin = dask_worker.CampaignPlugin(self._name, str(options.results), options.artefacts, sources())
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
        machines: dict[str, Machine] = {}
        for machine in self._workers.values():
            machines.setdefault(machine.id, machine)
        for machine_id in machines:
            self._send_shares(machine_id)
        return list(machines.values())

    def submit(self, machine_id: str, job: Job) -> None:
        """Submits a job to the machine's least busy worker. The listener receives the result."""
        with self._lock:
            worker = self._shares[machine_id].next(self._jobs(machine_id))
        future = self._client.submit(
            dask_worker.execute, self._name, job, workers=[worker], allow_other_workers=False, pure=False, retries=0,
            key=f"backchannel-{job.run.id}-{job.attempt}-{os.getpid()}-{next(_numbers)}",
        )  # fmt: skip
        with self._lock:
            self._submitted[job.run.id] = _Submitted(machine_id, worker, job, future)
        future.add_done_callback(lambda done: self._on_done(machine_id, job, done))

    def allow(self, machine_id: str, cells: int) -> None:
        """Sets how many cells may be active on a machine."""
        with self._lock:
            self._shares[machine_id].allowed = cells
        self._send_shares(machine_id)

    def stop(self) -> None:
        """Stops every run at once."""
        if self._workers and self._client.status == "running":
            self._send(list(self._workers), dask_worker.stop).join(SEND_S)

    def close(self) -> None:
        """Ends everything that was created for this campaign."""
        with self._lock:
            submitted, self._submitted = list(self._submitted.values()), {}
        if self._client.status == "running":
            self._client.cancel([entry.future for entry in submitted], force=True)
            _in_thread(lambda: self._client.unregister_worker_plugin(self._name)).join(SEND_S)
        self._client.close(timeout=CLOSE_S)
        if self._cluster is not None:
            # A worker that was killed may be starting again, and Dask waits for it without a limit.
            closing = _in_thread(self._cluster.close)
            closing.join(CLUSTER_CLOSE_S)
            if closing.is_alive():
                for child in multiprocessing.active_children():
                    child.kill()
                closing.join(CLUSTER_CLOSE_S)
            self._scratch.close()

    def _jobs(self, machine_id: str) -> dict[str, list[int]]:
        """Numbers of each worker's jobs on a machine, oldest first. Requires the lock."""
        jobs: dict[str, list[int]] = {w: [] for w, machine in self._workers.items() if machine.id == machine_id}
        for number, entry in enumerate(self._submitted.values()):
            if entry.worker in jobs:
                jobs[entry.worker].append(number)
        return jobs

    def _send_shares(self, machine_id: str) -> None:
        """Sends changed shares to the workers of a machine, in the background.

        One message at a time, so that the last one is the last to arrive.
        """
        if (sending := self._sending.get(machine_id)) is not None and sending.is_alive():
            return
        with self._lock:
            running = self._running.get(machine_id, {})
            cells = {
                worker: (share, sum(running.values()) - running.get(worker, 0))
                for worker, share in self._shares[machine_id].settle(self._jobs(machine_id)).items()
            }
            if cells == self._sent.get(machine_id):
                return
            self._sent[machine_id] = cells
        self._sending[machine_id] = self._send(list(cells), dask_worker.allow, cells)

    def _send(self, workers: list[str], function: Callable[..., None], *arguments: Any) -> threading.Thread:
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
            answers = self._client.run(dask_worker.introduce, self._name, workers=list(new), on_error="return")
            for worker, answer in answers.items():
                if isinstance(answer, Machine):
                    with self._lock:
                        self._workers[worker] = answer
                        self._shares.setdefault(answer.id, Shares())
                elif answer is not None:  # None: Dask is still attaching the plugin
                    reason = answer if isinstance(answer, str) else message_of(answer)
                    self._rejected[worker] = f"the worker {worker} cannot take runs: {reason}"
        for worker in self._workers.keys() - present:
            with self._lock:
                del self._workers[worker]
                self._statuses.pop(worker, None)
                lost = [entry for entry in self._submitted.values() if entry.worker == worker]
                for entry in lost:
                    del self._submitted[entry.job.run.id]
            for entry in lost:
                entry.future.cancel(force=True)
                self._listener.on_lost(entry.machine_id, entry.job, f"the worker {worker} is gone")
        # The scheduler forgets the jobs of a client whose connection breaks, and the workers stay.
        with self._lock:
            forgotten = [entry for entry in self._submitted.values() if entry.future.status in FORGOTTEN]
            for entry in forgotten:
                del self._submitted[entry.job.run.id]
        for entry in forgotten:
            self._listener.on_lost(entry.machine_id, entry.job, "the connection to the Dask scheduler broke")

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
            if all(other.worker != entry.worker for other in self._submitted.values()):
                # A worker without jobs sends no status.
                self._statuses.pop(entry.worker, None)
        try:
            result: Result = future.result()
        except Exception as error:  # noqa: BLE001 (an error of Dask's: errors of a job are in its result)
            if self._client.status == "running":  # otherwise `machines` reports the scheduler
                self._listener.on_lost(machine_id, job, f"a worker did not return its result: {message_of(error)}")
            return
        self._listener.on_result(machine_id, job, result)

    def _on_event(self, event: Any) -> None:
        """Handles the status of one worker. A machine's status sums its workers', at the rate of one worker's."""
        _, values = event
        worker = values.pop("worker")
        cells = tuple((cell, run, Progress.from_json(progress)) for cell, run, progress in values["cells"])
        status = PoolStatus(**{**values, "cells": cells})
        with self._lock:
            machine = self._workers.get(worker)
            if machine is None:
                return
            self._statuses[worker] = status
            if not self._shares[machine.id].on_report(worker, status.allowed, status.running):
                # The share is on its way or was lost. Send it again.
                self._sent.pop(machine.id, None)
            now_s = time.monotonic()
            if now_s - self._reported_s.get(machine.id, -STATUS_INTERVAL_S) < DUE * STATUS_INTERVAL_S:
                return
            self._reported_s[machine.id] = now_s
            of_machine = {name: other for name, other in self._statuses.items() if self._workers[name].id == machine.id}
            self._running[machine.id] = {name: other.running for name, other in of_machine.items()}
            statuses = of_machine.values()
        total = replace(
            status,
            running=sum(other.running for other in statuses),
            building=sum(other.building for other in statuses),
            allowed=sum(other.allowed for other in statuses),
            cells=tuple(cell for other in statuses for cell in other.cells),
        )
        self._listener.on_status(machine.id, total)


def _in_thread(call: Callable[[], object]) -> threading.Thread:
    """Makes a call that may fail because a worker or the scheduler is gone."""

    def run() -> None:
        with suppress(Exception, asyncio.CancelledError):
            call()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


@contextmanager
def ignore_interrupts_in_children() -> Iterator[None]:
    """Ctrl-C reaches every process of a terminal. Workers that start in this context leave it to the runner."""
    old = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old)
