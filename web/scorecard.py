"""The scorecard: every published value and ordering beside what was simulated and emulated.

`./backchannel score --json` makes the document; it lies as `scorecard.json` in the results folder (docs/site.md).
This page shows what stands there and judges nothing itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from flask import Blueprint, Response, abort, g, render_template, request

blueprint = Blueprint("scorecard", __name__)

FILE = "scorecard.json"
BACKENDS = ("sim", "emulated", "theory")
PAPERS = {
    "asym": "The effects of asymmetry on TCP performance",
    "ton": "A comparison of mechanisms for improving TCP performance over wireless links",
    "aq": "AQ",
    "pulsed": "Pulsed ACK",
    "acq": "ACQ",
}


@dataclass(frozen=True)
class Card:
    """What the file says, or why it says nothing."""

    trouble: str
    #: When the file was written.
    made: float | None
    artefacts: list[dict[str, Any]]
    #: artefacts, run, pass, values, values_within, orderings, orderings_hold.
    count: dict[str, int]

    @property
    def papers(self) -> list[str]:
        """In the order of the document."""
        return list(dict.fromkeys(one["paper"] for one in self.artefacts))

    def of_paper(self, paper: str) -> dict[str, int]:
        """Artefacts of a paper by verdict."""
        found = {"pass": 0, "fail": 0, "not run": 0}
        for one in self.artefacts:
            if one["paper"] == paper:
                found[verdict(one)] += 1
        return found


def verdict(artefact: dict[str, Any], backend: str = "") -> str:
    """pass, fail or not run; of one backend, or of all on which it was run."""
    if backend:
        score = artefact["scores"].get(backend)
        return "not run" if score is None else "pass" if score["passes"] else "fail"
    return "not run" if not artefact["scores"] else "pass" if artefact["passes"] else "fail"


def read(folder: Path) -> Card | None:
    """The scorecard of a results folder; None when none was made."""
    path = folder / FILE
    try:
        status = path.stat()
    except OSError:
        return None
    return _read(path, status.st_mtime_ns, status.st_size, status.st_mtime)


@lru_cache(maxsize=4)
def _read(path: Path, _changed_ns: int, _bytes: int, made: float) -> Card:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        artefacts = list(document["artefacts"])
        for one in artefacts:
            one["id"], one["paper"], one["title"], one["passes"]
            for score in one["scores"].values():
                score["campaign"], score["passes"], score["values"], score["orderings"]
        return Card("", made, artefacts, dict(document["count"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        missing = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        return Card(f"{FILE} cannot be shown: {missing}. ./backchannel score --json makes it anew.", None, [], {})


def published_for(folder: Path, campaign_id: str) -> list[dict[str, Any]]:
    """Published values that a campaign is held against: measure, cell (labels), value in the SI unit."""
    card = read(folder)
    return [
        {
            "measure": value["measure"],
            "cell": {str(axis): str(label) for axis, label in value["cell"].items()},
            "value": value["published"] / (100 if value.get("unit") == "%" else 1),
        }
        for one in (card.artefacts if card else [])
        for score in one["scores"].values()
        if score["campaign"] == campaign_id
        for value in score["values"]
    ]


@blueprint.get("/scorecard")
def show() -> str:
    """All artefacts; `paper` and `show` (pass, fail, not run) narrow them."""
    card = read(g.store.folder)
    paper, only = request.args.get("paper", ""), request.args.get("show", "")
    shown = [
        one
        for one in (card.artefacts if card else [])
        if (not paper or one["paper"] == paper) and (not only or verdict(one) == only)
    ]
    return render_template(
        "scorecard.html",
        card=card,
        shown=shown,
        paper=paper,
        only=only,
        backends=BACKENDS,
        verdict=verdict,
        papers=PAPERS,
    )


@blueprint.get("/api/scorecard")
def as_json() -> Response:
    """The scorecard, as `./backchannel score --json` makes it."""
    if read(g.store.folder) is None:
        abort(404, f"There is no scorecard yet: ./backchannel score --json > {g.store.folder / FILE} makes it.")
    return Response((g.store.folder / FILE).read_bytes(), mimetype="application/json")
