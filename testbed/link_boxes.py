"""The emulators of a lab: in link boxes, and on hosts with an emulated queue in front of a real link."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from testbed import telemetry
from testbed.clock import HostClocks
from testbed.errors import TestbedError
from testbed.host_agents import HostAgents
from testbed.placement import LinkPlacement, Placement
from testbed.report import DriverReport, LinkReport, Stalls
from testbed.scenario import DirectionSpec, LinkSpec, MiddleboxSpec, Named

#: Each host's file of link telemetry.
TELEMETRY = "links.jsonl"


class LinkBoxes:
    """All emulators of a lab as one."""

    def __init__(self, placement: Placement, agents: HostAgents, clocks: HostClocks) -> None:
        self._placement = placement
        self._agents = agents
        self._clocks = clocks
        #: Links of each host, since the last `configure`.
        self._configured: dict[str, list[LinkSpec]] = {}
        self._telemetry: Path | None = None

    def configure(self, links: Sequence[LinkSpec], seed: int) -> None:
        """Configures each link on the host that emulates it. A real link without an emulated queue is left alone."""
        self._configured = {}
        for link in links:
            place = self._placement.links[link.name]
            host = self._host(place)
            if host is None:
                continue
            spec = link if place.box is not None else queue_only(link, place)
            ends = self._placement.plan.links[link.name]
            # On a medium with two ends every frame goes to the other end.
            macs = [end.mac for end in ends] if len(ends) > 2 else []
            self._agents.clients[host].configure_link(link.name, spec.as_json(), seed, macs)
            self._configured.setdefault(host, []).append(link)

    def start(self, file: Path | None = None, lead_s: float = 0.0) -> int:
        """Starts all timelines at one instant; its time on the controller's CLOCK_MONOTONIC, in nanoseconds.

        `file`: for the telemetry.
        """
        zero_ns = time.monotonic_ns() + round(lead_s * 1e9)
        self._telemetry = file
        for host in self._configured:
            self._agents.clients[host].start_links(zero_ns + self._clocks.host_monotonic_offset_ns(host))
        return zero_ns

    def stop(self) -> DriverReport:
        """Ends all timelines. Merges the reports, and the telemetry in order of time.

        Raises:
            TestbedError: an emulator lost a link during the run.
        """
        reports = []
        for host, links in self._configured.items():
            report = self._agents.clients[host].stop_links(DriverReport.read)
            missing = [link.name for link in links if link.name not in report.links]
            if missing:
                raise TestbedError(f"host {host}: its emulator lost link '{missing[0]}' during the run")
            reports.append(report.with_links({link.name: self._as_declared(link, report) for link in links}))
        if self._telemetry is not None:
            self._merge_telemetry(self._telemetry)
        return merged(reports)

    def _as_declared(self, link: LinkSpec, report: DriverReport) -> LinkReport:
        """A queue's counters under the direction that it has in the scenario."""
        counters = report.links[link.name]
        place = self._placement.links[link.name]
        if place.queue_at is None or link.ends[0] == place.queue_at:
            return counters
        return {"forward": counters["reverse"], "reverse": counters["forward"]}

    def _merge_telemetry(self, to: Path) -> None:
        parts = []
        for host in self._configured:
            parts.append(to.with_name(f"{host}.jsonl"))
            self._agents.clients[host].fetch(TELEMETRY, parts[-1])
        telemetry.merge(parts, to)

    def _host(self, place: LinkPlacement) -> str | None:
        if place.box is not None:
            return place.box
        return None if place.queue_at is None else self._placement.host_of[place.queue_at]


def queue_only(link: LinkSpec, place: LinkPlacement) -> LinkSpec:
    """The emulated part of a real link: rate and queue of the direction that leaves `queue_at`.

    The real line delays and damages packets. Packets from it pass unchanged.
    """
    assert place.queue_at is not None
    end = 0 if link.ends[0] == place.queue_at else 1
    declared = link.forward if end == 0 else link.reverse
    boxes = tuple(
        MiddleboxSpec(name=box.name, options=box.options, end=0) for box in link.middleboxes if box.end == end
    )
    return LinkSpec.make(
        name=link.name,
        kind="point-to-point",
        ends=(place.queue_at, "line"),
        options={},
        # The agent's first interface is on the node's side, whichever end of the link the node is.
        forward=DirectionSpec.make(queue=declared.queue, rate_bps=declared.rate_bps),
        reverse=DirectionSpec(queue=Named(name="droptail", options={})),
        middleboxes=boxes or None,
    )


def merged(reports: Sequence[DriverReport]) -> DriverReport:
    """One report of several emulators. Without any, nothing stalled."""
    links = {name: link for report in reports for name, link in report.links.items()}
    result = DriverReport(links=links, realtime=all(report.realtime for report in reports))
    stalls = [report.stalls for report in reports if report.stalls is not None]
    if not stalls:
        return result
    return result.replace(
        stalls=Stalls(
            count=sum(stall.count for stall in stalls),
            total_s=max(stall.total_s for stall in stalls),
            longest_s=max(stall.longest_s for stall in stalls),
            # Of the emulator that stalled most; None where its kernel does not count it.
            queued_s=max(stalls, key=lambda stall: stall.total_s).queued_s,
        )
    )
