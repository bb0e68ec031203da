"""One search over campaigns, runs, notes and docs, which every page asks as one types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flask import Blueprint, g, render_template, request, url_for

from analysis.store import notes
from analysis.store.rows import PlaceRow
from experiments.api import point_label
from web import docs
from web.cache import cached
from web.campaign_data import apart

blueprint = Blueprint("search", __name__)

#: Hits of each kind.
MOST = 8
#: Characters of a note that a hit has.
MOST_CHARACTERS = 100


@dataclass(frozen=True)
class Hit:
    """Something that has all words."""

    title: str
    about: str
    address: str


@blueprint.get("/search")
def show() -> str:
    """What has all words of `q`, by kind."""
    q = request.args.get("q", "")
    words = tuple(q.lower().split())
    hits = cached(("search", words), lambda: dict(_found(words))) if words else {}
    return render_template("search.html", q=q, hits=hits, most=MOST)


def _found(words: Sequence[str]) -> Iterator[tuple[str, list[Hit]]]:
    yield (
        "Campaigns",
        [
            Hit(
                row.title,
                ", ".join(filter(None, (row.name, apart(row.id)))),
                url_for("campaigns.show", campaign_id=row.id),
            )
            for row in g.store.campaigns(words, limit=MOST)
        ],
    )
    yield "Runs", [_run(row.id, row.state, row.place) for row in g.store.runs_with(words, MOST)]
    yield (
        "Notes",
        [
            Hit(
                " ".join((*row.tags, row.text))[:MOST_CHARACTERS],
                f"note on run {row.run_id[:8]}",
                url_for("runs.show", run_id=row.run_id) + "#note",
            )
            for row in notes.with_words(g.store, words, MOST)
        ],
    )
    yield "Docs", [Hit(*entry) for entry in docs.with_words(words)[:MOST]]


def _run(run_id: str, state: str, place: PlaceRow | None) -> Hit:
    parts = (
        []
        if place is None
        else [place.title, point_label(dict(place.parameters)), f"repetition {place.repetition + 1}"]
    )
    return Hit(f"Run {run_id[:8]}", ", ".join(filter(None, (*parts, state))), url_for("runs.show", run_id=run_id))
