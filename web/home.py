"""Home: running campaigns, what needs attention, the scorecard in one strip, the latest results."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, g, jsonify, render_template

from analysis.store import Store, browse, requests
from web import scorecard

blueprint = Blueprint("home", __name__)


@blueprint.get("/")
def index() -> str:
    """Home."""
    store = g.store
    return render_template(
        "home.html",
        running=browse.active(store),
        asked=[one for one in requests.recent(store, 8) if one.state in (requests.WAITING, requests.FAILED)],
        runners=requests.runners(store),
        campaigns=browse.campaigns(store, limit=6),
        total=browse.count_campaigns(store),
        newest=browse.newest(store),
        **_attention(store, 5),
        counts=browse.counts(store),
        card=scorecard.read(),
    )


@blueprint.get("/api/attention")
def attention_as_json() -> Response:
    """Invalid runs, failed runs and unfinished campaigns; the latest 100 of each."""
    return jsonify(_attention(g.store, 100))


def _attention(store: Store, most: int) -> dict[str, Any]:
    return {
        "invalid": browse.invalid(store, most),
        "failed": browse.failed(store, most),
        "unfinished": browse.unfinished(store, most),
    }
