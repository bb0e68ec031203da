"""Progress in the terminal: a bar and a line for each cell, or plain lines where there is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from experiments.engine import progress as engine
from experiments.labels import run_label
from experiments.language.campaign import Plan, Run

#: Cells that have a line in the terminal.
MAX_CELL_LINES = 16
#: Interval between two lines on the whole batch where there is no terminal, in s.
PLAIN_INTERVAL_S = 20.0


class TerminalReporter:
    """An engine.Observer that writes to a console; with `quiet`, only what went wrong."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self.console = console
        self._quiet = quiet

    @contextmanager
    def watch(self, plans: Sequence[Plan], runs: int, total_s: float) -> Iterator[Callable[[engine.Progress], None]]:
        """A bar with the cells below it; without a terminal, a line every PLAIN_INTERVAL_S."""
        name = plans[0].name if len(plans) == 1 else f"{len(plans)} campaigns"
        if self._quiet:
            yield lambda _: None
        elif not self.console.is_terminal:
            yield _PlainProgress(self.console, name).update
        else:
            bar = Progress(
                TextColumn(f"{name}: {runs} runs"),
                BarColumn(),
                TaskProgressColumn(),
                TimeElapsedColumn(),
                console=self.console,
            )
            task = bar.add_task("", total=total_s)
            with Live(bar, console=self.console, refresh_per_second=4, transient=True) as live:
                yield _LiveProgress(bar, task, live, plans).update

    def say(self, line: str) -> None:
        """A line, with `quiet` as well: it is about minutes of waiting."""
        self.console.print(line, highlight=False, soft_wrap=True)

    def on_event(self, event: engine.RunEvent, is_batch: bool) -> None:
        """A line for what went wrong; without a terminal, one for each finished run as well."""
        label = run_label(event.plan, event.run)
        if is_batch:
            label = f"{event.plan.name}: {label}"
        if isinstance(event, engine.RunFinished | engine.RunCompletedElsewhere):
            if not self.console.is_terminal and not self._quiet:
                self.console.print(f"{label}: {_event_text(event)}", highlight=False, soft_wrap=True)
            return
        # Not wrapped, so that scripts can read it.
        self.console.print(f"{label}: {_event_text(event)}", style="yellow", highlight=False, soft_wrap=True)


def _event_text(event: engine.RunEvent) -> str:
    match event:
        case engine.RunFinished():
            return "done"
        case engine.RunCompletedElsewhere():
            return "done by another runner"
        case engine.RunRetried():
            return f"attempt {event.attempt} of {event.attempts} is not valid: {engine.first_problem(event.problems)}"
        case engine.RunFailed():
            return f"given up after {event.after}: {engine.first_problem(event.problems)}"
        case engine.WorkerLost():
            return f"{event.reason}; this run is repeated"
        case engine.RunDeferred():
            if event.set_name:
                return f"{event.reason}; set {event.set_name} waits for the host, other sets make its runs"
            return f"{event.reason}; this run and those after it wait for the host"


class _PlainProgress:
    """Lines for a log."""

    def __init__(self, console: Console, name: str) -> None:
        self._console = console
        self._name = name
        self._printed_s = 0.0

    def update(self, progress: engine.Progress) -> None:
        if progress.elapsed_s - self._printed_s >= PLAIN_INTERVAL_S:
            self._printed_s = progress.elapsed_s
            self._console.print(f"{self._name}: {progress.text}", style="dim", highlight=False, soft_wrap=True)


class _LiveProgress:
    """A bar, the state of the batch, and a line for each cell."""

    def __init__(self, bar: Progress, task: TaskID, live: Live, plans: Sequence[Plan]) -> None:
        self._bar = bar
        self._task = task
        self._live = live
        self._plans = {run_id: plan for plan in reversed(plans) for run_id in plan.run_ids}
        self._is_batch = len(plans) > 1

    def update(self, progress: engine.Progress) -> None:
        self._bar.update(self._task, completed=progress.finished_s)
        lines = [
            # One line for each: the run's name, which may be long, is what is cut off.
            Text(
                f"  {cell.cell}: {cell.progress}: {self._label(cell.run)}",
                style="dim",
                overflow="ellipsis",
                no_wrap=True,
            )
            for cell in progress.cells[:MAX_CELL_LINES]
        ]
        if len(progress.cells) > MAX_CELL_LINES:
            lines.append(Text(f"  and {len(progress.cells) - MAX_CELL_LINES} more", style="dim"))
        self._live.update(Group(self._bar, Text(f"  {progress.text}"), *lines))

    def _label(self, run: Run) -> str:
        plan = self._plans[run.id]
        return f"{plan.name}: {run_label(plan, run)}" if self._is_batch else run_label(plan, run)
