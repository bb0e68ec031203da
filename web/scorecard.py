"""The scorecard: every published value and ordering beside what was simulated and emulated.

`./backchannel papers score` uses the same function on the store. A campaign's score is cached until more of its runs
land. The page shows the studies of disagreements (docs/studies) beside the values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flask import Blueprint, Response, abort, g, jsonify, render_template, request

from analysis.handle import OpenResults
from experiments.papers import wording
from experiments.papers.page import PAPERS
from experiments.papers.scorecard import VERDICTS, Artefact, Score, Verdict, count, document, scorecard
from testbed.units import plain
from web import studies, wall
from web.cache import cached, permanent
from web.figures import picture_file

blueprint = Blueprint("scorecard", __name__)


@dataclass(frozen=True)
class Card:
    """The scorecard of a store."""

    artefacts: list[Artefact]
    #: artefacts, run, pass, values, values_within, orderings, orderings_hold, orderings_tied, defaults_pass,
    #: defaults_not_run.
    count: dict[str, int]

    @property
    def measured(self) -> bool:
        """Whether any campaign was compared with a paper; arithmetic needs none."""
        return any(score.campaign for artefact in self.artefacts for score in artefact.scores.values())

    @property
    def headline(self) -> str:
        """What was run, and what of it passes."""
        return wording.headline(self.artefacts)

    @property
    def papers(self) -> list[str]:
        """In the order of the document."""
        return list(dict.fromkeys(artefact.paper for artefact in self.artefacts))

    def of_paper(self, paper: str) -> dict[Verdict, int]:
        """Artefacts of a paper by verdict."""
        counts = dict.fromkeys(VERDICTS, 0)
        for artefact in self.artefacts:
            if artefact.paper == paper:
                counts[artefact.verdict] += 1
        return counts


def read() -> Card:
    """The scorecard of the store."""

    def make() -> Card:
        artefacts = scorecard(OpenResults(g.store, g.store.where), _kept_score)
        return Card(artefacts, count(artefacts))

    return cached(("scorecard",), make)


def studies_of(artefact: Artefact) -> list[studies.Section]:
    """Sections of its paper's study that explain an artefact."""
    return [section for section in studies.sections(artefact.paper) if artefact.id in section.artefacts]


def _kept_score(key: tuple[Any, ...], make: Callable[[], Score]) -> Score:
    return permanent([("score", *key)], lambda missing: {missing[0]: make()})["score", *key]


@blueprint.get("/scorecard")
def show() -> str:
    """All artefacts, those that were run first; `paper` and `show` (one of VERDICTS) narrow them."""
    card = read()
    paper, only = request.args.get("paper", ""), request.args.get("show", "")
    shown = [
        artefact
        for artefact in card.artefacts
        if (not paper or artefact.paper == paper) and (not only or artefact.verdict == only)
    ]
    # Cards without a figure are low; between the others they would leave holes in the wall.
    shown.sort(key=lambda artefact: artefact.verdict == "not run")
    return render_template(
        "scorecard.html",
        card=card,
        shown=shown,
        paper=paper,
        only=only,
        backends=wall.BACKENDS,
        verdicts=VERDICTS,
        draw=wall.draw,
        wording=wording,
        plain=plain,
        papers=PAPERS,
        studies_of=studies_of,
    )


@blueprint.get("/scorecard/<artefact_id>.<kind>")
def small_figure(artefact_id: str, kind: str) -> Response:
    """The small figure of an artefact as SVG or PDF."""
    artefact = next((artefact for artefact in read().artefacts if artefact.id == artefact_id), None)
    if artefact is None:
        abort(404, f"Unknown artefact {artefact_id}.")
    picture = wall.draw(artefact)
    if picture is None:
        abort(404, f"{artefact_id} was not run here.")
    return picture_file(picture, kind, artefact_id)


@blueprint.get("/api/scorecard")
def as_json() -> Response:
    """The scorecard, as `./backchannel papers score --json` prints it."""
    return jsonify(document(read().artefacts))
