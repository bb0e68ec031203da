"""Tables of the papers' results for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

from analysis.comparison import difference_text
from analysis.results import of_subject
from experiments.labels import level_text, point_label
from experiments.papers import wording
from experiments.papers.choice_sensitivity import Outcome
from experiments.papers.doubt import Conclusion, Doubt, Outcome as DoubtOutcome
from experiments.papers.scorecard import Artefact, OrderingScore, ValueScore, between_backends, count
from experiments.papers.sensitivity import Sensitivity
from experiments.plain_table import plain_table
from testbed import units

_STYLES = {"pass": "green", "fail": "red", "incomplete": "yellow"}


def sensitivity_table(assessment: Sensitivity) -> Group:
    """A row for each flow and point with its means, the orderings that a perturbation reverses, and the counts."""
    table = plain_table("flow", "combination", "original", "perturbed", "inside", right=["inside"])
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
        f"{assessment.metric} under {units.number_of(assessment.perturbations, 'perturbation')}: every rate, delay and "
        f"buffer changes by up to {100 * assessment.by:g} %",
        _kept("clear orderings (the interval of the difference excludes 0)", *assessment.count(clear=True)),
        _kept("clear signs of differences to the first combination", *assessment.count(clear=True, with_first=True)),
        _kept("other orderings", *assessment.count(clear=False)),
    ]
    if counted:
        inside = f"{sum(counted)} of {len(counted) * assessment.perturbations}"
        counts.append(
            f"perturbed means inside the original interval: {inside}; as many other repetitions lie inside in 83 to "
            "88 % of cases"
        )
    return Group(*parts, *(Text(line) for line in counts))


def _kept(what: str, kept: int, total: int) -> str:
    return f"{what}: {kept} of {total} survive every perturbation" if total else f"{what}: none"


#: Colours of what a change does to a conclusion.
_OUTCOMES: dict[DoubtOutcome, str] = {"survives": "green", "flips": "bold red", "cannot tell": "dim"}


def doubt_table(doubt: Doubt, results: str) -> Group:
    """A row for each conclusion, a column for each change, then the campaigns that have the runs, and the counts.

    Args:
        doubt: what to show.
        results: ` --results PLACE` for commands; empty where it is the default.
    """
    quantity, kept = doubt.question.quantity, [column for column in doubt.columns if column.cells]
    table = plain_table("conclusion", "original", *(column.name for column in kept))
    for at, conclusion in enumerate(doubt.conclusions):
        cells = [column.cells[at] for column in kept]
        table.add_row(
            conclusion_text(conclusion),
            difference_text(conclusion.compared, quantity.unit),
            *(
                Text.assemble(
                    (cell.outcome, _OUTCOMES[cell.outcome]),
                    f"\n{difference_text(cell.compared, quantity.unit).partition(';')[0]}"
                    if cell.compared
                    else "\nno values",
                )
                for cell in cells
            ),
        )
    asked = of_subject(quantity.metric, quantity.subject)
    what = f"{asked}: difference of means, with intervals that hold together at {level_text(doubt.question.level)}"
    lines = [what, f"{units.number_of(doubt.undecided, 'contrast')} cannot be told by the original runs"]
    if not doubt.conclusions:
        lines.append(
            "The original runs decide nothing, so there is nothing to doubt, and no change was run. More repetitions "
            "may decide."
        )
    for column in (doubt.original, *doubt.columns):
        if column.left_out:
            lines.append(f"{column.name}: left out: {column.left_out}")
            continue
        counts = f": {', '.join(f'{column.count(word)} {word}' for word in _OUTCOMES)}" if column.cells else ""
        valid = f"{column.valid} of {units.number_of(column.runs, 'run')} valid"
        lines.append(f"{column.name} ({column.what}){counts}; {valid}, campaign {column.campaign}")
    lines.append(f"./backchannel compare CAMPAIGN{results} shows each campaign's contrasts, 'runs' its runs")
    return Group(*([table] if doubt.conclusions else []), *(Text(line) for line in lines))


def conclusion_text(conclusion: Conclusion) -> str:
    """ "best: policy=acks-first above policy=droptail (load=alone)"."""
    both = {key: value for key, value in conclusion.first.items() if conclusion.second.get(key) == value}
    first, second = (
        point_label({key: value for key, value in point.items() if key not in both})
        for point in (conclusion.first, conclusion.second)
    )
    where = f" ({point_label(both)})" if both else ""
    return f"{'best: ' if conclusion.is_answer else ''}{second} {conclusion.relation} {first}{where}"


def outcome_line(outcome: Outcome) -> Text:
    """The verdict of an artefact with one choice changed, and the values that miss."""
    line = Text(f"{outcome.artefact}  {outcome.variant.label}: ")
    if outcome.score is None:
        return line.append(f"not valid: {outcome.problem}", style="yellow")
    score = outcome.score
    line.append(score.verdict, style=_STYLES[score.verdict])
    if outcome.flips:
        line.append(", flips", style="bold")
    missed = [f"{value.measure}: {wording.difference(value)}" for value in score.stated if not value.within]
    return line.append(f"  {', '.join(wording.counts(score))}" + (f" ({'; '.join(missed[:4])})" if missed else ""))


def score_table(artefacts: Sequence[Artefact], details: bool = False) -> Group:
    """The scorecard: per artefact and backend a line, with `details` every value and ordering below it; at the end
    the count.
    """
    width = max([len(artefact.id) for artefact in artefacts] + [0])
    parts = []
    for artefact in artefacts:
        if not artefact.scores:
            more = f", with defaults: {_with_defaults(artefact)}" if artefact.defaults else ""
            parts.append(Text(f"{artefact.id.ljust(width)}  not run{more}", style="dim"))
        for backend, score in artefact.scores.items():
            line = Text(f"{artefact.id.ljust(width)}  {backend:8}  ")
            line.append(score.verdict, style=_STYLES[score.verdict])
            if not score.conclusive:
                line.append(" (inconclusive)", style="yellow")
            counted = list(wording.counts(score))
            if artefact.has_choices and backend == "sim":
                counted.append(f"with defaults: {_with_defaults(artefact)}")
            line.append(f"  {', '.join(counted)}" if counted else "")
            parts.append(line)
        if details:
            backends, all_scores = artefact.scores.keys(), artefact.scores.values()
            for values in zip(*(score.values for score in all_scores), strict=True):
                parts.append(_value_line(dict(zip(backends, values, strict=True))))
            for orderings in zip(*(score.orderings for score in all_scores), strict=True):
                parts.append(_ordering_line(dict(zip(backends, orderings, strict=True))))
    total = count(artefacts)
    parts.append(Text(" ".join([*wording.totals(total), wording.totals_with_defaults(total)]), style="bold"))
    if total["inconclusive"] and details:
        parts.append(Text("? marks what is inconclusive: an interval crosses a limit, or an order is not significant."))
    if both := between_backends(artefacts):
        parts.append(
            Text(
                f"{both.values} values were measured with real packets and in virtual time: half of them differ by "
                f"{both.median:.1%} or less, {both.within_5_percent} by 5 % or less; the confidence intervals of "
                f"{len(both.disagreements)} do not meet"
            )
        )
        parts += [
            Text(
                f"    {of.artefact} {wording.place(of.measure, of.cell)}: emulated {of.emulated:.4g}, sim {of.sim:.4g}"
            )
            for of in both.disagreements
            if details
        ]
    return Group(*parts)


def _with_defaults(artefact: Artefact) -> str:
    """The verdict with defaults and what it rests on."""
    score = artefact.defaults.get("sim")
    counted = "" if score is None else f" ({', '.join(wording.counts(score))})"
    return f"{artefact.verdict_with_defaults}{counted}"


def _value_line(values: Mapping[str, ValueScore]) -> Text:
    """A value with what each backend gave: all scores of an artefact have the same targets."""
    first = next(iter(values.values()))
    derived = "" if first.origin == "stated" else f", {first.origin}"
    head = f"{wording.place(first.measure, first.cell)}, tolerance {wording.tolerance(first)}{derived}"
    if len(values) == 1:
        text = f"    {_mark(first.within, first.conclusive)} {head}: {wording.difference(first)}"
        return Text(text, style="" if first.within else "yellow" if derived else "red")
    of_backends = ", ".join(
        f"{backend} {_mark(value.within, value.conclusive)} {wording.measured(value)}"
        for backend, value in values.items()
    )
    return Text(f"    {head}: {wording.published(first)} published, {of_backends}")


def _ordering_line(orderings: Mapping[str, OrderingScore]) -> Text:
    """An ordering with what each backend gave."""
    first = next(iter(orderings.values()))
    more = f", each {first.min_ratio:g} times the next" if first.min_ratio else ""
    of_backends = "; ".join(
        f"{backend} {_mark(order.holds, order.conclusive)} {wording.means(order)}"
        + (f" ({wording.tie(order)})" if order.tie else "")
        for backend, order in orderings.items()
    )
    text = f"    {wording.place(first.measure, first.where)}, in order{more}: {of_backends}"
    return Text(text, style="red" if len(orderings) == 1 and not first.holds else "")


def _mark(good: bool, conclusive: bool) -> str:
    """Whether it agrees, with a question mark where that is inconclusive."""
    return ("+" if good else "-") + ("" if conclusive else "?")
