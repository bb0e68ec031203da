"""The application factory: `create_app(results)` gives a Flask application that reads one results folder."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from flask import Flask, Response, g, render_template, request
from werkzeug.exceptions import HTTPException

from analysis.metrics import METRICS
from analysis.store import Store
from experiments import units
from experiments.show import mean_sd, point_label
from web import campaigns, runs

#: Everything comes from this server; nothing is inline.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


def create_app(results: Path | str) -> Flask:
    """A site for the results in a folder.

    Raises:
        StoreError: the folder holds no store that can be used.
    """
    app = Flask(__name__)
    app.config["RESULTS"] = results
    app.config["SEND_FILE_MAX_AGE_DEFAULT"] = 3600
    store = Store.open(results)
    app.extensions["store"] = store
    app.register_blueprint(campaigns.blueprint)
    app.register_blueprint(runs.blueprint)
    app.jinja_env.trim_blocks = True
    app.jinja_env.lstrip_blocks = True
    app.jinja_env.filters.update(
        quantity=units.show, mean_sd=mean_sd, label=lambda pairs: point_label(dict(pairs)), moment=_moment
    )
    app.jinja_env.globals["metrics"] = METRICS

    @app.before_request
    def _store() -> None:
        g.store = store

    @app.after_request
    def _headers(response: Response) -> Response:
        response.headers.setdefault("Content-Security-Policy", POLICY)
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        return response

    @app.errorhandler(HTTPException)
    def _error(error: HTTPException) -> Any:
        message = error.description or error.name
        if request.path.startswith("/api/"):
            return {"error": message}, error.code or 500
        return render_template("error.html", code=error.code, name=error.name, message=message), error.code or 500

    return app


def _moment(seconds: float | None) -> str:
    """A time as people write it, in UTC."""
    if seconds is None:
        return "–"
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
