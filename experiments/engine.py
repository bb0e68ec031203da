"""Runs a campaign: what is missing in the store, several cells at a time, invalid runs again."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from analysis.store import Store, StoreError, requests
from experiments.campaign import Plan, Run
from experiments.execute import Worker
from experiments.show import Reporter
from testbed.capability import require_emulation
from testbed.errors import TestbedError

#: Cells per CPU: an emulated run waits far more than it works.
CELLS_PER_CPU = 3
#: Tries of a run; a machine that is busy with other things spoils some.
ATTEMPTS = 5


@dataclass(frozen=True)
class Options:
    """How to run."""

    results: Path
    #: Cells at a time; None: CELLS_PER_CPU for every CPU.
    jobs: int | None = None
    #: Run again what the store has.
    force: bool = False


@dataclass
class Outcome:
    """How a campaign ended."""

    campaign_id: str
    reused: int
    landed: int = 0
    #: Run id to why it has no valid result.
    failed: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False

    @property
    def complete(self) -> bool:
        """Whether every run is in the store and valid."""
        return not self.failed and not self.interrupted


def run_campaign(plan: Plan, options: Options, reporter: Reporter) -> Outcome:
    """Brings every run of a plan into the store.

    Raises:
        Unavailable: this machine cannot run the backend.
        StoreError: the results folder cannot be used.
        TestbedError: something that is no run's own failure, such as a full disk; what has landed stays.
    """
    emulated = [run for run in plan.runs if run.backend == "emulated"]
    if emulated and not options.results.exists():
        # Nothing can be reused: refuse before anything is made.
        require_emulation()
    store = Store.open(options.results)
    store.sweep_incoming()
    ids = list(dict.fromkeys(run.id for run in plan.runs))
    known = set() if options.force else store.valid_runs(ids)
    missing = [run for run in {run.id: run for run in plan.runs}.values() if run.id not in known]
    emulated = [run for run in missing if run.backend == "emulated"]
    if emulated:
        require_emulation()
    _enter(store, plan)
    outcome = Outcome(plan.id, reused=len(ids) - len(missing))
    if missing:
        jobs = options.jobs or (CELLS_PER_CPU if emulated else 1) * (os.cpu_count() or 1)
        stale = {run.id for run in missing} if options.force else set()
        try:
            _Execution(store, plan, missing, stale, min(jobs, len(missing)), reporter).run(outcome)
        except BaseException:
            store.end_campaign(plan.id, complete=False)
            store.close()
            raise
    store.end_campaign(plan.id, outcome.complete)
    store.close()
    return outcome


def _enter(store: Store, plan: Plan) -> None:
    fields = {
        "id": plan.id, "name": plan.name, "title": plan.title, "file": plan.file, "text": plan.text,
        "overrides": dict(plan.overrides), "backend": plan.backend, "seed": plan.seed, "repetitions": plan.repetitions,
    }  # fmt: skip
    points = [list(point.parameters.items()) for point in plan.points]
    store.begin_campaign(fields, points, [(run.point, run.repetition, run.id) for run in plan.runs])


class _Execution:
    """The threads of one campaign: one a cell, and the calling one, which shows and notes progress."""

    def __init__(
        self, store: Store, plan: Plan, runs: Sequence[Run], stale: set[str], jobs: int, reporter: Reporter
    ) -> None:
        self._store = store
        #: Runs whose old result goes when the new one is there, not before.
        self._stale = stale
        self._trouble: Exception | None = None
        self._plan = plan
        self._reporter = reporter
        self._todo: queue.SimpleQueue[tuple[Run, int]] = queue.SimpleQueue()
        # Repetition by repetition: an interrupted campaign then has something of every point.
        for run in sorted(runs, key=lambda run: (run.repetition, run.point)):
            self._todo.put((run, 1))
        self._left = len(runs)
        self._total_s = sum(float(run.scenario["duration_s"]) for run in runs)
        self._allowed = jobs
        self._open = {f"cell {number + 1}" for number in range(jobs)}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._phases: dict[str, tuple[Run | None, str]] = {}
        self._done_s = 0.0
        self._workers = [self._make_worker(f"cell {number + 1}") for number in range(jobs)]

    def _make_worker(self, name: str) -> tuple[str, Worker]:
        return name, Worker(name, lambda phase: self._phase(name, phase))

    def run(self, outcome: Outcome) -> None:
        """Until nothing is left to do, or somebody says stop."""
        threads = [
            threading.Thread(target=self._work, args=(name, worker, outcome), name=name)
            for name, worker in self._workers
        ]
        with (
            _interruptible(self._stop),
            self._reporter.progress(self._plan, self._left, self._total_s) as shown,
        ):
            for thread in threads:
                thread.start()
            last_told = 0.0
            while any(thread.is_alive() for thread in threads):
                if self._stop.is_set() and not outcome.interrupted:
                    outcome.interrupted = True
                    for _, worker in self._workers:
                        worker.kill()
                shown.update(*self._state())
                if time.monotonic() - last_told > 2:
                    last_told = time.monotonic()
                    self._store.tell_progress(self._plan.id, self._as_json())
                    if requests.stop_wanted(self._store, self._plan.id):
                        self._stop.set()
                time.sleep(0.1)
            for thread in threads:
                thread.join()
            # Workers that have nothing to be killed may all have ended before the loop looked again.
            outcome.interrupted = self._stop.is_set() and self._trouble is None
            shown.update(*self._state())
        if isinstance(self._trouble, TestbedError | StoreError):
            raise self._trouble
        if self._trouble is not None:
            what = getattr(self._trouble, "strerror", None) or f"{type(self._trouble).__name__}: {self._trouble}"
            raise TestbedError(
                f"the campaign stopped: {what}; what has landed stays, and the same command goes on"
            ) from self._trouble

    def _work(self, name: str, worker: Worker, outcome: Outcome) -> None:
        try:
            while not self._stop.is_set():
                with self._lock:
                    if self._left == 0:
                        return
                    if len(self._open) > self._allowed:
                        self._open.discard(name)
                        return
                try:
                    run, attempt = self._todo.get(timeout=0.2)
                except queue.Empty:
                    continue
                with self._lock:
                    self._phases[name] = (run, "starting")
                self._try(worker, run, attempt, outcome)
                with self._lock:
                    self._phases[name] = (None, "idle")
        except Exception as error:  # noqa: BLE001 (raised by run, in the calling thread)
            # No run may be lost without a word: the others stop as well.
            with self._lock:
                self._trouble = self._trouble or error
            self._stop.set()
        finally:
            worker.close()

    def _try(self, worker: Worker, run: Run, attempt: int, outcome: Outcome) -> None:
        try:
            landing = worker.run(run, attempt, self._store.incoming(run.id))
        except TestbedError as error:
            if self._stop.is_set():
                return
            self._store.note_failure(run.id, attempt, str(error))
            self._again(run, attempt, str(error), outcome)
            return
        with self._lock:
            if run.id in self._stale:
                self._stale.discard(run.id)
                self._store.forget([run.id])
        self._store.land(landing)
        if landing.problems:
            self._again(run, attempt, "; ".join(landing.problems), outcome)
            return
        with self._lock:
            outcome.landed += 1
            self._left -= 1
            self._done_s += float(run.scenario["duration_s"])
        self._reporter.note_run(self._plan, run, "")

    def _again(self, run: Run, attempt: int, why: str, outcome: Outcome) -> None:
        first, _, more = why.partition("; ")
        short = f"{first}; and {more.count('; ') + 1} more" if more else first
        with self._lock:
            # As many cells as the machine serves in time: one less after every run that was not valid.
            self._allowed = max(1, self._allowed - 1)
        # Virtual time gives the same again.
        most = 1 if run.backend == "sim" else ATTEMPTS
        if attempt < most:
            self._reporter.note_run(self._plan, run, f"try {attempt} of {most} is not valid: {short}")
            self._todo.put((run, attempt + 1))
            return
        tries = "1 try" if most == 1 else f"{most} tries"
        self._reporter.note_run(self._plan, run, f"given up after {tries}: {short}")
        with self._lock:
            outcome.failed[run.id] = why
            self._left -= 1
            self._done_s += float(run.scenario["duration_s"])

    def _phase(self, name: str, phase: str) -> None:
        with self._lock:
            run, _ = self._phases.get(name, (None, ""))
            self._phases[name] = (run, phase)

    def _state(self) -> tuple[float, list[tuple[str, Run | None, str]]]:
        """Seconds of runs that are through, the running ones counted in part; and what each cell does."""
        with self._lock:
            cells = [(name, run, phase) for name, (run, phase) in sorted(self._phases.items())]
            return self._done_s + sum(_passed_s(phase) for _, run, phase in cells if run), cells

    def _as_json(self) -> dict[str, Any]:
        through_s, cells = self._state()
        return {
            "pid": os.getpid(),
            "share": through_s / self._total_s if self._total_s else 1.0,
            "cells": [
                {
                    "cell": name,
                    "run": run.id,
                    "point": run.point,
                    "repetition": run.repetition,
                    "phase": phase,
                }
                for name, run, phase in cells
                if run is not None
            ],
        }


def _passed_s(phase: str) -> float:
    word, _, seconds = phase.partition(" ")
    return float(seconds) if word == "running" and seconds else 0.0


@contextmanager
def _interruptible(stop: threading.Event) -> Iterator[None]:
    """SIGINT and SIGTERM set the event instead of ending the process in the middle."""

    def note(_: int, __: FrameType | None) -> None:
        stop.set()

    old = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
