"""Cheap simulations: many runs in few node processes, measured by counters in memory, stored in batches without files.

A screened run has the id and the scenario of the run that `run` makes; recording does not change its course. So
an interesting run can be repeated with captures, by its id.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from analysis.counters import CountedRun
from analysis.metrics import measure
from analysis.results import Quantity
from analysis.store import Store
from analysis.store.screened import Screened, keep, known
from experiments.language.campaign import Run
from testbed import delivery, fidelity, node_binary, own_nodes
from testbed.addressing import as_json, interfaces, make_plan
from testbed.errors import TestbedError
from testbed.report import Report, sentences
from testbed.scenario import Counters, Scenario

#: Runs that a transaction stores, and the longest time between two, in s: what a kill loses at most.
BATCH, BATCH_S = 200, 5.0
#: Bins of a run whose campaign asks for no counters.
BINS = 100


class Simulator:
    """A node process that simulates one scenario after another in memory. Belongs to one thread."""

    def __init__(self) -> None:
        words = [node_binary.path(), "simulate", "--in-memory", "--parent", str(os.getpid())]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, run: Run, names: Sequence[str] | None) -> Screened:
        """Simulates a run and measures these metrics; None: every one.

        Raises:
            TestbedError: it cannot be simulated, or a metric needs more than counters.
        """
        scenario = counted(run.scenario)
        if reason := own_nodes.lack(scenario.crates):
            raise TestbedError(reason)
        plan = make_plan(scenario.nodes, scenario.links)
        answer = self._ask({"scenario": scenario.for_node(), "nodes": as_json(plan)})
        if "error" in answer:
            raise TestbedError(f"the simulation failed: {answer['error']}")
        report = Report.read(answer["report"]).replace(interfaces=interfaces(plan))
        counters = answer["counters"]
        view = CountedRun(
            scenario, counters["every_s"], counters["end_s"], counters["links"], counters["flows"], report, None
        )
        measured = measure(view, names=names)
        if names is not None and measured.refused:
            raise TestbedError(f"a run without captures has no such metric: {'; '.join(measured.unmeasured)}")
        problems = [*fidelity.problems(report, scenario.fidelity), *delivery.problems(scenario, report, plan)]
        values = {Quantity(row.metric, row.subject, row.unit): row.value for row in measured.rows}
        of = frozenset(quantity.metric for quantity in values) if names is None else frozenset(names)
        return Screened(run.id, values, tuple(sentences(problems)), of)

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            if line := self._process.stdout.readline():
                answer: dict[str, Any] = json.loads(line)
                return answer
        _, trouble = self._process.communicate()
        raise TestbedError(f"the simulation failed: {node_binary.failure(self._process.returncode, trouble)}")


def counted(scenario: Scenario) -> Scenario:
    """The scenario with counters alone: its own, or all links in BINS bins."""
    counters = scenario.capture.counters or Counters(every_s=max(scenario.duration_s / BINS, 1e-3))
    return scenario.replace(capture=scenario.capture.replace(at=("none",), telemetry=False, counters=counters))


@dataclass
class Progress:
    """How far a screening is."""

    runs: int
    #: Runs that the store had.
    reused: int = 0
    made: int = 0
    #: Why each run without values has none, by run id.
    failed: dict[str, str] = field(default_factory=dict)


def screen(
    store: Store,
    runs: Sequence[Run],
    names: Sequence[str] | None,
    jobs: int | None = None,
) -> tuple[dict[str, Screened], Progress]:
    """Screens runs, each once, and stores those that the store does not have.

    Args:
        store: that keeps them.
        runs: of simulations.
        names: of the metrics; None: all that counters serve. A stored run that lacks one is made again.
        jobs: most at the same time; None: one a CPU.

    Returns:
        Those with values, by id.
    """
    unique = {run.id: run for run in runs}
    required = frozenset(names or ())
    have = {
        run_id: row
        for run_id, row in known(store, list(unique)).items()
        if required <= row.names and (names or row.names)
    }
    progress = Progress(len(unique), reused=len(have))
    missing = [run for run_id, run in unique.items() if run_id not in have]
    if missing:
        with _made(missing, names, min(jobs or os.cpu_count() or 1, len(missing))) as results:
            for batch in _batches(results, len(missing), progress):
                keep(store, batch)
                have.update({row.run_id: row for row in batch})
    return have, progress


def _batches(
    results: queue.SimpleQueue[tuple[str, Screened | BaseException]],
    count: int,
    progress: Progress,
) -> Iterator[list[Screened]]:
    """What is to be stored together. What is finished when a user interrupts is stored as well."""
    batch: list[Screened] = []
    since_s = time.monotonic()
    try:
        for _ in range(count):
            run_id, result = results.get()
            match result:
                case Screened():
                    batch.append(result)
                    progress.made += 1
                case TestbedError():
                    progress.failed[run_id] = str(result)
                case _:
                    raise result
            if len(batch) >= BATCH or time.monotonic() - since_s > BATCH_S:
                yield batch
                batch, since_s = [], time.monotonic()
    except BaseException:
        if batch:
            yield batch
        raise
    if batch:
        yield batch


@contextmanager
def _made(
    runs: Sequence[Run], names: Sequence[str] | None, threads: int
) -> Iterator[queue.SimpleQueue[tuple[str, Screened | BaseException]]]:
    """The results of runs as they are finished, from threads with a node process each. They end with the context."""
    waiting = iter(runs)
    lock, stopped = threading.Lock(), threading.Event()
    results: queue.SimpleQueue[tuple[str, Screened | BaseException]] = queue.SimpleQueue()

    def next_run() -> Run | None:
        with lock:
            return None if stopped.is_set() else next(waiting, None)

    def work() -> None:
        run = next_run()
        while run is not None:
            # A simulation that ends its process gets a new one after it.
            try:
                with Simulator() as simulator:
                    while run is not None:
                        results.put((run.id, simulator.run(run, names)))
                        run = next_run()
            except BaseException as error:  # noqa: BLE001 (the reader raises what no run caused)
                assert run is not None
                results.put((run.id, error))
                run = next_run()

    workers = [threading.Thread(target=work, name=f"screen {number}", daemon=True) for number in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield results
    finally:
        stopped.set()
        for worker in workers:
            worker.join()
