"""QUIC connections by the sender's word: its qlog files, a second source beside the captures. TCP has no values."""

from __future__ import annotations

from analysis.captures import CapturedFlow
from analysis.metrics.registry import metric


@metric(
    "count", "QUIC packets sent", CapturedFlow, "qlog packet_sent, of the sender", detail=True, summed=True, better=None
)
def quic_packets_sent(flow: CapturedFlow) -> float | None:
    """Number of QUIC packets that the flow's sender sent; a datagram of UDP can carry several."""
    return None if flow.log is None else float(flow.log.sent.height)


@metric(
    "count",
    "QUIC packets acknowledged",
    CapturedFlow,
    "qlog packet_received, of the sender: ACK frames",
    detail=True,
    summed=True,
    better=None,
)
def quic_packets_acked(flow: CapturedFlow) -> float | None:
    """Number of QUIC packets that ACK frames acknowledged to the flow's sender."""
    return None if flow.log is None else float(flow.log.acks["packets"].sum())


@metric(
    "count",
    "QUIC packets lost",
    CapturedFlow,
    "qlog packet_lost, of the sender; RFC 9002 6.1",
    detail=True,
    summed=True,
    better="less",
)
def quic_packets_lost(flow: CapturedFlow) -> float | None:
    """Number of QUIC packets that the flow's sender declared lost."""
    return None if flow.log is None else float(flow.log.lost.height)


@metric(
    "time",
    "QUIC ack delay",
    CapturedFlow,
    "qlog packet_received, of the sender: ACK frames; RFC 9000 13.2.5",
    detail=True,
    better="less",
)
def quic_ack_delay(flow: CapturedFlow) -> float | None:
    """Mean ack delay that the receiver states in its ACK frames, in s; None without any."""
    delays = None if flow.log is None else flow.log.acks["ack_delay_s"].drop_nulls()
    return None if delays is None or delays.is_empty() else float(delays.mean())  # type: ignore[arg-type]


@metric(
    "time",
    "QUIC smoothed round-trip time",
    CapturedFlow,
    "qlog metrics_updated, of the sender; RFC 9002 5.3",
    detail=True,
    better="less",
)
def quic_smoothed_rtt(flow: CapturedFlow) -> float | None:
    """The sender's last smoothed round-trip time, in s; None before the first."""
    known = None if flow.log is None else flow.log.metrics["srtt_s"].drop_nulls()
    return None if known is None or known.is_empty() else float(known[-1])
