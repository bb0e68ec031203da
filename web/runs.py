"""Pages of runs: what one was, how true it was, its plots and files."""

from __future__ import annotations

import math
from typing import Any

from flask import Blueprint, Response, abort, g, jsonify, render_template, request, send_from_directory

from web import series

blueprint = Blueprint("runs", __name__)

#: Points of a plot at most; extremes are kept when there are more.
POINTS = 4000


@blueprint.get("/runs/<run_id>")
def show(run_id: str) -> str:
    """One run."""
    run = _load(run_id)
    report = run["manifest"].get("report", {})
    directions = [
        {"link": link, "direction": direction, **counters}
        for link, by_direction in report.get("driver", {}).get("links", {}).items()
        for direction, counters in by_direction.items()
    ]
    queued = [one for one in directions if one["rate_bps"]]
    # A queue is of interest where packets were dropped or purged, or where the line was busy for half of the run.
    busy = [one for one in queued if one["events"] or one["busy_s"] > 0.5 * run["duration_s"]]
    quiet = [one for one in queued if one not in busy]
    return render_template("run.html", run=run, report=report, directions=directions, busy=busy, quiet=quiet)


@blueprint.get("/runs/<run_id>/files/<path:path>")
def download(run_id: str, path: str) -> Response:
    """One of its files."""
    run = _load(run_id)
    if path not in {one["path"] for one in run["files"]}:
        abort(404, f"This run has no file {path}.")
    folder = g.store.run_folder(run_id).resolve()
    return send_from_directory(folder, path, as_attachment=True, max_age=0)


@blueprint.get("/api/runs/<run_id>/<kind>")
def plot(run_id: str, kind: str) -> Response:
    """A plot's series: sequence, throughput, queue or cwnd; `from` and `to` (s) choose a part in more detail."""
    run = _load(run_id)
    if kind not in series.KINDS:
        abort(404, f"There is no plot {kind}.")
    folder = g.store.run_folder(run_id)
    try:
        low, high = (_number(name, default) for name, default in (("from", 0.0), ("to", float(run["duration_s"]))))
    except ValueError:
        abort(400, "'from' and 'to' are seconds.")
    view = series.View(low, high, POINTS)
    return jsonify(series.KINDS[kind](folder, run, request.args.get("flow", ""), view))


def _number(name: str, default: float) -> float:
    text = request.args.get(name)
    value = default if text is None else float(text)
    if not math.isfinite(value):
        raise ValueError(f"{name} is {value}")
    return value


def _load(run_id: str) -> dict[str, Any]:
    run = g.store.run(run_id)
    if run is None:
        abort(404, f"There is no run {run_id} here.")
    found: dict[str, Any] = run
    return found
