"""Tables of results for the terminal: campaigns, metrics and comparisons."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from analysis.comparison import DIFFERING, VERDICTS, difference_text
from analysis.results import of_subject
from experiments.labels import comparisons_note, point_label
from experiments.plain_table import plain_table
from testbed import units
from testbed.errors import listed
from testbed.units import number_of

if TYPE_CHECKING:
    import polars as pl

    from analysis.comparison import Comparison
    from analysis.store.removal import Removal
    from analysis.store.rows import CampaignRow


def campaigns_table(campaigns: Sequence[CampaignRow], apart: Mapping[str, str]) -> Table:
    """A row for each campaign of Store.campaigns.

    Args:
        campaigns: newest first.
        apart: id to what tells it from others of its name (analysis/naming.py).
    """
    table = plain_table("id", "name", "valid", "state", "title", right=["valid"], whole=["id", "valid", "state"])
    for campaign in campaigns:
        counts = f"{campaign.valid}/{campaign.runs}"
        title = f"{campaign.title} ({apart[campaign.id]})" if apart[campaign.id] else campaign.title
        table.add_row(campaign.id, campaign.name, counts, campaign.state, title)
    return table


def removals_table(campaigns: Sequence[CampaignRow], removals: Mapping[str, Removal]) -> Table:
    """A row for each campaign of which something would be deleted."""
    table = plain_table("id", "name", "runs", "bytes", "runs that stay", right=["runs", "bytes", "runs that stay"])
    for campaign in campaigns:
        goes = removals[campaign.id]
        table.add_row(campaign.id, campaign.name, str(goes.runs), units.show(goes.bytes, "bytes"), str(goes.shared))
    return table


def comparison_table(compared: Comparison, everything: bool) -> Group:
    """A line for each difference that counts (each at all with `everything`), then what follows from them. Of single
    runs, where no difference can count, a line for each value that the campaigns ask about.
    """
    is_single = _is_single(min(line.n_a, line.n_b) for line in compared.lines)
    shown = [
        line
        for line in compared.lines
        if everything or line.verdict in DIFFERING or (is_single and not line.exploratory)
    ]
    table = plain_table("combination", "metric", compared.a, compared.b, "difference", *([] if is_single else [""]))
    for line in shown:
        name = of_subject(line.metric, line.subject) + (" (exploratory)" if line.exploratory else "")
        table.add_row(
            point_label(line.point) or "all runs",
            name,
            units.show(line.mean_a, line.unit),
            units.show(line.mean_b, line.unit),
            difference_text(line.compared, line.unit, with_reason=not is_single),
            *([] if is_single else [Text(line.verdict, style=STYLES.get(line.verdict, "dim"))]),
        )
    counts = {word: sum(line.verdict == word for line in compared.lines) for word in VERDICTS}
    summary = ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "nothing to compare"
    parts: list[Any] = [table] if shown else []
    levels = {line.family: line.difference.level for line in compared.lines}
    note = f"{summary}. {comparisons_note(compared.margin, levels)}" if levels else f"{summary}."
    if is_single:
        rest = len(compared.lines) - len(shown)
        note = SINGLE_RUNS + (f" {number_of(rest, 'more value')}: --all shows all." if rest else "")
    parts.append(Text(note, style="dim"))
    for name, points, metrics in (
        (compared.a, compared.only_a, compared.unmatched_a),
        (compared.b, compared.only_b, compared.unmatched_b),
    ):
        parts += [Text(f"only in {name}: {point_label(point)}") for point in points]
        parts += [Text(f"only in {name}: values of {listed(metrics)}")] if metrics else []
    return Group(*parts)


def contrast_table(contrasts: pl.DataFrame, everything: bool, width: int) -> Group:
    """The rows of StoredCampaign.contrast, a table for each metric and flow, then what they mean.

    Args:
        contrasts: the rows.
        everything: of what the campaign does not ask about, print what shows nothing, too. It is counted otherwise.
        width: of the terminal, in columns.
    """
    from analysis.handle import CONTRASTED

    fields = [name for name in contrasts.columns if name not in CONTRASTED]
    rows = contrasts.to_dicts()
    quantities = dict[tuple[str, str], list[dict[str, Any]]]()
    for row in rows:
        quantities.setdefault((row["metric"], row["subject"]), []).append(row)
    parts: list[Any] = []
    silent = list[dict[str, Any]]()
    for of_one in quantities.values():
        shown = [row for row in of_one if everything or not row["exploratory"] or row["verdict"] in DIFFERING]
        if shown:
            parts += _of_quantity(of_one, shown, fields, width)
        silent += [] if shown else of_one
    if silent:
        names = list(dict.fromkeys(_name_of(row) for row in silent))
        few = ", ".join(names) if len(names) <= FEW else f"{len(names)} others"
        parts.append(Text(f"{few}, exploratory: {_counted(silent)} (--all prints them)"))
    if rows:
        note = comparisons_note(rows[0]["margin"], {row["comparisons"]: row["level"] for row in rows})
        explained = (
            "Differences of means ± half of their intervals, with the relative change; p, corrected ('equal': the same "
            "in every pair); Cohen's d_z; 'needs': about how many runs would show it."
        )
        if any(row["method"] == "welch" and row["n"] > 1 for row in rows):
            explained += " '≥N runs': N or more a side, not in pairs (Welch)."
        note = SINGLE_RUNS if _is_single(row["n"] for row in rows) else f"{explained} {note}"
        parts += [Text(""), Text(note, style="dim")]
    return Group(*parts)


def _of_quantity(
    rows: Sequence[Mapping[str, Any]], shown: Sequence[Mapping[str, Any]], fields: Sequence[str], width: int
) -> Iterator[Any]:
    """A heading and a table. Points head the values that are compared at them, if these are several."""
    first, values, numbers = rows[0], {row["value"] for row in rows}, list(dict.fromkeys(map(_number_of, shown)))
    heading = f"{_name_of(first)}{', exploratory' if first['exploratory'] else ''}: "
    heading += f"{first['value']} against {first['baseline']}" if len(values) == 1 else f"against {first['baseline']}"
    yield Text(f"{heading}, {numbers[0]}" if len(numbers) == 1 else heading, style="bold")
    columns = ["difference", "p", "d_z", *(["over"] if len(numbers) > 1 else []), "verdict", "needs"]
    at_points: dict[str, list[list[str | Text]]] = {}
    for row in shown:
        point = point_label({field: row[field] for field in fields})
        label = f"{' ' if point else ''}{row['value']}" if len(values) > 1 or not point else point
        above = point if len(values) > 1 else ""
        at_points.setdefault(above, []).append([label, *_cells(row, len(numbers) > 1)])
    cells = list(itertools.chain(*at_points.values()))
    widths = [max(len(name), *(len(row[place]) for row in cells)) for place, name in enumerate(["", *columns])]
    if sum(widths) + 2 * len(columns) > width:
        # The relative change goes below the difference. Then sentences are wrapped, and last the values folded.
        for row_cells in cells:
            row_cells[1] = str(row_cells[1]).replace(" (", "\n(")
        widths[1] = max(len(line) for row_cells in cells for line in ["difference", *str(row_cells[1]).split("\n")])
        widths = narrowed(widths, columns, width)

    def table(of_point: Sequence[Sequence[str | Text]], has_head: bool) -> Table:
        made = plain_table("", *columns, right=["p", "d_z", "needs"])
        made.show_header = has_head
        for column, column_width in zip(made.columns, widths, strict=True):
            column.width = column_width
        for row_cells in of_point:
            made.add_row(*row_cells)
        return made

    if len(values) == 1 or list(at_points) == [""]:
        yield table(cells, has_head=True)
    else:
        # The name of a point is wider than the column of the values below it.
        yield table([], has_head=True)
        for point, of_point in at_points.items():
            yield Text(point, style="dim")
            yield table(of_point, has_head=False)
    if len(shown) < len(rows):
        yield Text(f" others: {_counted([row for row in rows if row not in shown])} (--all prints them)", style="dim")


def narrowed(widths: Sequence[int], columns: Sequence[str], width: int) -> list[int]:
    """Widths of the first column, which has the compared values, and of the others for a terminal of `width` columns:
    the words of "over" are wrapped first, and values are folded last.
    """
    result = list(widths)
    shrinkable = [(1 + place, LEAST_SENTENCE) for place, name in enumerate(columns) if name == "over"]
    for place, least in (*shrinkable, (0, LEAST_VALUE)):
        others = sum(result) - result[place] + 2 * len(columns)
        result[place] = min(result[place], max(least, width - others))
    return result


def _cells(row: Mapping[str, Any], with_number: bool) -> Iterator[str | Text]:
    difference, _, why = row["shown"].partition("; ")
    yield difference
    yield "" if row["p_adjusted"] is None else "equal" if row["low"] is None else f"{row['p_adjusted']:.2g}"
    yield "" if row["d_z"] is None else f"{row['d_z']:.2f}"
    if with_number:
        # As short as the pairs, and explained below the table: a sentence would take the room of the values.
        yield f"≥{number_of(row['n'], 'run')}" if row["method"] == "welch" else _number_of(row)
    yield Text(row["verdict"], style=STYLES.get(row["verdict"], "dim"))
    # "3 runs cannot tell, about 12 would"
    yield "".join(re.findall(r"\d+(?= would| are needed)", why))


def _is_single(runs: Iterable[int]) -> bool:
    """Whether these numbers of runs, of the smaller side of each comparison, are all one."""
    return set(runs) == {1}


def _name_of(row: Mapping[str, Any]) -> str:
    return of_subject(row["metric"], row["subject"])


def _counted(rows: Sequence[Mapping[str, Any]]) -> str:
    """ "1 same, 29 cannot tell"."""
    verdicts = Counter(row["verdict"] for row in rows)
    return ", ".join(f"{verdicts[word]} {word}" for word in VERDICTS if verdicts[word])


def _number_of(row: Mapping[str, Any]) -> str:
    if row["method"] == "welch":
        return f"at least {number_of(row['n'], 'run')} a side{' (Welch)' if row['n'] > 1 else ''}"
    alone = f", {number_of(row['unpaired'], 'run')} alone" if row["method"] == "paired" and row["unpaired"] else ""
    return f"{number_of(row['n'], 'pair')}{alone}"


#: Note below comparisons of which none has several runs on both sides.
SINGLE_RUNS = (
    "One run a side has no spread, so no difference is called better, worse or the same. Run the campaign again with "
    "--set repetitions=3 or more; 'variation' makes repetitions differ where nothing is random (docs/campaigns.md)."
)
#: Width of the compared values in a terminal that is too narrow for them.
LEAST_VALUE = 8
#: The same of the words about the numbers of runs.
LEAST_SENTENCE = 12
#: Metrics of flows that are named and not counted.
FEW = 4
STYLES = {"worse": "bold red", "better": "green", "different": "yellow"}
