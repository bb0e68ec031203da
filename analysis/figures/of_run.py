"""The figures of a run: what its flows and lines measured, drawn by the functions of run.py."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import polars as pl

from analysis import metrics
from analysis.captures import CapturedFlow, CapturedLine, MissingCapture
from analysis.captures.quic import QuicFlow
from analysis.figures import run
from analysis.figures.campaign import cdf
from analysis.figures.model import Figure
from analysis.figures.registry import Asked, figure
from analysis.routes import limiting_line
from analysis.runs import Flow, Line, Unmeasured
from analysis.transports import has_segments
from testbed.units import show

Measured = TypeVar("Measured")


@figure(
    "sequence",
    "sequence numbers of a flow at its sender: data from first to last byte, acks, receive window, SACK "
    "blocks, retransmissions, and segments that never arrived; of QUIC, data of streams by the sender's log",
    of=CapturedFlow,
    single=True,
    overlay="Acknowledged",
    represents="acknowledged",
)
def sequence(flow: CapturedFlow, asked: Asked) -> Figure:
    """Data, acks, window, retransmissions and losses at the sender."""
    return _sequence(flow, receiver=False)


@figure(
    "received", "sequence numbers of a flow at its receiver, or data of QUIC's streams", of=CapturedFlow, single=True
)
def received(flow: CapturedFlow, asked: Asked) -> Figure:
    """Data, acks, window and retransmissions at the receiver."""
    return _sequence(flow, receiver=True)


def _sequence(flow: CapturedFlow, *, receiver: bool) -> Figure:
    if isinstance(flow, QuicFlow):
        end = "receiver" if receiver else "sender"
        drawn = run.stream_data(f"{flow.name}: data of streams at the {end}", flow.streams(receiver=receiver))
        return replace(drawn, notes=(f"by the {end}'s log",))
    if not has_segments(flow.run.scenario, flow.spec):
        raise Unmeasured("packets of UDP and ICMP have no sequence numbers of TCP")
    segments, arrived = flow.rows(run.SEQUENCE_COLUMNS, receiver=receiver), None
    if not receiver:
        try:
            is_data = (pl.col("dir") == 0) & (pl.col("payload") > 0)
            arrived = flow.rows(("seq", "payload"), receiver=True, where=is_data)
        except MissingCapture:
            pass
    blocks = flow.sack_blocks(receiver=receiver)
    title = f"{flow.name}: sequence numbers at the {'receiver' if receiver else 'sender'}"
    return run.sequence(title, segments, blocks if blocks.height else None, arrived)


@figure(
    "throughput",
    "data that arrives at the receivers of flows, and data delivered in order, by intervals of several packets "
    "(`--slice`) or the counters' bins, with the rate of the slowest link",
    of=Flow,
    sliced=True,
    overlay="Throughput",
)
def throughput(flows: Sequence[Flow], asked: Asked) -> Figure:
    """Data as it arrives and as it is delivered in order, in slices of several packets or the counters' bins."""
    period = (asked.from_s, asked.to_s)
    widths = _measured(flows, lambda flow: flow.slice_s(asked.slice_s))
    measured = [flow for flow in flows if flow.name in widths]
    arriving: dict[str, pl.DataFrame] = {}
    for flow in measured:
        with contextlib.suppress(Unmeasured):
            arriving[flow.name] = flow.throughput_over_time(widths[flow.name], *period)
    delivered = {
        flow.name: flow.delivery_over_time(widths[flow.name], *period)
        for flow in measured
        if has_segments(flow.run.scenario, flow.spec)
    }
    lines = {line.name: line for flow in measured if (line := limiting_line(flow.run.scenario, flow.spec))}
    rates = {name: line.rates for name, line in lines.items()}
    drawn = run.throughput("throughput at the receiver", arriving, delivered, rates, period, asked.rate_unit)
    of_width: dict[float, list[str]] = {}
    for name, width_s in widths.items():
        of_width.setdefault(width_s, []).append(name)
    several = len(of_width) > 1
    bins = [
        f"bins of {show(width_s, 'time')}" + (f" ({', '.join(names)})" if several else "")
        for width_s, names in of_width.items()
    ]
    return replace(drawn, notes=("; ".join(bins),))


@figure("rtt", "round-trip samples of flows over the whole run", of=CapturedFlow, overlay="Round-trip time")
def rtt(flows: Sequence[CapturedFlow], asked: Asked) -> Figure:
    """Round-trip samples of the senders, by Karn's rule: none of retransmitted data. Of a probe, each packet's."""
    return run.round_trips("round-trip time at the sender", _measured(flows, lambda flow: flow.round_trips()))


@figure("outstanding", "bytes sent and not acknowledged, at the senders of flows", of=CapturedFlow)
def outstanding(flows: Sequence[CapturedFlow], asked: Asked) -> Figure:
    """Bytes sent and not acknowledged, at the senders."""
    return run.outstanding("outstanding data at the sender", _measured(flows, metrics.outstanding))


@figure(
    "cwnd",
    "congestion window and slow-start threshold of a flow, as the sender's stack reports them, with the windows of "
    "further senders of a split connection",
    of=Flow,
    single=True,
    overlay="Congestion window",
)
def cwnd(flow: Flow, asked: Asked) -> Figure:
    """As the sender's stack reports them, with the windows of further senders of a split connection; of counters, the
    means of their bins.
    """
    return run.congestion_window(f"{flow.name}: congestion window", flow.window_samples(), flow.relay_windows())


@figure(
    "queue",
    "length of a link's queue, peaks between two samples, and packets dropped, purged or marked there",
    of=Line,
    single=True,
    overlay="Queue",
)
def queue(line: Line, asked: Asked) -> Figure:
    """Packets that wait, and what happened to packets there."""
    lengths, events = line.queue_steps(), line.queue_events()
    if lengths.is_empty() and not events:
        raise Unmeasured("this run kept no samples of its links")
    return run.queue(f"{line.name}: queue ({line.policy})", lengths, events)


@figure("queue-delay", "queueing delay of a link that the kernel shapes, by class", of=CapturedLine, single=True)
def queue_delay(line: CapturedLine, asked: Asked) -> Figure:
    """Queueing delay of the classes of a queue that the kernel keeps."""
    return run.queue_delay(f"{line.name}: {line.policy}", _classes(line, "delay_s", "delay"))


@figure(
    "mark-probability",
    "probability of a mark or drop on a link that the kernel shapes, by class",
    of=CapturedLine,
    single=True,
)
def mark_probability(line: CapturedLine, asked: Asked) -> Figure:
    """Probability of a mark or drop in the classes of a queue that the kernel keeps."""
    return run.mark_probability(f"{line.name}: {line.policy}", _classes(line, "probability", "probability"))


def _classes(line: CapturedLine, column: str, what: str) -> dict[str, pl.DataFrame]:
    classes = line.class_steps(column)
    if not classes:
        raise Unmeasured(f"this queue reports no {what}; codel, dualpi2 and cake of the kernel do")
    return classes


@figure("utilisation", "utilisation of links, by intervals (`--slice`)", of=CapturedLine, sliced=True)
def utilisation(lines: Sequence[CapturedLine], asked: Asked) -> Figure:
    """Utilisation of lines, from the warm-up on and before."""
    limited = [line for line in lines if line.rate_bps is not None]
    if not limited:
        raise Unmeasured("no link of this run has a rate, so none has a utilisation")
    shares = {line.name: metrics.utilisation_over_time(line, asked.slice_s) for line in limited}
    return run.utilisation(f"utilisation, per {asked.slice_s:g} s", shares, limited[0].run.window_s[0])


@figure("rtt-cdf", "distribution of the round-trip samples of flows after the warm-up", of=CapturedFlow)
def rtt_cdf(flows: Sequence[CapturedFlow], asked: Asked) -> Figure:
    """The distribution of the samples of the measured time."""
    samples = _measured(flows, lambda flow: flow.rtt_samples)
    return cdf({name: rows["rtt_s"].to_list() for name, rows in samples.items()}, "round-trip time", "time")


def _measured(flows: Iterable[Flow], measure: Callable[[Any], Measured]) -> dict[str, Measured]:
    """What was measured of each flow that has it.

    Raises:
        Unmeasured: none has.
    """
    measured: dict[str, Measured] = {}
    refusal: Unmeasured | None = None
    for flow in flows:
        try:
            measured[flow.name] = measure(flow)
        except Unmeasured as error:
            refusal = refusal or error
    if refusal is not None and not measured:
        raise refusal
    return measured
