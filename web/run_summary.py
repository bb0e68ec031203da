"""Summary of a run for the top of its page: the main metrics of each flow, and the queues that dropped packets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.metrics import METRICS
from analysis.routes import limiting_line
from analysis.store.rows import MetricRow
from testbed import units
from testbed.report import DROPS, Report
from testbed.scenario import Scenario

#: Main metrics of a flow, in the order of its row.
OUTCOMES = (
    "call_rating",
    "call_delay",
    "call_frames_lost",
    "video_frames_in_time",
    "video_frozen",
    "latency_p50",
    "latency_p99",
    "packet_loss",
    "completion_time",
    "throughput",
    "rtt_mean",
    "retransmissions",
    "coarse_timeouts",
)
#: Limits of the summary: metrics in a flow's row, flows, and queues.
MOST_OUTCOMES, MOST_FLOWS, MOST_QUEUES = 4, 8, 4


@dataclass(frozen=True)
class FlowSummary:
    """A flow and its main metrics."""

    name: str
    kind: str
    sender: str
    receiver: str
    #: Title and value of each metric.
    outcomes: list[tuple[str, str]]


@dataclass(frozen=True)
class RunSummary:
    """The summary of a run."""

    flows: list[FlowSummary]
    #: Flows that are not listed.
    more_flows: int
    #: Sentences on the queues that dropped or marked packets, the most drops first; without any, one that says so.
    queues: list[str]


def summarize(scenario: Scenario, metrics: Sequence[MetricRow], report: Report | None) -> RunSummary:
    """Summarizes a run."""
    values = {(row.name, row.subject): row for row in metrics}
    flows = []
    for flow in scenario.workload[:MOST_FLOWS]:
        rows = [values[name, flow.name] for name in OUTCOMES if (name, flow.name) in values]
        # A probe, a call and a video send at a fixed rate.
        if any(row.name.startswith(("latency", "call", "video")) for row in rows):
            rows = [row for row in rows if row.name != "throughput"]
        line = limiting_line(scenario, flow)
        outcomes = []
        for row in rows[:MOST_OUTCOMES]:
            text = units.show(row.value, row.unit)
            if row.name == "throughput" and line and len(line.rates) == 1:
                rate_bps = line.rates[0][1]
                share = units.show(row.value / rate_bps, "fraction")
                text += f", {share} of {units.show(rate_bps, 'rate')} ({line.name.replace('/', ' ')})"
            outcomes.append((METRICS[row.name].title, text))
        flows.append(FlowSummary(flow.name, flow.kind, flow.from_, flow.to, outcomes))
    return RunSummary(flows, max(len(scenario.workload) - MOST_FLOWS, 0), _queues(report))


def _queues(report: Report | None) -> list[str]:
    directions = [*report.directions()] if report else []
    if not directions:
        # Imported captures have no queues.
        return []
    sentences = []
    for link, direction, counters in directions:
        dropped = sum(counters.events.get(kind, 0) for kind in DROPS)
        marked = sum(count for kind, count in counters.events.items() if kind.startswith("marked"))
        parts = [
            f"{count} {word}"
            for word, count in (("dropped", dropped), ("marked", marked), ("lost to errors", counters.error_losses))
            if count
        ]
        if parts:
            packets = f"Of {counters.submitted_packets} packets" if counters.submitted_packets else "Packets"
            text = f"{packets} on {link} {direction}: {', '.join(parts)}."
            sentences.append((dropped + counters.error_losses, text))
    if not sentences:
        return ["No queue dropped or marked a packet, and no link lost one."]
    return [text for _, text in sorted(sentences, key=lambda item: -item[0])][:MOST_QUEUES]
