"""Flows that were to deliver and delivered nothing: starved by what the scenario declares, or broken.

A starved flow is a result, and its run is valid. A flow that no declared mechanism can have starved makes its run
invalid (docs/validity.md).
"""

from __future__ import annotations

from collections.abc import Iterator

from testbed.addressing import Plan
from testbed.load import links_of
from testbed.report import LinkReport, Problem, ProblemKind, Report
from testbed.scenario import Flow, LinkSpec, Scenario

#: Least time of a flow for its first byte: the initial retransmission timeout of RFC 1122, 4.2.3.1, so that one segment
#: may be lost, and round trips of full packets.
FIRST_TIMEOUT_S, ROUND_TRIPS = 3.0, 3
FULL_PACKET_BYTES = 1500


def problems(scenario: Scenario, report: Report, plan: Plan) -> Iterator[Problem]:
    """Flows that delivered nothing although nothing that the scenario declares explains it."""
    delivered = {flow.name for flow in scenario.workload if _received_bytes(report, flow)}
    paths = {flow.name: links_of(plan, flow) for flow in scenario.workload}
    for flow in scenario.workload:
        if flow.name in delivered or flow.kind != "bulk" or flow.name not in report.flows:
            continue
        path = paths[flow.name]
        if not _has_time(scenario, flow, path):
            continue
        shared = {link for name in delivered for link in paths[name]}
        if not any(_explains(report.driver.links.get(link), link in shared) for link in path):
            yield Problem(
                ProblemKind.DELIVERY,
                flow.name,
                f"flow {flow.name}: no byte arrived, and no link on its path dropped or still held a packet",
            )


def _received_bytes(report: Report, flow: Flow) -> int:
    # A source of several flows reports each of them, by its own name and a number.
    return sum(
        flow_report.receive.bytes
        for name, flow_report in report.flows.items()
        if name == flow.name or (flow.kind != "bulk" and name.startswith(f"{flow.name}-"))
    )


def _has_time(scenario: Scenario, flow: Flow, path: set[str]) -> bool:
    """Whether the flow is long enough for a byte to arrive even if its first segment is lost."""
    end_s = scenario.duration_s if flow.stop_s is None else min(flow.stop_s, scenario.duration_s)
    round_trip_s = sum(_round_trip_s(link) for link in scenario.links if link.name in path)
    return end_s - flow.start_s >= FIRST_TIMEOUT_S + ROUND_TRIPS * round_trip_s


def _round_trip_s(link: LinkSpec) -> float:
    """Delay and transmission of a full packet, in both directions."""
    return sum(
        direction.delay_s + (FULL_PACKET_BYTES * 8 / direction.rate_bps if direction.rate_bps else 0.0)
        for _, direction in link.directions()
    )


def _explains(counters: LinkReport | None, is_shared: bool) -> bool:
    """Whether a line can have starved a flow.

    Args:
        counters: of its directions; None or empty where nothing counts, as on a real wire.
        is_shared: whether a flow that delivered uses the line too.
    """
    if not counters:
        return is_shared
    return any(
        direction.error_losses > 0
        # Dropped, purged, or waiting when the run ended. The audit finds losses that nobody declares.
        or direction.submitted_packets > direction.delivered_packets
        or (direction.busy_s is None and is_shared)
        for direction in counters.values()
    )
