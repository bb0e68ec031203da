"""Tables of results for the terminal: campaigns, metrics and comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from analysis.results import is_output
from experiments.labels import cell_text, comparisons_note, point_label
from testbed import units

if TYPE_CHECKING:
    from analysis.attempts import PointAttempts
    from analysis.comparison import Comparison, Line
    from analysis.metrics import Metric
    from analysis.store.rows import CampaignRow, PointRow, TableRow


def plain_table(*columns: str, right: Sequence[str] = ()) -> Table:
    """A table without lines, whose columns `right` are aligned there."""
    table = Table(box=None, pad_edge=False, show_edge=False)
    for name in columns:
        table.add_column(name, header_style="dim", overflow="fold", justify="right" if name in right else "left")
    return table


def campaigns_table(campaigns: Sequence[CampaignRow]) -> Table:
    """A row for each campaign of Store.campaigns."""
    table = plain_table("id", "name", "valid", "state", "title", right=["valid"])
    for campaign in campaigns:
        counts = f"{campaign.valid}/{campaign.runs}"
        table.add_row(campaign.id, campaign.name, counts, campaign.state, campaign.title)
    return table


def results_table(
    points: Sequence[PointRow], rows: Sequence[TableRow], metrics: Mapping[str, Metric],
    attempts: Mapping[int, PointAttempts],
) -> Group:  # fmt: skip
    """A row for each flow of each point: every metric's estimate over the valid runs. Metrics of the whole run and of
    lines are in the first row of their point, under their subject. A note below lists points that may be a selection.

    Args:
        points: of Store.campaign.
        rows: of Store.table.
        metrics: by name.
        attempts: of analysis.attempts, by point.
    """
    cells = {(row.point, row.name, row.subject): row for row in rows}
    columns = [name for name, metric in metrics.items() if metric.column]
    known = dict.fromkeys((row.name, row.subject) for row in rows if row.name in columns or is_output(row.name))
    of_flow = [key for key in known if is_output(key[0]) or metrics[key[0]].per == "flow"]
    flows = list(dict.fromkeys(flow for _, flow in of_flow))
    outputs = [name for name in dict(of_flow) if is_output(name)]
    flow_metrics = [*outputs, *(name for name in columns if name in dict(of_flow))]
    others = [key for name in columns for key in known if key[0] == name and key not in of_flow]

    def title(name: str, subject: str = "") -> str:
        short = name if is_output(name) else metrics[name].column
        return f"{short}, {subject}" if subject else short

    heads = [*map(title, flow_metrics), *(title(*key) for key in others)]
    table = plain_table("point", "runs", "flow", *heads, right=["runs", *heads])
    notes = []
    for point in points:
        number = point.number
        valid = sum(member.state == "valid" for member in point.members)
        label, runs = point_label(dict(point.parameters)) or "all runs", str(valid)
        took = attempts.get(number)
        if took is not None and took.thrown:
            runs += f" of {took.total} tried{' !' if took.reasons else ''}"
            notes += [Text(f"! {label}: {'; '.join(took.reasons)}", style="yellow")] if took.reasons else []
        of_point = [cell_text(cells.get((number, *key)), valid) for key in others]
        for flow in flows or [""]:
            shown = [cell_text(cells.get((number, name, flow)), valid) for name in flow_metrics]
            table.add_row(Text(label, style="bold"), runs, flow, *shown, *of_point)
            label, runs, of_point = "", "", [""] * len(others)
    return Group(table, *notes)


def comparison_table(compared: Comparison, everything: bool) -> Group:
    """A line for each difference that counts (each at all with `everything`), then what follows from them."""
    shown = [line for line in compared.lines if everything or line.verdict not in ("same", "cannot tell")]
    table = plain_table("point", "metric", compared.a, compared.b, "difference", "")
    styles = {"worse": "bold red", "better": "green", "different": "yellow"}
    for line in shown:
        name = f"{line.metric} of {line.subject}" if line.subject else line.metric
        table.add_row(
            point_label(line.point) or "all runs", name, units.show(line.mean_a, line.unit),
            units.show(line.mean_b, line.unit), _difference(line),
            Text(line.verdict, style=styles.get(line.verdict, "dim")),
        )  # fmt: skip
    counts = {word: sum(line.verdict == word for line in compared.lines) for word in VERDICTS}
    summary = ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "nothing to compare"
    parts: list[Any] = [table] if shown else []
    level = compared.lines[0].difference.level if compared.lines else compared.confidence
    parts.append(Text(
        f"{summary}. {comparisons_note(len(compared.lines), compared.confidence, level, compared.margin)}", style="dim",
    ))  # fmt: skip
    for name, points in ((compared.a, compared.only_a), (compared.b, compared.only_b)):
        parts += [Text(f"only in {name}: {point_label(point)}") for point in points]
    return Group(*parts)


#: Of analysis.comparison, in the order in which they are counted.
VERDICTS = ("worse", "better", "different", "same", "cannot tell")


def _difference(line: Line) -> str:
    """ "-1.2 Mbit/s [-1.5, -0.9] (-12 %)"."""
    difference = line.difference
    bounds = (difference.interval.low, difference.interval.high) if difference.interval else ()
    scale, unit = units.scale_of(max(map(abs, (difference.value, *bounds))), line.unit)
    interval = f" [{bounds[0] / scale:+.3g}, {bounds[1] / scale:+.3g}]" if bounds else ""
    share = "" if line.relative is None else f" ({line.relative:+.1%})"
    return f"{difference.value / scale:+.3g}{' ' + unit if unit else ''}{interval}{share}"
