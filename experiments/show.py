"""What a person sees of a campaign in the terminal: progress, and the table at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

# What the site used to import from here.
from experiments.labels import duration_text as duration_text
from experiments.labels import mean_sd as mean_sd
from experiments.labels import point_label as point_label
from experiments.labels import results_json as results_json
from experiments.labels import run_label as run_label
from testbed import units

if TYPE_CHECKING:
    from analysis.comparison import Comparison, Line
    from analysis.scorecard import Artefact, OrderingScore, Score, ValueScore
    from experiments.language.campaign import Plan, Run

#: Metrics of the table at the end, in its order.
COLUMNS = ("throughput", "goodput", "retransmissions", "completion_time", "fairness_index")


#: Cells with a line of their own in the terminal.
MOST_LINES = 16
#: Seconds between two lines about the whole, on something that is no terminal.
PLAIN_EVERY_S = 20.0

#: Where the full title would make a terminal's line too long.
SHORT = {"retransmissions": "resent", "fairness_index": "fairness"}


@dataclass(frozen=True)
class State:
    """How far a campaign is."""

    #: Effort (forecast.effort_s) of the runs that are through, with the part of those at work; and of all runs.
    through_s: float
    total_s: float
    done: int
    failed: int
    runs: int
    elapsed_s: float
    #: Cells that may be at work at once; 0 while no run begins for the host's sake.
    allowed: int
    #: Cell, run, phase.
    cells: tuple[tuple[str, Run, str], ...]
    pid: int

    @property
    def per_minute(self) -> float | None:
        """Runs that are through in a minute; None before the first."""
        through = self.done + self.failed
        return 60 * through / self.elapsed_s if through and self.elapsed_s > 0 else None

    @property
    def left_s(self) -> float | None:
        """Seconds until the end, if it goes on like this; None before anything can be said."""
        if self.through_s <= 0 or self.elapsed_s < 2:
            return None
        return (self.total_s - self.through_s) * self.elapsed_s / self.through_s

    def text(self) -> str:
        """In one line."""
        words = [f"{self.done + self.failed} of {self.runs} runs"]
        if self.failed:
            words.append(f"{self.failed} without a valid result")
        words.append(f"{sum(1 for _, _, phase in self.cells if phase != 'analysing')} cells at work")
        if not self.allowed:
            words.append("no run begins while the machine's own host takes so much of its CPUs")
        if self.per_minute is not None:
            words.append(f"{self.per_minute:.3g} runs a minute")
        if self.left_s is not None:
            words.append(f"{duration_text(self.left_s)} left")
        return ", ".join(words)

    def as_json(self) -> dict[str, Any]:
        """For the store, where the site reads it."""
        return {
            "pid": self.pid,
            "share": self.through_s / self.total_s if self.total_s else 1.0,
            "done": self.done,
            "failed": self.failed,
            "runs": self.runs,
            "allowed": self.allowed,
            "per_minute": self.per_minute,
            "left_s": self.left_s,
            "cells": [
                {"cell": name, "run": run.id, "point": run.point, "repetition": run.repetition, "phase": phase}
                for name, run, phase in self.cells
            ],
        }


class Shown:
    """A progress display under way."""

    def __init__(
        self, progress: Progress, task: Any, live: Live | None, plans: Sequence[Plan], console: Console | None
    ) -> None:
        self._progress = progress
        self._task = task
        self._live = live
        self._name = batch_name(plans)
        self._plans = {run.id: plan for plan in reversed(plans) for run in plan.runs}
        self._many = len(plans) > 1
        #: Takes a plain line now and then; None: nothing does.
        self._console = console
        self._told_s = 0.0

    def update(self, state: State) -> None:
        """Shows how far the campaign is and what each cell does."""
        self._progress.update(self._task, completed=state.through_s)
        if self._live is not None:
            lines = [
                Text(f"  {name}: {self._label(run)}: {phase_text(phase)}", style="dim", overflow="ellipsis")
                for name, run, phase in state.cells[:MOST_LINES]
            ]
            if len(state.cells) > MOST_LINES:
                lines.append(Text(f"  and {len(state.cells) - MOST_LINES} more", style="dim"))
            self._live.update(Group(self._progress, Text(f"  {state.text()}"), *lines))
        elif self._console is not None and state.elapsed_s - self._told_s >= PLAIN_EVERY_S:
            self._told_s = state.elapsed_s
            self._console.print(f"{self._name}: {state.text()}", style="dim", highlight=False, soft_wrap=True)

    def _label(self, run: Run) -> str:
        plan = self._plans[run.id]
        return f"{plan.name}: {run_label(plan, run)}" if self._many else run_label(plan, run)


def batch_name(plans: Sequence[Plan]) -> str:
    """What a line about all of them begins with."""
    return plans[0].name if len(plans) == 1 else f"{len(plans)} campaigns"


class Reporter:
    """Writes to the terminal; with `quiet`, only what went wrong."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self.console = console
        self._quiet = quiet

    @contextmanager
    def progress(self, plans: Sequence[Plan], runs: int, total_s: float) -> Iterator[Shown]:
        """A bar with what is running; on something that is no terminal, a line per run and now and then one for all."""
        progress = Progress(
            TextColumn(f"{batch_name(plans)}: {runs} runs"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(),
            console=self.console,
        )  # fmt: skip
        task = progress.add_task("", total=total_s)
        if self._quiet or not self.console.is_terminal:
            yield Shown(progress, task, None, plans, None if self._quiet else self.console)
            return
        with Live(progress, console=self.console, refresh_per_second=4, transient=True) as live:
            yield Shown(progress, task, live, plans, None)

    def note_run(self, plan: Plan, run: Run, trouble: str, many: bool = False) -> None:
        """One run has landed, or has not; with `many` campaigns under way its own is named."""
        label = f"{plan.name}: {run_label(plan, run)}" if many else run_label(plan, run)
        if trouble:
            # A line is a line, however long: scripts read it.
            self.console.print(f"{label}: {trouble}", style="yellow", highlight=False, soft_wrap=True)
        elif not self.console.is_terminal and not self._quiet:
            self.console.print(f"{label}: done", highlight=False, soft_wrap=True)


def phase_text(phase: str) -> str:
    """ "running 3.4" as people say it."""
    word, _, seconds = phase.partition(" ")
    return f"running, {float(seconds):.0f} s" if word == "running" and seconds else phase


def results_table(
    points: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], titles: Mapping[str, str]
) -> Group:
    """Per point a heading and per flow a line, each metric as mean ± standard deviation over the valid runs.

    Args:
        points: of Store.campaign.
        rows: of Store.table.
        titles: metric name to what people call it.
    """
    cells = {(row["point"], row["name"], row["subject"]): row for row in rows}
    flows = list(dict.fromkeys(row["subject"] for row in rows if row["subject"] and row["name"] in COLUMNS))
    of_flow = [name for name in COLUMNS if any(row["name"] == name and row["subject"] for row in rows)]
    of_run = [name for name in COLUMNS if any(row["name"] == name and not row["subject"] for row in rows)]
    heads = [_head(name, titles) for name in of_flow]
    body = {
        (point["number"], flow): [mean_sd(cells.get((point["number"], name, flow))) for name in of_flow]
        for point in points
        for flow in flows
    }
    widths = [max([len(head), *(len(line[column]) for line in body.values())]) for column, head in enumerate(heads)]
    flow_width = max([len(flow) for flow in flows] + [0]) + 2

    def line(first: str, values: Sequence[str]) -> str:
        return first.ljust(flow_width) + "".join(
            "  " + value.rjust(width) for value, width in zip(values, widths, strict=True)
        )

    parts = [Text(line("", heads), style="dim")]
    for point in points:
        valid = sum(member["state"] == "valid" for member in point["members"])
        whole = [f"{_head(name, titles)} {mean_sd(cells.get((point['number'], name, '')))}" for name in of_run]
        heading = Text(point_label(dict(point["parameters"])) or "all runs", style="bold")
        heading.append(f"  ({', '.join([f'{valid} runs', *whole])})", style="not bold")
        parts.append(heading)
        parts += [Text(line("  " + flow, body[point["number"], flow])) for flow in flows]
    return Group(*parts)


def _head(name: str, titles: Mapping[str, str]) -> str:
    return SHORT.get(name) or titles.get(name, name).lower()


def comparison_table(compared: Comparison, everything: bool) -> Group:
    """A line for each difference that counts (each at all with `everything`), then what follows from them."""
    shown = [line for line in compared.lines if everything or line.verdict not in ("same", "unknown")]
    table = Table(box=None, pad_edge=False, show_edge=False)
    for name in ("point", "metric", compared.a, compared.b, "difference"):
        table.add_column(name, header_style="dim", overflow="fold")
    table.add_column("")
    styles = {"worse": "bold red", "better": "green", "different": "yellow"}
    for line in shown:
        name = f"{line.metric} of {line.subject}" if line.subject else line.metric
        table.add_row(
            point_label(line.point) or "all runs", name, units.show(line.mean_a, line.unit),
            units.show(line.mean_b, line.unit), _difference(line),
            Text(line.verdict, style=styles.get(line.verdict, "dim")),
        )  # fmt: skip
    counts = {word: sum(line.verdict == word for line in compared.lines) for word in VERDICTS}
    told = ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "nothing to compare"
    parts: list[Any] = [table] if shown else []
    parts.append(Text(
        f"{len(compared.lines)} numbers that both have (a metric of a flow, or of the run, at a point): {told}. "
        f"Same: less than {compared.tolerance:.2%} of {compared.a} apart, or no more than chance makes at "
        f"{compared.confidence:.4g} confidence over all of them together; an interval is of its line alone.",
        style="dim",
    ))  # fmt: skip
    for name, points in ((compared.a, compared.only_a), (compared.b, compared.only_b)):
        parts += [Text(f"only in {name}: {point_label(point)}") for point in points]
    if counts["unknown"]:
        parts.append(Text("unknown: one run each says nothing of chance; more repetitions do"))
    return Group(*parts)


#: Of analysis.comparison, in the order in which people want to know.
VERDICTS = ("worse", "better", "different", "same", "unknown")


def _difference(line: Line) -> str:
    """ "-1.2 Mbit/s [-1.5, -0.9] (-12 %)"."""
    found = line.difference
    bounds = (found.interval.low, found.interval.high) if found.interval else ()
    scale, unit = units.scale_of(max(map(abs, (found.value, *bounds))), line.unit)
    interval = f" [{bounds[0] / scale:+.3g}, {bounds[1] / scale:+.3g}]" if bounds else ""
    share = "" if line.relative is None else f" ({line.relative:+.1%})"
    return f"{found.value / scale:+.3g}{' ' + unit if unit else ''}{interval}{share}"


def score_table(artefacts: Sequence[Artefact], details: bool = False) -> Group:
    """The scorecard: per artefact and backend a line, with `details` every value and ordering below it; at the end
    the count.
    """
    from analysis.scorecard import between_backends, count

    width = max([len(one.id) for one in artefacts] + [0])
    parts = []
    for one in artefacts:
        if not one.scores:
            parts.append(Text(f"{one.id.ljust(width)}  not run", style="dim"))
        for backend, score in sorted(one.scores.items()):
            within, hold = sum(value.within for value in score.stated), sum(each.holds for each in score.orderings)
            line = Text(f"{one.id.ljust(width)}  {backend:8}  ")
            line.append("pass" if score.passes else "fail", style="green" if score.passes else "red")
            line.append(f"  {within:2} of {len(score.stated):2} values, {hold:2} of {len(score.orderings):2} orderings")
            if score.there < score.asked:
                line.append(f", {score.there} of {score.asked} runs", style="yellow")
            parts.append(line)
            if details and len(one.scores) == 1:
                parts += [_value_line(value) for value in score.values]
                parts += [_ordering_line(ordering) for ordering in score.orderings]
        if details and len(one.scores) > 1:
            parts += _side_by_side(dict(sorted(one.scores.items())))
    whole = count(artefacts)
    parts.append(
        Text(
            f"{whole['pass']} of {whole['artefacts']} artefacts pass, {whole['run']} were run; "
            f"{whole['values_within']} of {whole['values']} values lie within tolerance, "
            f"{whole['orderings_hold']} of {whole['orderings']} orderings hold",
            style="bold",
        )
    )
    if both := between_backends(artefacts):
        parts.append(
            Text(
                f"{both['values']} values were measured with real packets and in virtual time: half of them differ by "
                f"{both['median']:.1%} or less, {both['within_5_percent']} by 5 % or less; the confidence intervals of "
                f"{len(both['apart'])} do not meet"
            )
        )
        parts += [
            Text(
                f"    {one['artefact']} {one['measure']} {_labels(one['cell'])}: emulated {one['emulated']:.4g}, "
                f"sim {one['sim']:.4g}"
            )
            for one in both["apart"]
            if details
        ]
    return Group(*parts)


def _side_by_side(scores: Mapping[str, Score]) -> list[Text]:
    """Every value and ordering once, with what each backend gave: all scores of an artefact have the same targets."""
    found = []
    for per_backend in zip(*(score.values for score in scores.values()), strict=True):
        told = ", ".join(
            f"{backend} {_mark(one.within)} {_measured(one)}" for backend, one in zip(scores, per_backend, strict=True)
        )
        first = per_backend[0]
        found.append(Text(f"    {first.measure} {_labels(first.cell)}: {told} (published {_published(first)})"))
    for orders in zip(*(score.orderings for score in scores.values()), strict=True):
        told = "; ".join(
            f"{backend} {_mark(one.holds)} "
            + ", ".join("nothing" if mean is None else f"{mean:.4g}" for mean in one.measured)
            for backend, one in zip(scores, orders, strict=True)
        )
        order = ", ".join(str(label) for label in orders[0].order)
        found.append(Text(f"    {orders[0].measure} {_labels(orders[0].where)}: in order: {order}: {told}"))
    return found


def _measured(value: ValueScore) -> str:
    ours = "nothing" if value.measured is None else f"{value.measured:.4g}"
    return ours if value.half_interval is None else f"{ours} ± {value.half_interval:.2g}"


def _published(value: ValueScore) -> str:
    sign = {"le": "at most ", "ge": "at least "}.get(value.relation, "")
    slack = " or ".join(f"{size:g}" if kind == "abs" else f"{size * 100:g} %" for kind, size in value.tolerance.items())
    derived = "" if value.origin == "stated" else f", {value.origin}"
    return f"{sign}{value.published:g} ± {slack}{derived}"


def _value_line(value: ValueScore) -> Text:
    return Text(
        f"    {_mark(value.within)} {value.measure} {_labels(value.cell)}: {_measured(value)} "
        f"(published {_published(value)})",
        style="" if value.within else "yellow" if value.origin != "stated" else "red",
    )


def _ordering_line(ordering: OrderingScore) -> Text:
    shown = ", ".join(
        f"{label} {'nothing' if mean is None else f'{mean:.4g}'}"
        for label, mean in zip(ordering.order, ordering.measured, strict=True)
    )
    more = f", each {ordering.min_ratio:g} times the next" if ordering.min_ratio else ""
    tie = " (a tie)" if ordering.tie else ""
    return Text(
        f"    {_mark(ordering.holds)} {ordering.measure} {_labels(ordering.where)}: in order: {shown}{more}{tie}",
        style="" if ordering.holds else "red",
    )


def _mark(good: bool) -> str:
    return "+" if good else "-"


def _labels(labels: Mapping[str, object]) -> str:
    return ", ".join(f"{axis}={label}" for axis, label in labels.items()) or "overall"
