"""What a person sees of a campaign in the terminal: progress, and the table at the end."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from experiments import units

if TYPE_CHECKING:
    from analysis.scorecard import Artefact, OrderingScore, ValueScore
    from experiments.campaign import Plan, Run

#: Metrics of the table at the end, in its order.
COLUMNS = ("throughput", "goodput", "retransmissions", "completion_time", "fairness_index")


#: Where the full title would make a terminal's line too long.
SHORT = {"retransmissions": "resent", "fairness_index": "fairness"}


class Shown:
    """A progress display under way."""

    def __init__(self, progress: Progress, task: Any, live: Live | None, plan: Plan) -> None:
        self._progress = progress
        self._task = task
        self._live = live
        self._plan = plan

    def update(self, through_s: float, cells: Sequence[tuple[str, Run | None, str]]) -> None:
        """Shows how far the campaign is and what each cell does."""
        self._progress.update(self._task, completed=through_s)
        if self._live is not None:
            lines = [
                Text(
                    f"  {name}: {run_label(self._plan, run)}: {phase_text(phase)}",
                    style="dim",
                    overflow="ellipsis",
                )
                for name, run, phase in cells
                if run is not None
            ]
            self._live.update(Group(self._progress, *lines))


class Reporter:
    """Writes to the terminal; with `quiet`, only what went wrong."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self.console = console
        self._quiet = quiet

    @contextmanager
    def progress(self, plan: Plan, runs: int, total_s: float) -> Iterator[Shown]:
        """A bar with what is running and the time left; on something that is no terminal, a line per run instead."""
        progress = Progress(
            TextColumn(f"{plan.name}: {runs} runs"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(),
            TextColumn("left"), TimeRemainingColumn(), console=self.console,
        )  # fmt: skip
        task = progress.add_task("", total=total_s)
        if self._quiet or not self.console.is_terminal:
            yield Shown(progress, task, None, plan)
            return
        with Live(progress, console=self.console, refresh_per_second=4, transient=True) as live:
            yield Shown(progress, task, live, plan)

    def note_run(self, plan: Plan, run: Run, trouble: str) -> None:
        """One run has landed, or has not."""
        if trouble:
            self.console.print(f"{run_label(plan, run)}: {trouble}", style="yellow", highlight=False)
        elif not self.console.is_terminal and not self._quiet:
            self.console.print(f"{run_label(plan, run)}: done", highlight=False)


def run_label(plan: Plan, run: Run) -> str:
    """ "policy=droptail, repetition 2"."""
    point = point_label(plan.points[run.point].parameters)
    return f"{point + ', ' if point else ''}repetition {run.repetition + 1}"


def point_label(parameters: Mapping[str, str]) -> str:
    """A point's parameters with the last words of their fields."""
    return ", ".join(f"{field.rpartition('.')[2]}={value}" for field, value in parameters.items())


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
    flows = list(dict.fromkeys(row["subject"] for row in rows if row["subject"]))
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


def mean_sd(row: Mapping[str, Any] | None) -> str:
    """ "2.10 ± 0.31 Mbit/s": both in the mean's unit, the mean to the deviation's digits."""
    if row is None:
        return "–"
    mean = units.show(row["mean"], row["unit"])
    if row["sd"] is None:
        return mean
    scale, unit = units.scale_of(row["mean"], row["unit"])
    sd = row["sd"] / scale
    # Two digits of the deviation say how many of the mean mean something.
    digits = 2 if sd == 0 else min(max(1 - math.floor(math.log10(sd)), 0), 3)
    return f"{row['mean'] / scale:.{digits}f} ± {sd:.{digits}f}{' ' + unit if unit else ''}"


def results_json(campaign: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """A campaign's results for scripts; values in SI units."""
    by_point: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_point.setdefault(row["point"], []).append({key: value for key, value in row.items() if key != "point"})
    document = {
        "campaign": campaign["id"],
        "name": campaign["name"],
        "state": campaign["state"],
        "points": [
            {
                "parameters": dict(point["parameters"]),
                "runs": [
                    {key: member[key] for key in ("run_id", "repetition", "state")} for member in point["members"]
                ],
                "metrics": by_point.get(point["number"], []),
            }
            for point in campaign["points"]
        ],
    }
    return json.dumps(document, indent=2)


def score_table(artefacts: Sequence[Artefact], details: bool = False) -> Group:
    """The scorecard: per artefact and backend a line, with `details` every value and ordering below it; at the end
    the count.
    """
    from analysis.scorecard import count

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
            if details:
                parts += [_value_line(value) for value in score.values]
                parts += [_ordering_line(ordering) for ordering in score.orderings]
    whole = count(artefacts)
    parts.append(
        Text(
            f"{whole['pass']} of {whole['artefacts']} artefacts pass, {whole['run']} were run; "
            f"{whole['values_within']} of {whole['values']} values lie within tolerance, "
            f"{whole['orderings_hold']} of {whole['orderings']} orderings hold",
            style="bold",
        )
    )
    return Group(*parts)


def _value_line(value: ValueScore) -> Text:
    ours = "nothing" if value.measured is None else f"{value.measured:.4g}"
    if value.half_interval is not None:
        ours += f" ± {value.half_interval:.2g}"
    sign = {"le": "at most ", "ge": "at least "}.get(value.relation, "")
    slack = " or ".join(f"{size:g}" if kind == "abs" else f"{size * 100:g} %" for kind, size in value.tolerance.items())
    derived = "" if value.origin == "stated" else f", {value.origin}"
    published = f"{sign}{value.published:g} ± {slack}{derived}"
    return Text(
        f"    {_mark(value.within)} {value.measure} {_labels(value.cell)}: {ours} (published {published})",
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
