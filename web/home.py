"""Home: running campaigns, what needs attention, the scorecard in one strip, the latest results."""

from __future__ import annotations

from flask import Blueprint, Response, g, jsonify, render_template

from analysis.store import requests
from experiments.api import campaign_text
from web import scorecard
from web.cache import cached

blueprint = Blueprint("home", __name__)

#: The campaign of the first-time page.
FIRST = "quickstart.yaml"
#: Causes of invalid and failed runs that the page lists.
MOST_CAUSES = 8


@blueprint.get("/")
def index() -> str:
    """Home."""
    store = g.store
    total = cached(("count",), lambda: store.count_campaigns())
    return render_template(
        "home.html",
        running=store.campaigns(state="running"),
        asked=[
            request_ for request_ in requests.recent(store, 8) if request_.state in (requests.WAITING, requests.FAILED)
        ],
        runners=requests.runners(store),
        campaigns=store.campaigns(limit=6),
        total=total,
        first_campaign="" if total else campaign_text(FIRST),
        newest=cached(("newest",), lambda: store.newest()),
        causes=cached(("causes",), lambda: store.causes()[:MOST_CAUSES]),
        unfinished=cached(("unfinished",), lambda: store.campaigns(state="incomplete", limit=5)),
        counts=cached(("counts",), lambda: store.counts()),
        card=scorecard.read(),
    )


@blueprint.get("/api/attention")
def attention_as_json() -> Response:
    """Invalid runs, failed runs and unfinished campaigns; the latest 100 of each."""
    store, most = g.store, 100
    runs = {"invalid": store.invalid(most), "failed": store.failed(most)}
    return jsonify(runs | {"unfinished": store.campaigns(state="incomplete", limit=most)})
