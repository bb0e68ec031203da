"""The scorecard as a page of docs/: a table for each paper, from what a results folder holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from experiments.papers import wording
from experiments.papers.choices import Choice
from experiments.papers.scorecard import Artefact, Score, ValueScore, count

#: An artefact with more values shows those outside the tolerance and a count.
MOST = 8
#: In the order of their columns, whichever ran last.
BACKENDS = ("sim", "emulated", "virtual-kernel")
PAPERS = {
    "asym": "Balakrishnan, Padmanabhan, Katz: The effects of asymmetry on TCP performance",
    "ton": "Balakrishnan, Padmanabhan, Seshan, Katz: Improving TCP performance over wireless links",
    "aq": "Podlesny, Williamson: Improving TCP performance in residential broadband networks",
    "pulsed": "Tanaka, Shigeno: Improvements in TCP robustness for asymmetric bandwidth",
    "acq": "Louati, Barakat, Dabbous: Handling two-way TCP traffic in asymmetric networks",
}

HEAD = """# Scores of the papers' artefacts

Written by `./backchannel papers score --markdown` from the runs in one results folder. [Reproduction](reproduction.md)
explains the scores and why some artefacts fail. `±` is the 95 % confidence interval of the mean. Values out of
tolerance are bold; of an artefact with more than {most} stated values only those are listed, and
`experiments/PAPER/targets.yaml` has all. *Chosen* are the fields that a paper does not state; the
[list of choices](studies/choices.md) has their values and reasons.

{counts}
"""


def page(artefacts: Sequence[Artefact], choices: Iterable[Choice]) -> str:
    """Markdown: the counts, then a table for each paper.

    Args:
        artefacts: of `analysis.scorecard.scorecard`.
        choices: of all papers.
    """
    counts = " ".join(wording.totals(count(artefacts)))
    chosen: dict[str, list[str]] = {}
    for choice in choices:
        for artefact in choice.artefacts:
            chosen.setdefault(artefact, []).extend(choice.fields)
    parts = [HEAD.format(most=MOST, counts=counts)]
    for paper, title in PAPERS.items():
        rows = [artefact for artefact in artefacts if artefact.paper == paper]
        measured = {backend for row in rows for backend in _by_backend(row)}
        backends = [backend for backend in BACKENDS if backend in measured]
        header = ["artefact", "published", *backends, "verdict", "chosen"]
        parts.append(f"\n## {title}\n\n{_row(header)}{_row(['---'] * len(header))}")
        parts += [_artefact(row, backends, chosen.get(row.id, [])) for row in rows]
    return "".join(parts)


def _by_backend(artefact: Artefact) -> Mapping[str, Score]:
    # Arithmetic stands where simulation does: both are computed.
    scores = {"sim" if backend == "theory" else backend: score for backend, score in artefact.scores.items()}
    return {backend: scores[backend] for backend in BACKENDS if backend in scores}


def _artefact(artefact: Artefact, backends: Sequence[str], chosen: Sequence[str]) -> str:
    scores = _by_backend(artefact)
    shown = _shown(scores.values())
    published = "<br>".join(_published(value) for value in shown)
    cells = [_backend(scores.get(backend), shown) for backend in backends]
    verdicts = "<br>".join(
        f"{backend}: {_verdict(score)}" if len(scores) > 1 else _verdict(score) for backend, score in scores.items()
    )
    fields = ", ".join(f"`{field}`" for field in dict.fromkeys(chosen))
    source = "arithmetic" if "theory" in artefact.scores else fields
    return _row([f"`{artefact.id}`<br>{artefact.title}", published, *cells, verdicts or "not run", source])


def _verdict(score: Score) -> str:
    verdict = score.verdict if score.passes else f"**{score.verdict}**"
    return verdict + ("" if score.conclusive else " (inconclusive)")


def _shown(scores: Iterable[Score]) -> list[ValueScore]:
    """The stated values to list, with any backend's measurement."""
    by_place: dict[tuple[object, ...], ValueScore] = {}
    missed: set[tuple[object, ...]] = set()
    for score in scores:
        for value in score.stated:
            by_place.setdefault(_place(value), value)
            if not value.within:
                missed.add(_place(value))
    if len(by_place) <= MOST:
        return list(by_place.values())
    return [value for place, value in by_place.items() if place in missed]


def _place(value: ValueScore) -> tuple[object, ...]:
    return (
        value.measure,
        *sorted((axis, str(label)) for axis, label in value.cell.items()),
        value.relation,
        value.published,
    )


def _backend(score: Score | None, shown: Sequence[ValueScore]) -> str:
    if score is None:
        return "–"
    by_place = {_place(value): value for value in score.stated}
    lines = [_measured(by_place[_place(value)]) for value in shown if _place(value) in by_place]
    # A few values are listed themselves.
    counted = [text for text in wording.counts(score) if len(score.stated) > MOST or not text.endswith(" values")]
    return "<br>".join([*lines, *counted])


def _published(value: ValueScore) -> str:
    labels = " ".join(str(label) for label in value.cell.values())
    return _escaped(f"{labels} {value.measure}: {wording.published(value)}".strip())


def _measured(value: ValueScore) -> str:
    return wording.measured(value) if value.within else f"**{wording.measured(value)}**"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("_", "\\_")


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"
