"""Metrics of a run, from its captures alone. Each is one function with its formula, unit and source.

A run's data are the tables that `backchannel-node trace` made of its captures (docs/traces.md) and the scenario. Times
are seconds since the run's zero; "at" an interface means in its capture. The few that need the links' own telemetry say
so. docs/metrics.md lists them all.

The order of the imports is the order in which metrics are shown.
"""

from analysis.metrics.data import (
    DATA,
    DUPLICATE_ACK,
    FAST_RETRANSMISSION,
    KEEP_ALIVE,
    NEW,
    OUT_OF_ORDER,
    PURE_ACK,
    RETRANSMISSION,
    SACK,
    SPURIOUS,
    WINDOW_UPDATE,
    ZERO_WINDOW,
    Flow,
    MissingCapture,
    RunData,
    is_a,
    step_mean,
)
from analysis.metrics.registry import METRICS, Metric, measure  # isort: split

from analysis.metrics.throughput import (
    active_packet_throughput,
    active_throughput,
    active_total_throughput,
    active_window_s,
    aggregate_throughput,
    first_upswing,
    packet_throughput,
    throughput,
    throughput_over_time,
    throughput_sd,
    throughput_while,
    upswing,
)  # isort: split

from analysis.metrics.goodput import goodput  # isort: split

from analysis.metrics.losses import (
    coarse_timeouts,
    fast_retransmits,
    retransmissions,
    spurious_retransmissions,
    timeouts,
)  # isort: split

from analysis.metrics.rtt import rtt_mean, rtt_median, rtt_p95, rtt_samples, rtt_sd  # isort: split

from analysis.metrics.completion import completion_time  # isort: split

from analysis.metrics.fairness import fairness_index, jain  # isort: split

from analysis.metrics.pace import (
    ack_arrivals,
    ack_compression,
    ack_spacing,
    burst_max,
    burst_mean,
    bursts,
    idle_gaps,
    idle_longest,
    idle_share,
    nothing_outstanding_share,
    outstanding,
    outstanding_max,
    outstanding_mean,
)  # isort: split

from analysis.metrics.window import cwnd_growth, cwnd_mean, cwnd_variation  # isort: split

from analysis.metrics.lines import Line  # isort: split

from analysis.metrics.links import (
    ack_share,
    active_queue_mean,
    bandwidth_ratio,
    data_share,
    line_busy,
    link_goodput,
    queue_max,
    queue_mean,
    utilisation,
    utilisation_over_time,
    utility,
)  # isort: split

from analysis.metrics.acks import (
    ack_accounting,
    acks_delivered,
    acks_dropped,
    acks_filtered,
    acks_lost,
    acks_marked,
    acks_reconstructed,
    acks_sent,
    segments_per_ack,
)  # isort: split

#: Of a group of flows: the sum over its members.
SUMMED = frozenset(one.name for one in METRICS.values() if one.summed)

__all__ = [
    "DATA", "DUPLICATE_ACK", "FAST_RETRANSMISSION", "KEEP_ALIVE", "METRICS", "NEW", "OUT_OF_ORDER", "PURE_ACK",
    "RETRANSMISSION", "SACK", "SPURIOUS", "SUMMED", "WINDOW_UPDATE", "ZERO_WINDOW", "Flow", "Line", "Metric",
    "MissingCapture", "RunData", "ack_accounting", "ack_arrivals", "ack_compression", "ack_share", "ack_spacing",
    "acks_delivered", "acks_dropped", "acks_filtered", "acks_lost", "acks_marked", "acks_reconstructed", "acks_sent",
    "active_packet_throughput", "active_queue_mean", "active_throughput", "active_total_throughput", "active_window_s",
    "aggregate_throughput", "bandwidth_ratio", "burst_max", "burst_mean", "bursts", "coarse_timeouts",
    "completion_time", "cwnd_growth", "cwnd_mean", "cwnd_variation", "data_share", "fairness_index",
    "fast_retransmits", "first_upswing", "goodput", "idle_gaps", "idle_longest", "idle_share", "is_a", "jain",
    "line_busy", "link_goodput", "measure",
    "nothing_outstanding_share", "outstanding", "outstanding_max", "outstanding_mean", "packet_throughput",
    "queue_max", "queue_mean", "retransmissions", "rtt_mean", "rtt_median", "rtt_p95", "rtt_samples", "rtt_sd",
    "segments_per_ack", "spurious_retransmissions", "step_mean", "throughput", "throughput_over_time", "throughput_sd",
    "throughput_while", "timeouts", "upswing", "utilisation", "utilisation_over_time", "utility",
]  # fmt: skip
