"""Runs on a Dask cluster: one made for this campaign on this machine, or a lab's own by the address of its scheduler.

A Dask worker holds a pool of cells (experiments.engine.pool) for every campaign that uses it, and each run of one
topology finds its cells built. The engine says how many cells a machine carries; workers that share a machine share its
number (experiments.engine.shares), and hear how many cells are at work beside their own. Runs land from the worker
straight in the store, so nothing but the verdict comes back. A worker that is gone loses what it was running; the
engine hands that out again.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import dask
from distributed import Client, Future, LocalCluster, get_worker

from analysis.store import Store, StoreError, is_url
from experiments.engine.executors import Listener, Machine, this_machine
from experiments.engine.machine import sources
from experiments.engine.pool import STATUS_INTERVAL_S, CellPool, Job, PoolStatus, Result
from experiments.engine.shares import Shares
from experiments.language.campaign import Run
from testbed.capability import missing_for_emulation
from testbed.errors import TestbedError, Unavailable
from testbed.report import Progress

if TYPE_CHECKING:
    from experiments.engine.options import Options

#: Seconds that a scheduler may take to answer, a first worker to be there, an end, and a word to every worker.
CONNECT_S, WORKER_S, CLOSE_S, TELL_S = 10.0, 30.0, 3.0, 5.0
#: Seconds that a scheduler may be gone.
GONE_S = 10.0
#: Seconds between two looks at which workers are there.
LOOK_S = 0.5
#: Part of the time between two beats of a worker after which a beat is the machine's next one.
SOON = 0.9
#: Threads of a worker: they only wait for cells.
THREADS = 1024
_numbers = itertools.count()


class DaskExecutor:
    """A cluster's workers.

    Args:
        address: of a scheduler; None: a cluster of this machine is made, with a worker for each CPU.
        options: the store's place.
        listener: is told what happens.

    Raises:
        Unavailable: no scheduler answers, it has no worker, or workers could not reach the store.
    """

    def __init__(self, address: str | None, options: Options, listener: Listener) -> None:
        # What goes wrong is told by this program, in sentences.
        for name in [
            "tornado",
            "asyncio",
            *(name for name in logging.root.manager.loggerDict if "distributed" in name),
        ]:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        self._listener = listener
        self._lock = threading.Lock()
        self._cluster: LocalCluster | None = None
        if address is not None and not is_url(options.results):
            raise Unavailable(
                f"workers of the scheduler {address} may be on other machines: --results must be a PostgreSQL URL that "
                "they reach too, with --artefacts beside it (docs/distributed.md)"
            )
        if address is None:
            with _deaf_children():
                self._cluster = LocalCluster(
                    n_workers=os.cpu_count() or 1, threads_per_worker=THREADS, processes=True, dashboard_address=None,
                    host="127.0.0.1", protocol=protocol(), memory_limit=0,
                    # Without a dashboard there is a port all the same; two campaigns at once would ask for the same.
                    scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
                )  # fmt: skip
        else:
            check_secrecy(address, "client")
        try:
            self._client = Client(self._cluster or address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise Unavailable(f"no Dask scheduler answers at {address}: {why(error)}") from None
        self._address = address or "of this machine"
        self._gone_since_s = self._idle_since_s = time.monotonic()
        #: Workers that cannot take runs, and why.
        self._refused: dict[str, str] = {}
        self._topic = f"backchannel-{os.getpid()}-{time.time_ns()}"
        self._where = {"results": str(options.results), "artefacts": options.artefacts, "topic": self._topic}
        #: Worker's address to its machine.
        self._workers: dict[str, Machine] = {}
        #: What each worker that has jobs said last.
        self._beats: dict[str, PoolStatus] = {}
        #: By machine: its shares; what its workers were told last, each its share and the cells beside; who tells them.
        self._shares: dict[str, Shares] = {}
        self._told: dict[str, dict[str, tuple[int, int]]] = {}
        self._telling: dict[str, threading.Thread] = {}
        #: By machine: when the engine heard of it last, and the cells that were at work then, by worker.
        self._heard_s: dict[str, float] = {}
        self._running: dict[str, dict[str, int]] = {}
        #: Run id to what was handed over: machine, worker, job, future.
        self._given: dict[str, tuple[str, str, Job, Future[Any]]] = {}
        self._looked_s = 0.0
        try:
            self._client.subscribe_topic(self._topic, self._on_event)
            self._client.wait_for_workers(1, timeout=WORKER_S)
            self._look()
            if not self._workers:
                raise Unavailable(next(iter(self._refused.values()), "its worker has just gone"))
        except TimeoutError:
            self.close()
            raise Unavailable(f"the Dask scheduler {address} has no worker: start './backchannel worker'") from None
        except BaseException:
            self.close()
            raise

    def machines(self) -> list[Machine]:
        """Those that can take jobs now."""
        if self._client.status == "running":
            self._gone_since_s = time.monotonic()
        elif time.monotonic() - self._gone_since_s > GONE_S:
            raise TestbedError(
                f"the Dask scheduler {self._address} is gone; what has landed stays, and the same command goes on when "
                "there is one again"
            )
        else:
            return []
        if time.monotonic() - self._looked_s > LOOK_S:
            self._look()
        if self._workers:
            self._idle_since_s = time.monotonic()
        elif time.monotonic() - self._idle_since_s > WORKER_S:
            why = next(iter(self._refused.values()), f"the Dask scheduler {self._address} has no worker any more")
            raise TestbedError(f"{why}; what has landed stays, and the same command goes on when there is one")
        found: dict[str, Machine] = {}
        for machine in self._workers.values():
            found.setdefault(machine.id, machine)
        for machine_id in found:
            self._settle(machine_id)
        return list(found.values())

    def submit(self, machine_id: str, job: Job) -> None:
        """Hands a job to the machine's worker that has least to do; its listener hears of its end."""
        with self._lock:
            worker = self._shares[machine_id].next(self._jobs(machine_id))
        words = {**asdict(job), "run": asdict(job.run)}
        future = self._client.submit(
            _run_here, words, self._where, workers=[worker], allow_other_workers=False, pure=False, retries=0,
            key=f"backchannel-{job.run.id}-{job.attempt}-{os.getpid()}-{next(_numbers)}",
        )  # fmt: skip
        with self._lock:
            self._given[job.run.id] = (machine_id, worker, job, future)
        future.add_done_callback(lambda done: self._ended(machine_id, job, done))

    def allow(self, machine_id: str, cells: int) -> None:
        """How many cells may be at work on a machine at once."""
        with self._lock:
            self._shares[machine_id].allowed = cells
        self._settle(machine_id)

    def stop(self) -> None:
        """Ends what runs, at once."""
        self._tell_and_wait(_stop_here, self._where)

    def close(self) -> None:
        """Ends everything that was made for this campaign."""
        with self._lock:
            given, self._given = list(self._given.values()), {}
        if self._client.status == "running":
            self._client.cancel([future for *_, future in given], force=True)
            self._tell_and_wait(_forget_here, self._where)
        self._client.close(timeout=CLOSE_S)
        if self._cluster is not None:
            self._cluster.close()

    def _jobs(self, machine_id: str) -> dict[str, list[int]]:
        """What each worker of a machine was handed, by numbers, the oldest first. To be called with the lock."""
        jobs: dict[str, list[int]] = {w: [] for w, machine in self._workers.items() if machine.id == machine_id}
        for number, (_, worker, _, _) in enumerate(self._given.values()):
            if worker in jobs:
                jobs[worker].append(number)
        return jobs

    def _settle(self, machine_id: str) -> None:
        """Tells the workers of a machine their shares and what is beside them, where that is something new.

        One word at a time, so that the last one holds; nobody waits for it.
        """
        if (telling := self._telling.get(machine_id)) is not None and telling.is_alive():
            return
        with self._lock:
            running = self._running.get(machine_id, {})
            said = {
                worker: (share, sum(running.values()) - running.get(worker, 0))
                for worker, share in self._shares[machine_id].settle(self._jobs(machine_id)).items()
            }
            if said == self._told.get(machine_id):
                return
            self._told[machine_id] = said
        self._telling[machine_id] = self._tell(list(said), _allow_here, self._where, said)

    def _tell_and_wait(self, function: Any, *words: Any) -> None:
        """Has all workers do something, and gives them a moment for it."""
        if self._workers and self._client.status == "running":
            self._tell(list(self._workers), function, *words).join(TELL_S)

    def _tell(self, workers: list[str], function: Any, *words: Any) -> threading.Thread:
        """Has workers do something; one that is gone meanwhile need not, and who is gone `machines` tells."""

        def tell() -> None:
            with suppress(Exception, asyncio.CancelledError):
                self._client.run(function, *words, workers=workers, on_error="ignore")

        told = threading.Thread(target=tell, daemon=True)
        told.start()
        return told

    def _look(self) -> None:
        """Which workers are there; jobs of those that are gone are lost."""
        self._looked_s = time.monotonic()
        there = self._client.sync(self._there)
        if there is None:
            return
        new = there - self._workers.keys() - self._refused.keys()
        if new:
            said = self._client.run(_introduce, self._where, sources(), workers=list(new), on_error="return")
            for worker, machine in said.items():
                if not isinstance(machine, dict):
                    reason = machine if isinstance(machine, str) else _said(machine)
                    self._refused[worker] = f"the worker {worker} cannot take runs: {reason}"
                    continue
                with self._lock:
                    self._workers[worker] = Machine(**machine)
                    self._shares.setdefault(machine["id"], Shares())
        for worker in self._workers.keys() - there:
            with self._lock:
                del self._workers[worker]
                self._beats.pop(worker, None)
                lost = [one for one in self._given.values() if one[1] == worker]
                for _, _, job, _ in lost:
                    del self._given[job.run.id]
            for machine_id, _, job, future in lost:
                future.cancel(force=True)
                self._listener.on_lost(machine_id, job, f"the worker {worker} is gone")

    async def _there(self) -> set[str] | None:
        """Addresses of the workers, in the scheduler's own words; None where it does not answer.

        Not `Client.scheduler_info`: that reads a copy which Dask itself keeps writing over, without any worker in it.
        """
        if self._client.scheduler is None:
            return None
        try:
            return set((await self._client.scheduler.identity(n_workers=-1))["workers"])
        except OSError:
            return None

    def _ended(self, machine_id: str, job: Job, future: Future[Any]) -> None:
        with self._lock:
            given = self._given.get(job.run.id)
            if given is None or given[3] is not future:
                return
            if future.status in ("lost", "cancelled"):  # its worker is gone; _look tells
                return
            del self._given[job.run.id]
            if all(worker != given[1] for _, worker, _, _ in self._given.values()):
                # It says nothing more until it has something to do.
                self._beats.pop(given[1], None)
        try:
            result = future.result()
        except Exception as error:  # noqa: BLE001 (Dask's own: what a job runs into comes back in its result)
            if self._client.status == "running":  # otherwise `machines` tells
                self._listener.on_lost(machine_id, job, f"a worker did not hand over its result: {_said(error)}")
            return
        self._listener.on_result(machine_id, job, result)

    def _on_event(self, event: Any) -> None:
        """A beat of one worker: the machine's is that of all its workers together, and comes as often as one's."""
        _, said = event
        worker = said.pop("worker")
        cells = tuple((cell, run, Progress.from_json(progress)) for cell, run, progress in said["cells"])
        beat = PoolStatus(**{**said, "cells": cells})
        with self._lock:
            machine = self._workers.get(worker)
            if machine is None:
                return
            self._beats[worker] = beat
            if not self._shares[machine.id].heard(worker, beat.allowed, beat.running):
                # The word may be on its way, or it was lost: then it comes once more.
                self._told.pop(machine.id, None)
            now_s = time.monotonic()
            if now_s - self._heard_s.get(machine.id, -STATUS_INTERVAL_S) < SOON * STATUS_INTERVAL_S:
                return
            self._heard_s[machine.id] = now_s
            own = {other: one for other, one in self._beats.items() if self._workers[other].id == machine.id}
            self._running[machine.id] = {other: one.running for other, one in own.items()}
            together = own.values()
        whole = replace(
            beat,
            running=sum(one.running for one in together),
            building=sum(one.building for one in together),
            allowed=sum(one.allowed for one in together),
            cells=tuple(cell for one in together for cell in one.cells),
        )
        self._listener.on_status(machine.id, whole)


def protocol() -> str:
    """What Dask's own settings ask for: "tls" where they require encryption."""
    return "tls" if dask.config.get("distributed.comm.require-encryption") else "tcp"


def check_secrecy(address: str, role: str) -> None:
    """Holds a scheduler's address against Dask's own settings: what does not fit would end in a traceback of Dask's.

    Args:
        address: of the scheduler.
        role: client or worker.

    Raises:
        Unavailable: they do not fit.
    """
    secret = address.startswith("tls://")
    if protocol() == "tls" and not secret:
        raise Unavailable(
            f"Dask's settings ask for encryption, and {address} has none: the scheduler's address must begin with tls://"
        )
    names = ("ca-file", f"{role}.cert", f"{role}.key")
    lacking = [name for name in names if not dask.config.get(f"distributed.comm.tls.{name}", None)]
    if secret and lacking:
        variable = "DASK_DISTRIBUTED__COMM__TLS__" + lacking[0].replace(".", "__").replace("-", "_").upper()
        raise Unavailable(
            f"no Dask scheduler answers at {address} without a certificate: ${variable} is not set "
            "(docs/distributed.md)"
        )


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Ctrl-C reaches every process of a terminal; workers that are started in here leave it to the runner."""
    old = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old)


# What a worker does ----------------------------------------------------------------------------------------------

_pools: dict[str, tuple[CellPool, Store]] = {}
_pools_lock = threading.Lock()


def _pool(where: Mapping[str, Any], worker: Any = None) -> tuple[CellPool, Store]:
    """The cells of a worker for one campaign, and its store; made when `worker` is given."""
    with _pools_lock:
        if where["topic"] not in _pools:
            store = Store.open(where["results"], where["artefacts"])
            store.sweep_incoming()

            def tell(beat: PoolStatus) -> None:
                cells = [(cell, run, progress.as_json()) for cell, run, progress in beat.cells]
                said = {"worker": worker.address, **asdict(replace(beat, cells=())), "cells": cells}
                worker.loop.add_callback(worker.log_event, where["topic"], said)

            _pools[where["topic"]] = (CellPool(store, tell), store)
        return _pools[where["topic"]]


def _introduce(where: Mapping[str, Any], runners: str, dask_worker: Any = None) -> dict[str, Any] | str:
    """What machine this is; a sentence when its software is another or it cannot reach the store: what is raised in a
    worker Dask writes to its log as a traceback.

    `dask_worker` is filled in by Dask.
    """
    own = sources()
    if own != runners:
        return (
            f"its sources have the digest {own[:12]} and the runner's {runners[:12]}: bring both to one commit, "
            "a worker that a role made by './backchannel testbed site'"
        )
    try:
        _pool(where, dask_worker)
    except (StoreError, TestbedError) as error:
        return str(error)
    return asdict(this_machine())


def _run_here(words: Mapping[str, Any], where: Mapping[str, Any]) -> Result:
    job = Job(**{**words, "run": Run(**words["run"])})
    pool, store = _pool(where)
    if job.run.backend == "emulated" and (missing := missing_for_emulation()):
        problem = f"worker {get_worker().address}: {'; '.join(missing)}"
        store.note_failure(job.run.id, job.attempt, problem)
        return Result((problem,), failed=True)
    came: list[Result] = []
    done = threading.Event()

    def take(result: Result) -> None:
        came.append(result)
        done.set()

    pool.submit(job, take)
    done.wait()
    return came[0]


def _allow_here(where: Mapping[str, Any], said: Mapping[str, tuple[int, int]], dask_worker: Any = None) -> None:
    """`said` is by worker; `dask_worker` is filled in by Dask."""
    with _pools_lock:
        found = _pools.get(where["topic"])
    if found is not None:
        found[0].allow(*said[dask_worker.address])


def _stop_here(where: Mapping[str, Any]) -> None:
    with _pools_lock:
        found = _pools.get(where["topic"])
    if found is not None:
        found[0].stop()


def _forget_here(where: Mapping[str, Any]) -> None:
    with _pools_lock:
        found = _pools.pop(where["topic"], None)
    if found is not None:
        # Its cells may take a moment to end; nobody waits for them.
        threading.Thread(target=_close, args=found, daemon=True).start()


def _close(pool: CellPool, store: Store) -> None:
    pool.close()
    store.close()


@atexit.register
def _close_all() -> None:
    for pool, _ in _pools.values():
        pool.stop()


def why(error: BaseException) -> str:
    """What is at the bottom of a connection that was not made: what is above it says no more than that it was not."""
    while (below := error.__cause__ or error.__context__) is not None:
        error = below
    return _said(error)


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__
