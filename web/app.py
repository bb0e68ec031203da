"""The application factory: `create_app(results)` gives a Flask application that reads one results folder."""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from flask import Flask, Response, g, render_template, request
from flask.globals import request_ctx
from werkzeug.exceptions import HTTPException
from werkzeug.routing import IntegerConverter

from analysis.captures import class_labels
from analysis.errors import REPEAT, AnalysisError
from analysis.estimates import ESTIMATES_NOTE, MOST_ENUMERATED, bootstrap_interval
from analysis.figures.page import SCRIPTS, STATIC
from analysis.handle import OpenResults
from analysis.metrics import title_of
from analysis.store import StoreError, shown
from analysis.thinning import View, thin
from experiments.api import (
    TestbedError,
    backend_of,
    cell_text,
    level_text,
    mechanisms,
    point_label,
)
from testbed import units
from web import (
    api,
    cache,
    campaign_data,
    campaign_exports,
    campaigns,
    compare,
    docs,
    explore,
    figures,
    home,
    import_queue,
    imports,
    late,
    launch,
    live,
    monitoring,
    runs,
    scorecard,
    search,
    security,
    sessions,
)
from web.run_view import sentence

#: Of a form or a script's JSON; uploads have a limit of their own (web.security).
MOST_FORM_BYTES = 2 << 20


def create_app(results: Path | str, token: str = "", names: Sequence[str] = (), allow_commands: bool = False) -> Flask:
    """A site for the results in a folder.

    Args:
        results: the folder; its store is made if there is none.
        token: what visitors must give; empty: nothing.
        names: host names under which it is reached, beside those of this machine.
        allow_commands: accept campaigns whose flows are programs (kind `command`).

    Raises:
        StoreError: the folder holds no store that can be used.
    """
    app = Flask(__name__)
    app.url_map.converters["int"] = _Number
    app.config["RESULTS"] = results
    app.config["ALLOW_COMMANDS"] = allow_commands
    app.config["SEND_FILE_MAX_AGE_DEFAULT"] = 3600
    app.config["MAX_FORM_MEMORY_SIZE"] = app.config["MAX_CONTENT_LENGTH"] = MOST_FORM_BYTES
    store = OpenResults.open(results, create=True).store
    store.show = late.show
    app.extensions["store"] = store
    app.extensions["watcher"] = live.Watcher(store)
    app.extensions["imports"] = import_queue.ImportQueue(store, str(results))
    app.extensions["store_cache"] = cache.StoreCache(store)
    app.extensions["permanent_cache"] = cache.PermanentCache()
    app.extensions["damage"] = monitoring.Damage()
    security.guard(app, store.folder, token, list(names))
    for part in (
        figures,
        home,
        campaigns,
        campaign_exports,
        explore,
        runs,
        compare,
        scorecard,
        search,
        launch,
        imports,
        docs,
        live,
        sessions,
        monitoring,
        api,
    ):
        app.register_blueprint(part.blueprint)
    app.jinja_env.trim_blocks = True
    app.jinja_env.lstrip_blocks = True
    app.jinja_env.filters.update(
        quantity=units.show,
        delay=units.show_delay,
        log10=math.log10,
        metric_title=title_of,
        pace=live.pace,
        cell=cell_text,
        embedded=figures.embedded,
        level=level_text,
        label=lambda pairs: point_label(dict(pairs)),
        moment=_moment,
        ago=_ago,
    )
    app.jinja_env.globals.update(
        apart=campaign_data.apart,
        backend_of=backend_of,
        estimates_note=ESTIMATES_NOTE,
        version=_version(),
        figure_script_names=SCRIPTS,
        runner_command=runner_command(str(results)),
        same_with_options=launch.same_with_options,
        working=lambda campaign: live.working(store, campaign),
    )

    @app.before_request
    def _store() -> None:
        g.store = store

    @app.errorhandler(HTTPException)
    def _error(error: HTTPException) -> Any:
        message = error.description or error.name
        if request.path.startswith("/api/"):
            return {"error": message}, error.code or 500
        if request_ctx.url_adapter is None:
            # The host name cannot be one, so a page has no addresses.
            return Response(f"{message}\n", error.code or 500, mimetype="text/plain")
        return render_template("error.html", code=error.code, name=error.name, message=message), error.code or 500

    @app.errorhandler(pl.exceptions.PolarsError)
    @app.errorhandler(json.JSONDecodeError)
    def _damaged(error: Exception) -> Any:
        return _unavailable(AnalysisError(f"a file of the results cannot be read: {error}; {REPEAT}"))

    @app.errorhandler(TestbedError)
    @app.errorhandler(StoreError)
    @app.errorhandler(AnalysisError)
    def _unavailable(error: Exception) -> Any:
        # Known troubles of this installation, such as a node binary that was never built, in their own words.
        message = sentence(error)
        if request.path.startswith("/api/"):
            return {"error": message}, 503
        return render_template("error.html", code=503, name="Not available", message=message), 503

    app.wsgi_app = late.Late(app.wsgi_app)  # type: ignore[method-assign]
    return app


def runner_command(results: str) -> str:
    """The command that executes what is launched here, with this site's results; a password is left out."""
    place = shlex.quote(shown(results))
    return "./backchannel serve runner" if results == "results" else f"./backchannel serve runner --results {place}"


class _Number(IntegerConverter):
    """A number of an address, of a size that every database takes."""

    regex = r"\d{1,9}"


def warm(app: Flask) -> None:
    """Reads what the first visitor would wait for: templates, the registry, the scorecard, statistics, tables."""
    with app.test_request_context():
        g.store = app.extensions["store"]
        for name in app.jinja_env.list_templates():
            app.jinja_env.get_template(name)
        # A failure is reported by the page that needs the value.
        with contextlib.suppress(TestbedError, StoreError):
            mechanisms()
            class_labels()
            scorecard.read()
    # Loading scipy and drawing resamples takes longer than a campaign's page.
    bootstrap_interval([0.0, 1.0] * MOST_ENUMERATED)
    # Its first query costs polars several times the second, whatever it asks for.
    few = pl.DataFrame({"x": [0.0, 1.0, 2.0], "y": [0.0, 1.0, 0.0]})
    table = io.BytesIO()
    few.write_parquet(table)
    table.seek(0)
    thin(pl.scan_parquet(table).filter(pl.col("x").is_in([0.0, 1.0, 2.0])).collect(), View(0.0, 2.0, 2))


def _moment(seconds: float | None) -> str:
    """A time as people write it, in UTC."""
    if seconds is None:
        return "–"
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _ago(seconds: float | None) -> str:
    """How long ago a time was."""
    if seconds is None:
        return "–"
    past = max(datetime.datetime.now(datetime.UTC).timestamp() - seconds, 0.0)
    for size, word in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if past >= size:
            return f"{units.number_of(int(past // size), word)} ago"
    return "just now"


def _version() -> str:
    """Changes whenever a static file does, so that browsers may keep them."""
    folders = (Path(__file__).parent / "static", STATIC)
    newest = max(path.stat().st_mtime_ns for folder in folders for path in folder.rglob("*") if path.is_file())
    return format(newest // 1_000_000, "x")
