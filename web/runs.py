"""Pages of runs: what one was, how true it was, its plots down to single segments, its files."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from typing import Any

import polars as pl
from flask import (
    Blueprint,
    Response,
    abort,
    g,
    jsonify,
    redirect,
    render_template,
    request,
    send_from_directory,
    url_for,
)
from markupsafe import Markup

from analysis.metrics import MissingCapture
from analysis.store import browse
from analysis.thinning import View
from testbed import fidelity
from web import crossing, plotfile, series, tables, topology
from web.campaigns import export, is_detail, order

blueprint = Blueprint("runs", __name__)

#: Points of a plot at most; extremes are kept when there are more.
POINTS = 4000
#: Segments of one answer.
SEGMENTS = 500
#: Columns of segments.parquet that it tells of each, and those by which its SACK blocks are found.
FIELDS = ("dir", "seq", "payload", "ip_len", "ack", "window", "flags", "class", "rtt_ns", "in_order", "file", "frame")
FLAGS = ((2, "SYN"), (1, "FIN"), (4, "RST"), (8, "PSH"), (16, "ACK"), (32, "URG"), (64, "ECE"), (128, "CWR"))
CLASSES = (
    (1, "new"), (2, "retransmission"), (4, "fast retransmission"), (8, "spurious"), (16, "out of order"),
    (32, "gap before"), (64, "duplicate ack"), (128, "window update"), (256, "zero window"), (512, "keep-alive"),
    (1024, "pure ack"), (2048, "SACK"), (4096, "data"), (1 << 13, "after a timeout"), (1 << 14, "probe"),
    (1 << 15, "answers a probe"), (1 << 16, "fills the window"), (1 << 17, "lost in capture"), (1 << 18, "D-SACK"),
    (1 << 19, "ECT"), (1 << 20, "CE"), (1 << 21, "bad checksum"), (1 << 22, "super-packet"),
    (1 << 23, "proves a retransmission spurious"),
)  # fmt: skip


@blueprint.get("/runs")
def find() -> Any:
    """The run whose id begins with `q`, as people copy it from a terminal."""
    wanted = request.args.get("q", "").strip().lower()
    found = browse.run_ids(g.store, wanted, 2) if len(wanted) >= 4 else []
    if len(found) != 1:
        abort(
            404,
            f"There is no run whose id begins with {wanted}." if not found else f"Several runs begin with {wanted}.",
        )
    return redirect(url_for("runs.show", run_id=found[0]))


@blueprint.get("/runs/<run_id>")
def show(run_id: str) -> str:
    """One run."""
    run = load(run_id)
    report = run["manifest"].get("report", {})
    directions = [
        {"link": link, "direction": direction, **counters}
        for link, by_direction in report.get("driver", {}).get("links", {}).items()
        for direction, counters in by_direction.items()
    ]
    queued = [one for one in directions if one["rate_bps"]]
    # A queue is of interest where packets were dropped or purged, or where the line was busy for half of the run.
    busy = [one for one in queued if one["events"] or (one["busy_s"] or 0) > 0.5 * run["duration_s"]]
    quiet = [one for one in queued if one not in busy]
    link = crossing.link_under_study(run["scenario"])
    beside = (
        browse.siblings(g.store, run["campaigns"][0]["id"], run["campaigns"][0]["point"]) if run["campaigns"] else []
    )
    flows = run["scenario"]["workload"]
    chosen = request.args.get("flow", "")
    flow = next((one for one in flows if one["name"] == chosen), flows[0] if flows else None)
    side = "received" if request.args.get("side") == "receiver" else "sequence"
    return render_template(
        "run.html",
        run=run,
        report=report,
        directions=directions,
        busy=busy[:8],
        quiet=[*busy[8:], *quiet],
        link=link,
        flows=flows,
        flow=flow,
        side=side,
        first=_first_plot(run, side, flow["name"]) if flow is not None else "",
        beside=beside,
        wider=fidelity.wider(fidelity.limits_of(run["scenario"])),
        topology=Markup(topology.draw(run["scenario"]).svg(page=True)) if run["scenario"].get("links") else "",
        range=(request.args.get("from", ""), request.args.get("to", "")),
        shown=sorted(run["metrics"], key=lambda row: (is_detail(row["name"]), order(row["name"]), row["subject"]))[
            :400
        ],
    )


@blueprint.get("/runs/<run_id>/network.<kind>")
def network(run_id: str, kind: str) -> Response:
    """Its network as SVG or PDF."""
    run = load(run_id)
    if not run["scenario"].get("links"):
        abort(404, "There is no picture of this network.")
    return export(topology.draw(run["scenario"]), kind, f"{run_id[:8]}-network")


@blueprint.get("/runs/<run_id>/files/<path:path>")
def download(run_id: str, path: str) -> Response:
    """One of its files."""
    run = load(run_id)
    if path not in {one["path"] for one in run["files"]}:
        abort(404, f"This run has no file {path}.")
    folder = g.store.run_folder(run_id).resolve()
    return send_from_directory(folder, path, as_attachment=True, max_age=0)


@blueprint.get("/api/runs/<run_id>")
def as_json(run_id: str) -> Response:
    """Everything that the store has of a run: scenario, manifest, metrics, files, earlier tries, campaigns."""
    return jsonify(load(run_id))


@blueprint.get("/api/runs/<run_id>/segments")
def segments(run_id: str) -> Response:
    """Single segments of a flow with all fields; `side` is sender or receiver; the first (`tail`: last) 500."""
    run = load(run_id)
    folder = g.store.run_folder(run_id)
    low, high = _range(run)
    try:
        inside = tables.flow(
            folder,
            run,
            request.args.get("flow", ""),
            request.args.get("side") == "receiver",
            FIELDS,
            period=(low, high),
        )
    except MissingCapture as error:
        abort(404, f"{str(error)[0].upper()}{str(error)[1:]}.")
    inside = inside.filter((pl.col("t_s") >= low) & (pl.col("t_s") <= high))
    some = inside.tail(SEGMENTS) if request.args.get("tail") else inside.head(SEGMENTS)
    blocks = tables.blocks_of(folder, some)
    told = [_segment(row, blocks.get((row["file"], row["frame"]), [])) for row in some.to_dicts()]
    return jsonify({"total": inside.height, "segments": told})


@blueprint.get("/api/runs/<run_id>/crossing")
def cross(run_id: str) -> Response:
    """Packets on the line under study during a period: when each entered its queue, left it, arrived."""
    run = load(run_id)
    low, high = _range(run)
    return jsonify(crossing.crossing(g.store.run_folder(run_id), run, low, high))


@blueprint.get("/api/runs/<run_id>/<kind>")
def plot(run_id: str, kind: str) -> Response:
    """A plot's series: sequence, received, throughput, rtt, queue or cwnd; `from` and `to` (s) choose a part."""
    run = load(run_id)
    return jsonify(plotted(run, kind, *_range(run)))


@blueprint.get("/runs/<run_id>/plots/<kind>.<form>")
def plot_file(run_id: str, kind: str, form: str) -> Response:
    """A plot as SVG, PDF or CSV, over the period that is asked for."""
    run = load(run_id)
    low, high = _range(run)
    answer = plotted(run, kind, low, high)
    flow = request.args.get("flow", "")
    name = f"{run_id[:8]}-{kind}{f'-{flow}' if flow else ''}".replace("/", "-")
    drawing = plotfile.draw(f"{kind}{f', {flow}' if flow else ''}, run {run_id[:8]}", answer, low, high)
    return export(drawing, form, name, as_table(answer))


def plotted(run: dict[str, Any], kind: str, low: float, high: float) -> dict[str, Any]:
    """Series of a plot of the flow that is asked for, over a period."""
    if kind not in series.KINDS:
        abort(404, f"There is no plot {kind}; there are: {', '.join(series.KINDS)}.")
    view = View(low, high, POINTS)
    return series.KINDS[kind](g.store.run_folder(run["id"]), run, request.args.get("flow", ""), view)


def _first_plot(run: Mapping[str, Any], kind: str, flow: str) -> str:
    """Where the uppermost plot's series are: told in its head, a browser asks for them at once."""
    low, high = 0.0, float(run["duration_s"])
    try:
        asked = _number("from", low), _number("to", high)
    except ValueError:
        asked = low, high
    if asked[0] < asked[1] and asked[0] < high and asked[1] > low:
        low, high = max(asked[0], low), min(asked[1], high)
    period: dict[str, Any] = {"from": f"{low:.6f}", "to": f"{high:.6f}"}
    return url_for("runs.plot", run_id=run["id"], kind=kind, flow=flow, **period)


def as_table(answer: dict[str, Any]) -> str:
    """The series of a plot as CSV."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["series", "time_s", answer["y"] or "value"])
    for one in answer["series"]:
        writer.writerows([one["name"], x, y] for x, y in zip(one["x"], one["y"], strict=True) if y is not None)
    return text.getvalue()


def _segment(row: dict[str, Any], sacks: list[list[int]]) -> dict[str, Any]:
    return {
        "time_s": round(row["t_s"], 9),
        "direction": "data" if row["dir"] == 0 else "ack",
        "seq": row["seq"],
        "end": row["seq"] + row["payload"],
        "payload": row["payload"],
        "ip_bytes": row["ip_len"],
        "ack": None if row["ack"] < 0 else row["ack"],
        "window": row["window"],
        "flags": [name for bit, name in FLAGS if row["flags"] & bit],
        "classes": [name for bit, name in CLASSES if row["class"] & bit],
        "rtt_ms": None if row["rtt_ns"] is None else round(row["rtt_ns"] / 1e6, 3),
        "in_order": row["in_order"],
        "sack": sacks,
    }


def _range(run: dict[str, Any]) -> tuple[float, float]:
    return period_asked(float(run["duration_s"]))


def period_asked(duration_s: float) -> tuple[float, float]:
    """The part of a run that is asked for; all of it by default."""
    try:
        return _number("from", 0.0), _number("to", duration_s)
    except ValueError:
        abort(400, "'from' and 'to' are seconds.")


def _number(name: str, default: float) -> float:
    text = request.args.get(name)
    value = default if not text else float(text)
    if not math.isfinite(value):
        raise ValueError(f"{name} is {value}")
    return value


def load(run_id: str) -> dict[str, Any]:
    """A run of the store, or an answer that there is none."""
    run = g.store.run(run_id)
    if run is None:
        abort(404, f"There is no run {run_id} here.")
    found: dict[str, Any] = run
    return found
