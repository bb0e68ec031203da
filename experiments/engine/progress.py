"""Progress of a batch as objects: the engine makes them, the terminal and the store's progress column show them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from analysis.store.rows import CellProgressRow, ProgressRow
from experiments.labels import duration_text
from experiments.language.campaign import Plan, Run
from testbed import report as testbed
from testbed.report import Phase
from testbed.units import number_of, rough


@dataclass(frozen=True)
class CellProgress:
    """One cell with its run; or a run that is being analysed after it has left its cell."""

    #: Name of the cell; "analysis" for an analysis.
    cell: str
    run: Run
    progress: testbed.Progress

    def row(self) -> CellProgressRow:
        """As the store keeps it."""
        run, phase = self.run, self.progress.phase.value
        return {
            "cell": self.cell,
            "run": run.id,
            "point": run.point,
            "repetition": run.repetition,
            "phase": f"{phase} {self.progress.passed_s:.1f}" if phase == Phase.RUNNING else phase,
        }


@dataclass(frozen=True)
class Progress:
    """How far campaigns are."""

    #: Effort (forecast.effort_s) of finished runs with the elapsed part of current ones, and of all runs, in s.
    finished_s: float
    total_s: float
    done: int
    failed: int
    runs: int
    elapsed_s: float
    #: Cells that may run at once; 0 while the machine's host takes too much CPU time for any run to start.
    allowed: int
    cells: tuple[CellProgress, ...]
    #: Process that runs the campaign.
    pid: int
    #: Runs that other runners make, and those of them that they have made.
    elsewhere: int = 0
    made_elsewhere: int = 0

    @property
    def per_minute(self) -> float | None:
        """Finished runs in a minute; None before the first."""
        finished = self.done + self.failed
        return 60 * finished / self.elapsed_s if finished and self.elapsed_s > 0 else None

    @property
    def left_s(self) -> float | None:
        """Expected time until the end, in s; None before there is a basis for it."""
        if self.finished_s <= 0 or self.elapsed_s < 2:
            return None
        return (self.total_s - self.finished_s) * self.elapsed_s / self.finished_s

    @property
    def text(self) -> str:
        """One line for people."""
        words = [f"{self.done + self.failed + self.made_elsewhere} of {self.runs} runs"]
        if self.failed:
            words.append(f"{self.failed} without a valid result")
        if self.made_elsewhere:
            words.append(f"{self.made_elsewhere} of them made by other runners")
        if self.elsewhere:
            words.append(f"{self.elsewhere} at other runners")
        if busy := sum(1 for cell in self.cells if cell.progress.phase is not Phase.ANALYSING):
            words.append(number_of(busy, "busy cell"))
        if not self.allowed:
            words.append("waiting, because the machine's host takes too much CPU time")
        if self.per_minute is not None:
            words.append(f"{rough(self.per_minute)} runs a minute")
        if self.left_s is not None:
            words.append(f"{duration_text(self.left_s)} left")
        return ", ".join(words)

    def row(self) -> ProgressRow:
        """As the store keeps it (column `progress` of analysis.store.schema), where the site reads it."""
        return {
            "pid": self.pid,
            "share": self.finished_s / self.total_s if self.total_s else 1.0,
            "done": self.done,
            "failed": self.failed,
            "runs": self.runs,
            "allowed": self.allowed,
            "per_minute": self.per_minute,
            "left_s": self.left_s,
            "cells": [cell.row() for cell in self.cells],
        }


@dataclass(frozen=True)
class RunFinished:
    """A run has a valid result."""

    plan: Plan
    run: Run


@dataclass(frozen=True)
class RunRetried:
    """An attempt gave no valid result; the run is repeated."""

    plan: Plan
    run: Run
    attempt: int
    attempts: int
    problems: str


@dataclass(frozen=True)
class RunFailed:
    """A run has no valid result after its last attempt."""

    plan: Plan
    run: Run
    #: "5 attempts", or "4 workers".
    after: str
    problems: str


@dataclass(frozen=True)
class WorkerLost:
    """A run's worker is gone; the run is repeated."""

    plan: Plan
    run: Run
    reason: str


@dataclass(frozen=True)
class RunDeferred:
    """A host of the lab does not answer; this run and those after it wait for it, or for another set of hosts."""

    plan: Plan
    run: Run
    reason: str
    #: Its set of hosts, while others still make runs; empty: all wait.
    set_name: str = ""


@dataclass(frozen=True)
class RunCompletedElsewhere:
    """Another runner that shares the store has made the run."""

    plan: Plan
    run: Run


RunEvent = RunFinished | RunRetried | RunFailed | WorkerLost | RunDeferred | RunCompletedElsewhere


class Observer(Protocol):
    """Receives what happens to a batch, in the thread that runs it."""

    def watch(
        self, plans: Sequence[Plan], runs: int, total_s: float
    ) -> AbstractContextManager[Callable[[Progress], None]]:
        """Entered while the batch runs; what it returns is called several times a second.

        Args:
            plans: the batch.
            runs: number of runs to make.
            total_s: their effort, in s.
        """

    def say(self, line: str) -> None:
        """What is done before the batch can begin, such as the build of a kernel."""

    def on_event(self, event: RunEvent, is_batch: bool) -> None:
        """Something happened to a run; `is_batch`: the batch has several campaigns."""


def first_problem(problems: str) -> str:
    """The first of several problems, and how many there are."""
    first, _, more = problems.partition("; ")
    return f"{first}; and {more.count('; ') + 1} more" if more else first
