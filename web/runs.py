"""Pages of runs: metrics, fidelity, plots down to single segments, files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import polars as pl
from flask import (
    Blueprint,
    Response,
    abort,
    flash,
    g,
    jsonify,
    redirect,
    render_template,
    request,
    send_from_directory,
    url_for,
)

from analysis.captures import DATA, class_labels, is_a
from analysis.captures.conversations import ORDERS, Conversation, conversations
from analysis.figures.model import Figure
from analysis.figures.registry import FIGURES, RunKind, side_of
from analysis.handle import StoredRun
from analysis.metrics import pace
from analysis.question import is_detail
from analysis.records import PACKED, PLAIN
from analysis.registry import plugin_of
from analysis.runs import Flow, Line, Unmeasured
from analysis.store import notes
from analysis.store.rows import RunRow
from analysis.transports import has_segments
from testbed import commands, fidelity, kernel_links
from testbed.report import DirectionReport, Measurement, Report
from testbed.scenario import DIRECTIONS, Scenario
from web import crossing, fates, packet_filter, run_summary, run_view
from web.cache import derived
from web.campaign_data import order
from web.campaign_exports import network_file
from web.campaigns import network_picture, set_aside
from web.figures import answer

blueprint = Blueprint("runs", __name__)

#: Plots of throughput on a page.
MOST_SIDES = 4
#: Connections of the table of an import.
MOST_CONVERSATIONS = 100
#: Segments of one answer.
SEGMENTS = 500
#: Columns of segments.parquet in an answer, and those that lead to its SACK blocks.
FIELDS = ("dir", "seq", "payload", "ip_len", "ack", "window", "flags", "class", "rtt_ns", "in_order", "file", "frame")


class Segment(TypedDict):
    """A segment of an answer."""

    time_s: float
    #: "data" from the flow's sender, "ack" from its receiver.
    direction: str
    #: First byte, and the one after the last.
    seq: int
    end: int
    payload: int
    ip_bytes: int
    ack: int | None
    window: int
    flags: list[str]
    classes: list[str]
    rtt_ms: float | None
    in_order: int
    #: SACK blocks, each from its first byte to the one after its last.
    sack: list[list[int]]


@dataclass(frozen=True)
class ReportedDirection:
    """A direction of a link in a run's report, with its calibration if there was one."""

    link: str
    direction: str
    counters: DirectionReport
    calibrated: Measurement | None
    #: Figures of its queue, beside its length.
    figures: tuple[str, ...] = ()


def _queue_figures(scenario: Scenario, link: str, direction: str) -> tuple[str, ...]:
    """What a link's queue reports over time, beside its length: some disciplines of the kernel do."""
    spec = next((spec for spec in scenario.links if spec.name == link), None)
    if spec is None or spec.kind != kernel_links.KIND or direction not in DIRECTIONS:
        return ()
    return kernel_links.sampled(spec.options, spec.direction(direction))


@blueprint.get("/runs")
def find() -> Any:
    """The run whose id begins with `q`, as people copy it from a terminal."""
    prefix = request.args.get("q", "").strip().lower()
    run_ids = g.store.run_ids(prefix, 2) if len(prefix) >= 4 else []
    if len(run_ids) != 1:
        abort(
            404, f"Unknown run {prefix}: no id begins with it." if not run_ids else f"Several runs begin with {prefix}."
        )
    return redirect(url_for("runs.show", run_id=run_ids[0]))


@blueprint.get("/runs/<run_id>")
def show(run_id: str) -> str:
    """One run."""
    run = load(run_id)
    scenario, manifest = run.documents.scenario, run.documents.manifest
    report = manifest.report
    calibrated = {(line.link, str(line.direction)): line for line in manifest.calibration}
    lines = [
        ReportedDirection(
            link, direction, counters, calibrated.get((link, direction)), _queue_figures(scenario, link, direction)
        )
        for link, direction, counters in (report.directions() if report else ())
    ]
    counted = StoredRun(g.store, run).is_counted
    counted_links = scenario.capture.counters.at if counted and scenario.capture.counters else ()
    queued = [line for line in lines if line.counters.rate_bps and (not counted_links or line.link in counted_links)]
    # Shown first: queues that dropped or purged packets, and those of lines that were busy for half of the run.
    busy = [
        direction
        for direction in queued
        if direction.counters.events or (direction.counters.busy_s or 0) > 0.5 * run.duration_s
    ]
    quiet = [direction for direction in queued if direction not in busy]
    beside = g.store.siblings(run.campaigns[0].id, run.campaigns[0].point) if run.campaigns else []
    flows = scenario.workload
    # Throughput is drawn for each direction, because one may have a hundredth of the other's.
    sides = list(dict.fromkeys(side_of(flow.to) for flow in flows))
    chosen = request.args.get("flow", "")
    flow = next((flow for flow in flows if flow.name == chosen), flows[0] if flows else None)
    # Counters and datagrams have no segments to draw, in a plot or on a link.
    crosses = not counted and (not flows or any(has_segments(scenario, each) for each in flows))
    link = crossing.link_under_study(scenario) if crosses else None
    segmented = not counted and flow is not None and has_segments(scenario, flow)
    files = {file.path for file in run.files}
    has_telemetry = flow is not None and any(f"telemetry/{flow.name}{end}" in files for end in (PACKED, PLAIN))
    asked = request.args.get("side", "")
    side = "received" if asked == "receiver" else "sequence"
    by = request.args.get("by", "")
    by = by if by in ORDERS else ORDERS[0]
    return render_template(
        "run.html",
        run=run,
        conversations=_conversations(run_id, by) if manifest.import_ else (),
        conversations_by=by,
        most_conversations=MOST_CONVERSATIONS,
        manifest=manifest,
        captures=report.captures if report else (),
        programs=_programs(run, report),
        lines=lines,
        busy=busy[:8],
        quiet=[*busy[8:], *quiet],
        link=link,
        flows=flows,
        flow=flow,
        sides=sides[:MOST_SIDES],
        side=side,
        drawn_sides=("sequence", "received") if asked == "both" else (side,),
        counted=counted,
        segmented=segmented,
        has_telemetry=has_telemetry,
        counted_every_s=scenario.capture.counters.every_s if scenario.capture.counters else 0.0,
        added=_added(counted),
        first=""
        if flow is None
        else _first_plot(run, side, flow.name)
        if segmented
        else _first_plot(run, "throughput", sides[0]),
        beside=beside,
        note=notes.of_run(g.store, run_id),
        wider=fidelity.wider(scenario.fidelity),
        topology=network_picture(scenario),
        range=(request.args.get("from", ""), request.args.get("to", "")),
        summary=run_summary.summarize(scenario, run.metrics, report),
        most_outcomes=run_summary.MOST_OUTCOMES,
        packet_words=packet_filter.words(),
        shown=sorted(run.metrics, key=lambda row: (is_detail(row.name), order(row.name), row.subject))[:400],
    )


def _added(counted: bool) -> list[RunKind]:
    """The figures of other packages that this run can have."""
    added = (kind for kind in FIGURES.values() if plugin_of(kind.module))
    return [kind for kind in added if kind.subject in (Flow, Line) or not counted]


@blueprint.get("/api/runs/<run_id>/conversations")
def conversations_as_json(run_id: str) -> Response:
    """Every connection of its captures, the largest first."""
    try:
        return jsonify(_conversations(run_id, ORDERS[0]))
    except Unmeasured as error:
        abort(404, f"{error}")


@dataclass(frozen=True)
class _Program:
    """A program of a flow, for its row."""

    flow: str
    role: str
    #: How it ended.
    ended: str
    lasted_s: float | None
    #: Files of its outputs that are not empty.
    files: Sequence[str]


def _programs(run: RunRow, report: Report | None) -> list[_Program]:
    """The programs of the flows of kind `command`."""
    written = {file.path for file in run.files if file.bytes}
    rows = []
    for flow, of_flow in report.flows.items() if report else ():
        ran = of_flow.command
        for role, program in () if ran is None else (("client", ran.client), ("server", ran.server)):
            if program is None:
                continue
            began_ns = program.started_monotonic_ns
            lasted_s = None if began_ns is None else (program.ended_monotonic_ns - began_ns) / 1e9
            outputs = (commands.output_file(flow, role, ending) for ending in (commands.OUTPUT, commands.ERRORS))
            kept = [name for name in (f"{commands.FOLDER}/{output}" for output in outputs) if name in written]
            rows.append(_Program(flow, role, commands.ending(program), lasted_s, kept))
    return rows


def _conversations(run_id: str, by: str) -> Sequence[Conversation]:
    run = stored(run_id)
    return derived(
        run.folder,
        ("conversations", by),
        lambda: conversations(run_view.captured(run), by),
        lambda made: 400 * len(made),
    )


@blueprint.get("/runs/<run_id>/network.<kind>")
def network(run_id: str, kind: str) -> Response:
    """Its network as SVG or PDF."""
    return network_file(load(run_id).documents.scenario, kind, f"{run_id[:8]}-network")


@blueprint.get("/runs/<run_id>/files/<path:path>")
def download(run_id: str, path: str) -> Response:
    """One of its files."""
    run = load(run_id)
    if path not in {file.path for file in run.files}:
        abort(404, f"This run has no file {path}.")
    folder = g.store.run_folder(run_id, path).resolve()
    if (folder / path).resolve() != folder / path:
        abort(404, f"{path} is a link to another place, and links are not followed.")
    return send_from_directory(folder, path, as_attachment=True, max_age=0)


@blueprint.get("/api/runs/<run_id>")
def as_json(run_id: str) -> Response:
    """Everything that the store has of a run: scenario, manifest, metrics, files, earlier attempts, campaigns."""
    run = load(run_id)
    document = {name: value for name, value in vars(run).items() if name != "documents"}
    documents = {"scenario": run.documents.scenario_document, "manifest": run.documents.manifest_document}
    return jsonify(document | documents | {"note": notes.of_run(g.store, run_id)})


@blueprint.post("/runs/<run_id>/note")
def write_note(run_id: str) -> Any:
    """Replaces the note and the tags of a run; without both, it has none."""
    load(run_id)
    notes.write(g.store, run_id, request.form.get("text", "").strip(), notes.tags_of(request.form.get("tags", "")))
    flash("Note saved.")
    return redirect(url_for("runs.show", run_id=run_id) + "#note")


@blueprint.post("/runs/<run_id>/<any(archive, delete):removal>")
def act(run_id: str, removal: str) -> Any:
    """Archives or deletes a run of a collection."""
    campaign_id, message = set_aside(removal, run_id=load(run_id).id)
    flash(message)
    return redirect(url_for("campaigns.show", campaign_id=campaign_id))


@blueprint.post("/api/runs/<run_id>/<any(archive, delete):removal>")
def act_by_json(run_id: str, removal: str) -> Any:
    """Archives or deletes a run of a collection; /api/campaigns/CAMPAIGN/restore lists it again."""
    campaign_id, message = set_aside(removal, run_id=load(run_id).id)
    return jsonify({"campaign": campaign_id, "message": message})


@blueprint.get("/api/runs/<run_id>/segments")
def segments(run_id: str) -> Response:
    """Single segments of a flow with all fields, the first (`tail`: last) 500.

    `side` is sender or receiver. `filter` has words that all hold: data, ack, a flag, a class or a byte number.
    """
    run = stored(run_id)
    low, high = _range(run.row)
    try:
        seen = run_view.captured(run)
        flow = seen.flow(request.args.get("flow", ""))
        inside = flow.rows(FIELDS, receiver=request.args.get("side") == "receiver", period=(low, high))
        inside = inside.filter(*packet_filter.parse(request.args.get("filter", "")))
    except Unmeasured as error:
        abort(404, run_view.sentence(error))
    except packet_filter.UnknownFilter as error:
        abort(400, f"{error}")
    inside = inside.filter((pl.col("t_s") >= low) & (pl.col("t_s") <= high))
    some = inside.tail(SEGMENTS) if request.args.get("tail") else inside.head(SEGMENTS)
    blocks = seen.sack_blocks(some)
    segments_ = [_segment(row, blocks.get((row["file"], row["frame"]), [])) for row in some.to_dicts()]
    return jsonify({"total": inside.height, "segments": segments_})


@blueprint.get("/api/runs/<run_id>/fate")
def fate(run_id: str) -> Response:
    """What became of the transmission at `at` of a flow's segment: lost where and why, retransmitted when and why."""
    run = stored(run_id)
    asked = {name: request.args.get(name, type=int) for name in ("seq", "payload")}
    seq, payload, at = asked["seq"], asked["payload"], request.args.get("at", type=float)
    if seq is None or payload is None or at is None or not (0 <= seq < 1 << 62 and 0 < payload < 1 << 31):
        abort(400, "'seq' and 'payload' are whole numbers, 'at' is a time in seconds.")
    try:
        explanation = fates.explain_segment(run_view.captured(run).flow(request.args.get("flow", "")), seq, payload, at)
    except Unmeasured as error:
        abort(404, run_view.sentence(error))
    if explanation is None:
        abort(404, f"The sender's capture has no segment {seq} of {payload} bytes at {at:g} s.")
    return jsonify(explanation)


@blueprint.get("/api/runs/<run_id>/idle")
def idle(run_id: str) -> Response:
    """Pauses between data segments of a flow's sender that are longer than `longer_than_s`, from and to in s."""
    try:
        flow = run_view.captured(stored(run_id)).flow(request.args.get("flow", ""))
        sent = flow.rows((), where=(pl.col("dir") == 0) & is_a(DATA))
    except Unmeasured as error:
        abort(404, run_view.sentence(error))
    pauses = pace.pauses(sent.filter(pl.col("t_s") >= flow.begun_s))
    periods = [(t_s, t_s + gap_s) for t_s, gap_s in pauses.iter_rows()]
    return jsonify({"longer_than_s": pace.IDLE_S, "periods": periods})


@blueprint.get("/api/runs/<run_id>/crossing")
def cross(run_id: str) -> Response:
    """Packets on the link under study during a period: when each entered its queue, left it, and arrived."""
    run = stored(run_id)
    return jsonify(crossing.crossing(run, *_range(run.row)))


@blueprint.get("/api/runs/<run_id>/<kind>")
def plot(run_id: str, kind: str) -> Response:
    """A figure's axes and series: sequence, received, throughput, rtt, queue or cwnd; `from` and `to` (s) cut it."""
    run = stored(run_id)
    low, high = _range(run.row)
    return jsonify(figure(run, kind).within(low, high, run_view.POINTS).as_json())


@blueprint.get("/runs/<run_id>/plots/<kind>.<form>")
def plot_file(run_id: str, kind: str, form: str) -> Response:
    """A figure as SVG, PDF, PNG or CSV, over a period; the CSV has every point in it and no other."""
    run = stored(run_id)
    low, high = _range(run.row)
    complete = figure(run, kind)
    flow = request.args.get("flow", "")
    name = f"{run_id[:8]}-{kind}{f'-{flow}' if flow else ''}".replace("/", "-")
    title = f"{kind}{f', {flow}' if flow else ''}, run {run_id[:8]}"
    drawn = replace(complete.within(low, high), title=title)
    return answer(drawn, form, name, lambda: complete.cut(low, high).as_csv("time_s"))


def figure(run: StoredRun, kind: str, of: str | None = None) -> Figure:
    """A figure of a flow or a line; without `of`, of the one that the address asks for."""
    if kind not in FIGURES:
        abort(404, f"Unknown plot {kind}; allowed: {', '.join(FIGURES)}.")
    of, existing = request.args.get("flow", "") if of is None else of, run_view.names(run, kind)
    if of and of not in existing:
        what = "queue" if FIGURES[kind].per == "line" else "flow"
        abort(404, f"Unknown {what} {of[:80]!r}; this run has: {', '.join(dict.fromkeys(existing[:10]))}.")
    low, high = _range(run.row)
    return run_view.figure(run, kind, of, high - low)


def _first_plot(run: RunRow, kind: str, flow: str) -> str:
    """The address of the uppermost plot's data. The page's head names it, so that the browser asks for it at once."""
    low, high = 0.0, float(run.duration_s)
    try:
        asked = _number("from", low), _number("to", high)
    except ValueError:
        asked = low, high
    if asked[0] < asked[1] and asked[0] < high and asked[1] > low:
        low, high = max(asked[0], low), min(asked[1], high)
    period: dict[str, Any] = {"from": f"{low:.6f}", "to": f"{high:.6f}"}
    return url_for("runs.plot", run_id=run.id, kind=kind, flow=flow, **period)


def _segment(row: Mapping[str, Any], sacks: list[list[int]]) -> Segment:
    return Segment(
        time_s=round(row["t_s"], 9),
        direction="data" if row["dir"] == 0 else "ack",
        seq=row["seq"],
        end=row["seq"] + row["payload"],
        payload=row["payload"],
        ip_bytes=row["ip_len"],
        ack=None if row["ack"] < 0 else row["ack"],
        window=row["window"],
        flags=[name for bit, name in packet_filter.FLAGS if row["flags"] & bit],
        classes=[label for bit, label in class_labels() if row["class"] & bit],
        rtt_ms=None if row["rtt_ns"] is None else round(row["rtt_ns"] / 1e6, 3),
        in_order=row["in_order"],
        sack=sacks,
    )


def _range(run: RunRow) -> tuple[float, float]:
    return period_asked(float(run.duration_s))


def period_asked(duration_s: float) -> tuple[float, float]:
    """The period that the address asks for; by default the whole run."""
    try:
        return _number("from", 0.0), _number("to", duration_s)
    except ValueError:
        abort(400, "'from' and 'to' are seconds, such as 12.5.")


#: Times of a capture are nanoseconds in 64 bits.
MAX_TIME_S = 2**63 / 1e9


def _number(name: str, default: float) -> float:
    text = request.args.get(name)
    value = default if not text else float(text)
    if not abs(value) <= MAX_TIME_S:
        raise ValueError(f"{name} is {value}")
    return value


def load(run_id: str) -> RunRow:
    """A run of the store; 404 if there is none."""
    run: RunRow | None = g.store.run(run_id)
    if run is None:
        abort(404, f"Unknown run {run_id}.")
    return run


def stored(run_id: str) -> StoredRun:
    """The same with its files."""
    return StoredRun(g.store, load(run_id))
