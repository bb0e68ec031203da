"""The first page: what runs, what is new, the scorecard in one strip, what needs attention."""

from __future__ import annotations

from flask import Blueprint, g, render_template

from analysis.store import browse, requests
from web import scorecard

blueprint = Blueprint("home", __name__)


@blueprint.get("/")
def index() -> str:
    """Home."""
    store = g.store
    return render_template(
        "home.html",
        running=browse.active(store),
        asked=[one for one in requests.recent(store, 8) if one["state"] in (requests.WAITING, requests.FAILED)],
        runners=requests.runners(store),
        campaigns=browse.campaigns(store, limit=6),
        total=browse.count_campaigns(store),
        newest=browse.newest(store),
        invalid=browse.invalid(store, 5),
        failed=browse.failed(store, 5),
        unfinished=browse.unfinished(store, 5),
        counts=browse.counts(store),
        card=scorecard.read(),
    )
