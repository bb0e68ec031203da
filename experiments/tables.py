"""Tables of results for the terminal: campaigns, metrics, comparisons and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from analysis.comparison import difference_text
from analysis.estimates import interval_text
from experiments.labels import comparisons_note, duration_text, point_label
from testbed import units

if TYPE_CHECKING:
    from analysis.comparison import Comparison
    from analysis.scorecard import Artefact, OrderingScore, Score, ValueScore
    from analysis.store.rows import CampaignRow
    from experiments.choice_sensitivity import Outcome
    from experiments.reproduce import Expected
    from experiments.sensitivity import Sensitivity


def _table(*columns: str, right: Sequence[str] = ()) -> Table:
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
    table = _table("id", "name", "valid", "state", "title", right=["valid"])
    for campaign in campaigns:
        counts = f"{campaign.valid}/{campaign.runs}"
        title = f"{campaign.title} ({apart[campaign.id]})" if apart[campaign.id] else campaign.title
        table.add_row(campaign.id, campaign.name, counts, campaign.state, title)
    return table


def expected_table(rows: Sequence[Expected]) -> Group:
    """A row for each artefact that would be reproduced, then the ones that cannot run and why."""
    table = _table("artefact", "points", "repetitions", "to run", "runs", "time", "cells",
                   right=["points", "repetitions", "to run", "runs", "time", "cells"])  # fmt: skip
    for row in rows:
        if not row.refused:
            table.add_row(
                row.artefact, str(row.points), str(row.repetitions), str(row.to_run), str(row.runs),
                duration_text(row.time_s), str(row.cells),
            )  # fmt: skip
    return Group(table, *(Text(f"{row.artefact}: not run: {row.refused}") for row in rows if row.refused))


def comparison_table(compared: Comparison, everything: bool) -> Group:
    """A line for each difference that counts (each at all with `everything`), then what follows from them."""
    shown = [line for line in compared.lines if everything or line.verdict not in ("same", "cannot tell")]
    table = _table("point", "metric", compared.a, compared.b, "difference", "")
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


def sensitivity_table(assessment: Sensitivity) -> Group:
    """A row for each flow and point with its means, the orderings that a perturbation reverses, and the counts."""
    table = _table("flow", "point", "original", "perturbed", "inside", right=["inside"])
    flow = None
    for row in assessment.means:
        shown = row.original.text(assessment.unit)
        low, high = (units.show(value, assessment.unit) for value in (min(row.perturbed), max(row.perturbed)))
        inside = "no interval" if row.inside is None else f"{row.inside} of {len(row.perturbed)}"
        name = row.subject if row.subject != flow else ""
        table.add_row(name, point_label(row.point) or "all runs", shown, f"{low} to {high}", inside)
        flow = row.subject
    parts: list[Any] = [table]
    for ordering in assessment.orderings:
        if ordering.kept < assessment.perturbations:
            greater, less = (point_label(point) for point in (ordering.greater, ordering.less))
            kept = f"{ordering.kept} of {assessment.perturbations} perturbations keep it"
            text = f"{ordering.subject}: {greater} above {less}: {kept}"
            parts.append(Text(text, style="yellow" if ordering.is_clear else "dim"))
    counted = [row.inside for row in assessment.means if row.inside is not None]
    counts = [
        f"{assessment.metric} under {assessment.perturbations} perturbations: every rate, delay and buffer changes by "
        f"up to {assessment.by:.3%}",
        _kept("clear orderings (the interval of the difference excludes 0)", *assessment.count(clear=True)),
        _kept("clear signs of differences to the first point", *assessment.count(clear=True, with_first=True)),
        _kept("other orderings", *assessment.count(clear=False)),
        f"perturbed means inside the original interval: {sum(counted)} of {len(counted) * assessment.perturbations}; "
        "as many other repetitions lie inside in 83 to 88 % of cases",
    ]
    return Group(*parts, *(Text(line) for line in counts))


def _kept(what: str, kept: int, total: int) -> str:
    return f"{what}: {kept} of {total} survive every perturbation" if total else f"{what}: none"


def outcome_line(outcome: Outcome) -> Text:
    """The verdict of an artefact with one choice changed, and the values that miss."""
    line = Text(f"{outcome.artefact}  {outcome.variant.label}: ")
    if outcome.score is None:
        return line.append(f"not valid: {outcome.problem}", style="yellow")
    score = outcome.score
    line.append("pass" if score.passes else "fail", style="green" if score.passes else "red")
    if outcome.flips:
        line.append(", flips", style="bold")
    missed = [
        f"{value.measure} {'nothing' if value.measured is None else format(value.measured, '.3g')} "
        f"for {value.published:g}"
        for value in score.stated
        if not value.within
    ]
    return line.append(f"  {_counts(score)}" + (f" ({'; '.join(missed[:4])})" if missed else ""))


def score_table(artefacts: Sequence[Artefact], details: bool = False) -> Group:
    """The scorecard: per artefact and backend a line, with `details` every value and ordering below it; at the end
    the count.
    """
    from analysis.scorecard import between_backends, count

    width = max([len(artefact.id) for artefact in artefacts] + [0])
    parts = []
    for artefact in artefacts:
        if not artefact.scores:
            more = f", with defaults: {_with_defaults(artefact)}" if artefact.defaults else ""
            parts.append(Text(f"{artefact.id.ljust(width)}  not run{more}", style="dim"))
        for backend, score in sorted(artefact.scores.items()):
            line = Text(f"{artefact.id.ljust(width)}  {backend:8}  ")
            line.append("pass" if score.passes else "fail", style="green" if score.passes else "red")
            line.append(f"  {_counts(score)}")
            if not score.conclusive:
                line.append(", inconclusive", style="yellow")
            if not score.is_complete:
                line.append(f", {score.valid} of {score.asked} runs", style="yellow")
            if artefact.has_choices and backend == "sim":
                line.append(f", with defaults: {_with_defaults(artefact)}")
            parts.append(line)
            if details and len(artefact.scores) == 1:
                parts += [_value_line(value) for value in score.values]
                parts += [_ordering_line(ordering) for ordering in score.orderings]
        if details and len(artefact.scores) > 1:
            parts += _side_by_side(dict(sorted(artefact.scores.items())))
    totals = count(artefacts)
    parts.append(
        Text(
            f"{totals['pass']} of {totals['artefacts']} artefacts pass, {totals['run']} were run; with the defaults of "
            f"what we chose {totals['defaults_pass']} pass, {totals['defaults_not_run']} were not run in full; "
            f"{totals['values_within']} of {totals['values']} values lie within tolerance, "
            f"{totals['orderings_hold']} of {totals['orderings']} orderings hold, "
            f"{totals['orderings_tied']} of them as ties",
            style="bold",
        )
    )
    if totals["inconclusive"]:
        parts.append(
            Text(
                f"{totals['inconclusive']} {'verdict is' if totals['inconclusive'] == 1 else 'verdicts are'} "
                "inconclusive, because an interval crosses a limit or an order is not significant (marked ? with "
                "--details). More repetitions may decide them"
            )
        )
    if both := between_backends(artefacts):
        parts.append(
            Text(
                f"{both.values} values were measured with real packets and in virtual time: half of them differ by "
                f"{both.median:.1%} or less, {both.within_5_percent} by 5 % or less; the confidence intervals of "
                f"{len(both.apart)} do not meet"
            )
        )
        parts += [
            Text(
                f"    {apart.artefact} {apart.measure} {_labels(apart.cell)}: emulated {apart.emulated:.4g}, "
                f"sim {apart.sim:.4g}"
            )
            for apart in both.apart
            if details
        ]
    return Group(*parts)


def _with_defaults(artefact: Artefact) -> str:
    """The verdict with defaults and what it rests on."""
    score = artefact.defaults.get("sim")
    if score is None:
        return artefact.verdict_with_defaults
    return f"{artefact.verdict_with_defaults} ({_counts(score)})"


def _counts(score: Score) -> str:
    """What agrees; orderings that hold as ties are counted apart."""
    counted = f"{score.within:2} of {len(score.stated):2} values, {score.hold:2} of {len(score.orderings):2} orderings"
    return f"{counted} ({score.tied} as ties)" if score.tied else counted


def _side_by_side(scores: Mapping[str, Score]) -> list[Text]:
    """Every value and ordering once, with what each backend gave: all scores of an artefact have the same targets."""
    texts = []
    for per_backend in zip(*(score.values for score in scores.values()), strict=True):
        values = ", ".join(
            f"{backend} {_mark(score.within, score.conclusive)} {_measured(score)}"
            for backend, score in zip(scores, per_backend, strict=True)
        )
        first = per_backend[0]
        texts.append(Text(f"    {first.measure} {_labels(first.cell)}: {values} (published {_published(first)})"))
    for orders in zip(*(score.orderings for score in scores.values()), strict=True):
        values = "; ".join(
            f"{backend} {_mark(order.holds, order.conclusive)} "
            + ", ".join("nothing" if mean is None else f"{mean:.4g}" for mean in order.measured)
            for backend, order in zip(scores, orders, strict=True)
        )
        order = ", ".join(str(label) for label in orders[0].order)
        texts.append(Text(f"    {orders[0].measure} {_labels(orders[0].where)}: in order: {order}: {values}"))
    return texts


def _measured(value: ValueScore) -> str:
    if value.measured is None:
        return "nothing"
    if value.interval is None or not value.interval.half:
        return f"{value.measured:.4g}"
    return interval_text(value.measured, value.interval)


def _published(value: ValueScore) -> str:
    sign = {"le": "at most ", "ge": "at least "}.get(value.relation, "")
    slack = " or ".join(f"{size:g}" if kind == "abs" else f"{size * 100:g} %" for kind, size in value.tolerance.items())
    derived = "" if value.origin == "stated" else f", {value.origin}"
    return f"{sign}{value.published:g} ± {slack}{derived}"


def _value_line(value: ValueScore) -> Text:
    return Text(
        f"    {_mark(value.within, value.conclusive)} {value.measure} {_labels(value.cell)}: {_measured(value)} "
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
        f"    {_mark(ordering.holds, ordering.conclusive)} {ordering.measure} {_labels(ordering.where)}: in order: "
        f"{shown}{more}{tie}",
        style="" if ordering.holds else "red",
    )


def _mark(good: bool, conclusive: bool) -> str:
    """Whether it agrees, with a question mark where that is inconclusive."""
    return ("+" if good else "-") + (" " if conclusive else "?")


def _labels(labels: Mapping[str, object]) -> str:
    return ", ".join(f"{axis}={label}" for axis, label in labels.items()) or "overall"
