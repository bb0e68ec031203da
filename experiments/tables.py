"""Tables of results for the terminal: campaigns, metrics and comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from analysis.comparison import difference_text
from experiments.labels import comparisons_note, point_label
from testbed import units

if TYPE_CHECKING:
    from analysis.comparison import Comparison
    from analysis.store.rows import CampaignRow


def plain_table(*columns: str, right: Sequence[str] = ()) -> Table:
    """A table without lines, whose columns `right` are aligned there."""
    table = Table(box=None, pad_edge=False, show_edge=False)
    for name in columns:
        table.add_column(name, header_style="dim", overflow="fold", justify="right" if name in right else "left")
    return table


def campaigns_table(campaigns: Sequence[CampaignRow], apart: Mapping[str, str]) -> Table:
    """A row for each campaign of Store.campaigns.

    Args:
        campaigns: newest first.
        apart: id to what tells it from others of its name (analysis/naming.py).
    """
    table = plain_table("id", "name", "valid", "state", "title", right=["valid"])
    for campaign in campaigns:
        counts = f"{campaign.valid}/{campaign.runs}"
        title = f"{campaign.title} ({apart[campaign.id]})" if apart[campaign.id] else campaign.title
        table.add_row(campaign.id, campaign.name, counts, campaign.state, title)
    return table


def comparison_table(compared: Comparison, everything: bool) -> Group:
    """A line for each difference that counts (each at all with `everything`), then what follows from them."""
    shown = [line for line in compared.lines if everything or line.verdict not in ("same", "cannot tell")]
    table = plain_table("point", "metric", compared.a, compared.b, "difference", "")
    styles = {"worse": "bold red", "better": "green", "different": "yellow"}
    for line in shown:
        name = f"{line.metric} of {line.subject}" if line.subject else line.metric
        name += " (exploratory)" if line.exploratory else ""
        table.add_row(
            point_label(line.point) or "all runs", name, units.show(line.mean_a, line.unit),
            units.show(line.mean_b, line.unit), difference_text(line.compared, line.unit),
            Text(line.verdict, style=styles.get(line.verdict, "dim")),
        )  # fmt: skip
    counts = {word: sum(line.verdict == word for line in compared.lines) for word in VERDICTS}
    summary = ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "nothing to compare"
    parts: list[Any] = [table] if shown else []
    levels = {line.family: line.difference.level for line in compared.lines}
    note = f" {comparisons_note(compared.margin, levels)}" if levels else ""
    parts.append(Text(f"{summary}.{note}", style="dim"))
    for name, points in ((compared.a, compared.only_a), (compared.b, compared.only_b)):
        parts += [Text(f"only in {name}: {point_label(point)}") for point in points]
    return Group(*parts)


#: Of analysis.comparison, in the order in which they are counted.
VERDICTS = ("worse", "better", "different", "same", "cannot tell")
