"""The metrics of a run: one function each, with its formula, unit and source. docs/metrics.md lists them.

A metric takes a flow, a line, a link or a run (analysis/runs.py) from whichever provider: captures or counters. One
whose type is a provider's own, such as `CapturedFlow`, needs that provider. Times are seconds since the run's start.

The order of the imports is the order in which metrics are shown.
"""

from analysis.metrics.registry import METRICS, Measured, Metric, measure
from analysis.metrics.throughput import (
    active_packet_throughput,
    active_throughput,
    active_total_packet_throughput,
    active_total_throughput,
    aggregate_packet_throughput,
    aggregate_throughput,
    first_upswing,
    packet_throughput,
    throughput,
    throughput_over_time,
    throughput_sd,
    throughput_spread,
    throughput_variation,
    throughput_while,
    upswing,
)  # isort: split

from analysis.metrics.goodput import goodput  # isort: split

from analysis.metrics.losses import (
    coarse_timeouts,
    fast_retransmits,
    resent_per_loss,
    resent_twice_per_loss,
    retransmissions,
    spurious_retransmissions,
    timeouts,
)  # isort: split

from analysis.metrics.rtt import rtt_mean, rtt_median, rtt_p95, rtt_samples, rtt_sd  # isort: split

from analysis.metrics.latency import (
    delay_forward,
    delay_forward_p95,
    delay_reverse,
    delay_reverse_p95,
    interarrival_jitter,
    jitter,
    latency_p50,
    latency_p95,
    latency_p99,
    packet_loss,
    responsiveness,
    transaction_rate,
)  # isort: split

from analysis.metrics.transfers import (
    flow_completion_large,
    flow_completion_medium,
    flow_completion_p50,
    flow_completion_p95,
    flow_completion_p99,
    flow_completion_small,
    transfers_unfinished,
)  # isort: split

from analysis.metrics.calls import (
    call_delay,
    call_frames_lost,
    call_quality,
    call_rating,
)  # isort: split

from analysis.metrics.video import (
    video_frame_delay_p50,
    video_frame_delay_p95,
    video_frame_delay_p99,
    video_frames_in_time,
    video_frozen,
    video_stalls,
)  # isort: split

from analysis.metrics.completion import completion_time, mean_completion_time  # isort: split

from analysis.metrics.fairness import direction_fairness, fairness_index, jain  # isort: split

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

from analysis.metrics.window import (
    cwnd_excursions,
    cwnd_final,
    cwnd_growth,
    cwnd_growth_per_window,
    cwnd_mean,
    cwnd_variation,
    relay_coarse_timeouts,
    relay_cwnd_variation,
    relay_fast_retransmits,
)  # isort: split

from analysis.metrics.links import (
    ack_fraction,
    ack_packet_size,
    ack_share,
    active_queue_mean,
    bandwidth_ratio,
    carried,
    carried_acks,
    carried_data,
    carried_other,
    commonest_gap_of_acks,
    data_bin_variation,
    data_fraction,
    data_goodput,
    data_packet_size,
    data_share,
    idle_fraction,
    line_busy,
    link_goodput,
    longest_ack_drop_run,
    longest_gap_of_data,
    queue_max,
    queue_mean,
    utilisation,
    utilisation_over_time,
    utilisation_tcp,
    utility,
    utility_settling_time,
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

from analysis.results import MetricValue
from analysis.runs import active_window_s

__all__ = [
    "METRICS", "Measured", "Metric", "MetricValue", "ack_accounting", "ack_arrivals", "ack_compression",
    "ack_fraction", "ack_packet_size", "ack_share", "ack_spacing", "acks_delivered", "acks_dropped",
    "acks_filtered", "acks_lost", "acks_marked", "acks_reconstructed", "acks_sent", "active_packet_throughput",
    "active_queue_mean", "active_throughput", "active_total_packet_throughput", "active_total_throughput",
    "active_window_s", "aggregate_packet_throughput", "aggregate_throughput", "bandwidth_ratio", "burst_max",
    "burst_mean", "bursts", "call_delay", "call_frames_lost", "call_quality", "call_rating", "carried",
    "carried_acks", "carried_data", "carried_other", "coarse_timeouts", "commonest_gap_of_acks", "completion_time",
    "cwnd_excursions", "cwnd_final", "cwnd_growth", "cwnd_growth_per_window", "cwnd_mean", "cwnd_variation",
    "data_bin_variation", "data_fraction", "data_goodput", "data_packet_size", "data_share", "delay_forward",
    "delay_forward_p95", "delay_reverse", "delay_reverse_p95", "direction_fairness", "fairness_index",
    "fast_retransmits", "first_upswing", "flow_completion_large", "flow_completion_medium", "flow_completion_p50",
    "flow_completion_p95", "flow_completion_p99", "flow_completion_small", "goodput", "idle_fraction", "idle_gaps",
    "idle_longest", "idle_share", "interarrival_jitter", "jain", "jitter", "latency_p50", "latency_p95",
    "latency_p99", "line_busy", "link_goodput", "longest_ack_drop_run", "longest_gap_of_data",
    "mean_completion_time", "measure", "nothing_outstanding_share", "outstanding", "outstanding_max",
    "outstanding_mean", "packet_loss", "packet_throughput", "queue_max", "queue_mean", "relay_coarse_timeouts",
    "relay_cwnd_variation", "relay_fast_retransmits", "resent_per_loss", "resent_twice_per_loss", "responsiveness",
    "retransmissions", "rtt_mean", "rtt_median", "rtt_p95", "rtt_samples", "rtt_sd", "segments_per_ack",
    "spurious_retransmissions", "throughput", "throughput_over_time", "throughput_sd", "throughput_spread",
    "throughput_variation", "throughput_while", "timeouts", "transaction_rate", "transfers_unfinished", "upswing",
    "utilisation", "utilisation_over_time", "utilisation_tcp", "utility", "utility_settling_time",
    "video_frame_delay_p50", "video_frame_delay_p95", "video_frame_delay_p99", "video_frames_in_time",
    "video_frozen", "video_stalls",
]  # fmt: skip
