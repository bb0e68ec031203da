"""Figures of a run for its page and its API, from the columns of its tables that they need (web/tables.py)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from analysis import exchanges, slices
from analysis.captures import DATA, MissingCapture, is_a
from analysis.counters import CountedRun
from analysis.figures import run as figures
from analysis.figures.model import Figure
from analysis.metrics import pace
from analysis.routes import direction_name
from analysis.store.rows import RunRow
from testbed.units import show
from web import tables

#: Points of a series at most; extremes are kept where there are more, and retransmissions and losses all stay.
POINTS = 4000
#: Shortest slice in which throughput is counted, in s.
LEAST_SLICE_S = 0.01


def sequence(folder: Path, run: RunRow, flow: str) -> Figure:
    """Sequence numbers over time at the sender: data, acks, window, retransmissions and losses."""
    return _sequence(folder, run, flow, receiver=False)


def received(folder: Path, run: RunRow, flow: str) -> Figure:
    """The same at the receiver."""
    return _sequence(folder, run, flow, receiver=True)


def _sequence(folder: Path, run: RunRow, flow: str, receiver: bool) -> Figure:
    def make() -> Figure:
        if _packets(folder, run, flow) is not None:
            return figures.nothing("Packets of UDP and ICMP have no sequence numbers of TCP.")
        segments = tables.flow(folder, run, flow, receiver, figures.SEQUENCE_COLUMNS)
        arrived = None if receiver else _arrived(folder, run, flow)
        return figures.sequence("", segments, tables.sacks(folder, run, flow, receiver), arrived)

    return _derived((str(folder), "sequence", flow, receiver), make)


def _arrived(folder: Path, run: RunRow, flow: str) -> pl.DataFrame | None:
    is_data = (pl.col("dir") == 0) & (pl.col("payload") > 0)
    try:
        return tables.unordered(folder, run, flow, True, ("seq", "payload"), is_data)
    except MissingCapture:
        return None


def rtt(folder: Path, run: RunRow, flow: str) -> Figure:
    """Round-trip samples of the sender, by Karn's rule: none of retransmitted data. Of a probe, each packet's."""

    def make() -> Figure:
        packets = _packets(folder, run, flow)
        if packets is not None:
            took = packets.select(t_s="returned_s", rtt_s=pl.col("returned_s") - pl.col("sent_s")).drop_nulls()
            if took.is_empty():
                return figures.nothing("No packet of this flow is returned to its sender.")
            return figures.round_trips("", {flow: took.sort("t_s")})
        of_ack = (pl.col("dir") == 1) & pl.col("rtt_ns").is_not_null()
        samples = tables.flow(folder, run, flow, False, ("rtt_ns",), of_ack)
        return figures.round_trips("", {flow: samples.with_columns((pl.col("rtt_ns") / 1e9).alias("rtt_s"))})

    return _derived((str(folder), "rtt", flow), make)


def throughput(folder: Path, run: RunRow, of: str, span_s: float = math.inf) -> Figure:
    """Bytes that arrived in order at the receivers, by slices of about a hundredth of a span, or by the counters' bins.

    Args:
        folder: of the run.
        run: as the store gives it.
        of: a flow, or a side of the network that receives ("client" for client1, client2, ...); empty: all flows.
        span_s: of the period that is shown.
    """
    duration_s = float(run.duration_s)
    # Halved as often as the period fits twice into the run, so that few widths are made.
    halvings = max(math.floor(math.log2(duration_s / max(span_s, 1e-6))), 0)
    width_s = max(duration_s / 100 / 2**halvings, LEAST_SLICE_S)
    workload = run.documents.scenario.workload
    named = {spec.name for spec in workload if spec.name == of}
    wanted = named or {spec.name for spec in workload if of in ("", side_of(spec.to))}

    def make() -> Figure:
        counted = _counted(folder, run)
        if counted is not None:
            of_flow = {
                flow.name: _amounts(counted, flow.bins["delivered_bytes"], "bps", 8 / counted.every_s)
                for flow in counted.flows
                if flow.name in wanted
            }
            return _in_bins(figures.throughput("", of_flow, "kbit/s"), counted.every_s)
        captured = [flow.name for flow in tables.flows(folder, run) if flow.name in wanted]
        slices = {name: _slices(folder, run, name, width_s) for name in captured}
        return _in_bins(figures.throughput("", slices, "kbit/s"), width_s)

    return _derived((str(folder), "throughput", of, width_s), make)


def idle(folder: Path, run: RunRow, flow: str) -> list[tuple[float, float]]:
    """Pauses between data segments of a flow's sender, from and to in s, as the metric `idle_share` counts them.

    Raises:
        MissingCapture: the sender was not captured, or there is no such flow.
    """
    start_s = next((spec.start_s for spec in run.documents.scenario.workload if spec.name == flow), 0.0)
    sent = tables.flow(folder, run, flow, False, (), (pl.col("dir") == 0) & is_a(DATA))
    pauses = pace.pauses(sent.filter(pl.col("t_s") >= start_s))
    return [(t_s, t_s + gap_s) for t_s, gap_s in pauses.iter_rows()]


def names(run: RunRow, kind: str) -> list[str]:
    """What a figure of this kind can show: flows, sides that receive, or queues."""
    scenario = run.documents.scenario
    if kind in OF_QUEUE:
        return [
            f"{link.name}/{direction_name(port)}" for link in scenario.links for port in range(max(len(link.ends), 2))
        ]
    flows = [spec.name for spec in scenario.workload]
    return flows + [side_of(spec.to) for spec in scenario.workload] if kind == "throughput" else flows


def _in_bins(figure: Figure, width_s: float) -> Figure:
    return replace(figure, notes=(f"bins of {show(width_s, 'time')}",))


def side_of(host: str) -> str:
    """A host without its number: client1 and client2 are one side of a network. An address is a side of its own."""
    return host if "." in host or ":" in host else host.rstrip("0123456789")


def _packets(folder: Path, run: RunRow, flow: str) -> pl.DataFrame | None:
    """The packets of a flow of UDP or ICMP (analysis/exchanges.py); None for flows of TCP."""
    spec = next((spec for spec in run.documents.scenario.workload if spec.name == flow), None)
    return exchanges.read(folder, spec) if spec is not None and spec.kind in exchanges.datagrams() else None


def _slices(folder: Path, run: RunRow, flow: str, width_s: float) -> pl.DataFrame:
    number = int(float(run.duration_s) / width_s) + 1
    packets = _packets(folder, run, flow)
    if packets is not None:
        ip = next(spec.ip for spec in run.documents.scenario.workload if spec.name == flow)
        counted = slices.totals(exchanges.arrivals(packets, ip), 0.0, width_s, number)
        return _rates(counted, width_s)
    data = tables.flow(folder, run, flow, True, ("in_order",), pl.col("dir") == 0)
    # Each connection counts from its own start.
    reached = data.group_by((pl.col("t_s") / width_s).floor().cast(pl.Int64).alias("slice"), "stream").agg(
        pl.col("in_order").max()
    )
    grown = (
        reached.sort("stream", "slice")
        .with_columns(pl.col("in_order").cum_max().over("stream").alias("top"))
        .with_columns((pl.col("top") - pl.col("top").shift(1, fill_value=0)).over("stream").alias("bytes"))
        .group_by("slice")
        .agg(pl.col("bytes").sum())
    )
    listed = pl.DataFrame({"slice": slices.listed_slices(grown["slice"], number)})
    return _rates(listed.join(grown, on="slice", how="left", maintain_order="left"), width_s)


def _rates(counted: pl.DataFrame, width_s: float) -> pl.DataFrame:
    """Bit/s at the end of each slice; `bytes` is null without any."""
    return counted.select(
        ((pl.col("slice") + 1) * width_s).alias("t_s"), (pl.col("bytes").fill_null(0) * 8 / width_s).alias("bps")
    )


def _counted(folder: Path, run: RunRow) -> CountedRun | None:
    """The counters of a run without captures; None for other runs."""
    if not is_counted(run):
        return None
    counted = CountedRun.load(folder, run.documents.scenario, run.documents.report)
    if counted is None:
        raise MissingCapture("the counters of this run are gone from its folder")
    return counted


def is_counted(run: RunRow) -> bool:
    """Whether a run has counters in place of captures."""
    paths = {file.path for file in run.files}
    return "counters.json" in paths and "segments.parquet" not in paths


def _amounts(run: CountedRun, bins: Sequence[float], name: str, scale: float) -> pl.DataFrame:
    """What was counted in each bin, at the bin's end, as slices of captures are drawn."""
    times_s = [min((number + 1) * run.every_s, run.end_s) for number in range(len(bins))]
    return pl.DataFrame({"t_s": times_s, name: [float(value) * scale for value in bins]})


def _levels(run: CountedRun, bins: Sequence[float], name: str) -> pl.DataFrame:
    """The mean of each bin, from the bin's start on."""
    return pl.DataFrame({"t_s": [number * run.every_s for number in range(len(bins))], name: list(map(float, bins))})


def queue(folder: Path, run: RunRow, name: str) -> Figure:
    """Packets that wait in a queue ("link/direction"), and what was dropped, purged or marked there."""
    link, _, direction = name.rpartition("/")
    if is_counted(run):
        return _derived((str(folder), "queue", name), lambda: _counted_queue(folder, run, name))
    lengths: list[tuple[float, float, float]] = []
    events: dict[str, list[float]] = {}
    for row in tables.telemetry(folder, "links"):
        if (row["link"], row["direction"]) != (link, direction) or "part" in row:
            continue
        if "event" in row:
            events.setdefault(row["event"], []).append(row["t_ns"] / 1e9)
        elif "packets" in row:
            lengths.append((row["t_ns"] / 1e9, float(row["packets"]), float(row["max"])))
    if not lengths and not events:
        return figures.nothing("This run kept no samples of its lines.")
    schema = dict.fromkeys(("t_s", "y", "most"), pl.Float64)
    return figures.queue("", pl.DataFrame(lengths, schema=schema, orient="row"), events)


def queue_delay(folder: Path, run: RunRow, name: str) -> Figure:
    """Queueing delay of the classes of a queue that the kernel keeps."""
    classes = _classes(folder, name, "delay_s")
    return figures.queue_delay("", classes) if classes else figures.nothing("This queue reports no delay.")


def mark_probability(folder: Path, run: RunRow, name: str) -> Figure:
    """Probability of a mark or drop in the classes of a queue that the kernel keeps."""
    classes = _classes(folder, name, "probability")
    return figures.mark_probability("", classes) if classes else figures.nothing("This queue reports no probability.")


def _classes(folder: Path, name: str, column: str) -> dict[str, pl.DataFrame]:
    link, _, direction = name.rpartition("/")
    by_class: dict[str, list[tuple[float, float]]] = {}
    for row in tables.telemetry(folder, "links"):
        if column in row and (row["link"], row["direction"]) == (link, direction):
            by_class.setdefault(row["class"], []).append((row["t_ns"] / 1e9, float(row[column])))
    schema = {"t_s": pl.Float64, "y": pl.Float64}
    return {name_: pl.DataFrame(pairs, schema=schema, orient="row") for name_, pairs in sorted(by_class.items())}


def _counted_queue(folder: Path, run: RunRow, name: str) -> Figure:
    counted = _counted(folder, run)
    line = next((line for line in counted.lines if line.name == name), None) if counted else None
    if counted is None or line is None:
        return figures.nothing("This line was not counted: capture.counters.at of the campaign names the links.")
    lengths = _levels(counted, line.bins["queue_packets"], "y")
    return figures.queue("", lengths.with_columns(pl.col("y").alias("most")), {})


def _counted_window(folder: Path, run: RunRow, flow: str) -> Figure:
    counted = _counted(folder, run)
    flow_ = next((candidate for candidate in counted.flows if candidate.name == flow), None) if counted else None
    if counted is None or flow_ is None:
        return figures.nothing(f"This run has no flow {flow}.")
    none = pl.lit(None, pl.Float64).alias("ssthresh_segments")
    samples = _levels(counted, flow_.bins["cwnd_segments"], "cwnd_segments").with_columns(none)
    return figures.congestion_window("", samples)


def cwnd(folder: Path, run: RunRow, flow: str) -> Figure:
    """The sender's congestion window and slow-start threshold, as its stack reports them; of counters, bins' means.

    With the window of the further sender of a split connection that carries the flow's data.
    """
    if is_counted(run):
        return _derived((str(folder), "cwnd", flow), lambda: _counted_window(folder, run, flow))
    spec = next((spec_ for spec_ in run.documents.scenario.workload if spec_.name == flow), None)
    rows = tables.telemetry(folder, flow) if spec is not None else []
    if spec is None or not rows:
        return figures.nothing("This flow left no telemetry.")
    # Samples count from the flow's start.
    start_s = float(spec.start_s)
    columns = ("cwnd_segments", "ssthresh_segments")
    samples = [(row["t_ns"] / 1e9 + start_s, *(row.get(name) for name in columns)) for row in rows]
    schema = dict.fromkeys(("t_s", *columns), pl.Float64)
    frame = pl.DataFrame(samples, schema=schema, orient="row")
    return figures.congestion_window("", frame, _relays(folder, spec.port))


def _relays(folder: Path, port: int) -> dict[str, pl.DataFrame]:
    """Windows of the senders in the network whose data go to this port, by the name of their part."""
    by_part: dict[str, list[tuple[float, float]]] = {}
    for row in tables.telemetry(folder, "links"):
        if "part" in row and row["to"].endswith(f":{port}"):
            by_part.setdefault(f"cwnd, {row['part']} part", []).append((row["t_ns"] / 1e9, float(row["cwnd_segments"])))
    schema = {"t_s": pl.Float64, "cwnd_segments": pl.Float64}
    return {name: pl.DataFrame(pairs, schema=schema, orient="row") for name, pairs in sorted(by_part.items())}


#: What the API calls them.
KINDS: Mapping[str, Callable[[Path, RunRow, str], Figure]] = {
    "sequence": sequence, "received": received, "throughput": throughput, "rtt": rtt, "queue": queue, "cwnd": cwnd,
    "queue-delay": queue_delay, "mark-probability": mark_probability,
}  # fmt: skip
#: Those of a queue.
OF_QUEUE = ("queue", "queue-delay", "mark-probability")


def _derived(key: tuple[Any, ...], make: Callable[[], Figure]) -> Figure:
    def size(figure: Figure) -> int:
        return sum(int(line.points.estimated_size()) for line in figure.series)

    try:
        return tables.derived(key, make, size)
    except MissingCapture as error:
        return figures.nothing(f"{str(error)[0].upper()}{str(error)[1:]}.")
