"""A run as its captures and telemetry show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from analysis.captures.flow import CapturedFlow
from analysis.captures.line import CapturedLine, lines_of
from analysis.captures.quic import QuicFlow
from analysis.captures.tables import MissingCapture, Tables
from analysis.runs import Flow, Line, Link, RunView, grouped
from analysis.transports import is_quic
from testbed.report import LinkReport
from testbed.scenario import Flow as FlowSpec


@dataclass(frozen=True, repr=False)
class RunData(Tables, RunView):
    """A run's tables, with its flows and lines."""

    single_flow_is_active: ClassVar[bool] = False

    def __repr__(self) -> str:
        parts = f"{len(self.flows)} flows, {len(self.scenario.links)} links, {self.window_s[1]:g} s"
        return f"<captured run in {self.folder}: {parts}>"

    @cached_property
    def flows(self) -> list[CapturedFlow]:
        """The scenario's flows, each with its captures."""
        return [self._flow(spec) for spec in self.scenario.workload]

    @property
    def caveat(self) -> str:
        """That of an import of logs."""
        logged = any(isinstance(flow, QuicFlow) and flow.has_only_logs for flow in self.flows)
        return "by the endpoints' own logs (qlog), without captures" if logged else ""

    def _flow(self, spec: FlowSpec) -> CapturedFlow:
        kind = QuicFlow if is_quic(self.scenario, spec) else CapturedFlow
        return kind(self, self, spec)

    def flow(self, name: str) -> CapturedFlow:
        """The flow of a name.

        Raises:
            MissingCapture: there is none.
        """
        spec = next((spec for spec in self.scenario.workload if spec.name == name), None)
        if spec is None:
            raise MissingCapture(f"this run has no flow {name}")
        return self._flow(spec)

    @cached_property
    def groups(self) -> dict[str, list[CapturedFlow]]:
        """Flows that are also measured together, by the group's name."""
        return grouped(self.flows)

    @cached_property
    def lines(self) -> list[CapturedLine]:
        """The lines between nodes that are not hosts, and those whose ends `capture.at` names; all lines if there are
        no such lines.
        """
        hosts = {node.name for node in self.scenario.nodes if node.kind == "host"}
        named = set(self.scenario.capture.at)
        measured = [
            line
            for line in self.all_lines
            if not hosts & set(line.ends) or named.issuperset(f"{end}:{line.link}" for end in line.ends)
        ]
        return measured or self.all_lines

    @cached_property
    def all_lines(self) -> list[CapturedLine]:
        """Both directions of every link; none of an import, which has no links."""
        return lines_of(self, self)

    @cached_property
    def links(self) -> list[Link]:
        """The links of which exactly two directions are measured."""
        by_link: dict[str, list[CapturedLine]] = {}
        for line in self.lines:
            by_link.setdefault(line.link, []).append(line)
        return [Link(name, pair[0], pair[1]) for name, pair in by_link.items() if len(pair) == 2]

    @property
    def link_reports(self) -> Mapping[str, LinkReport]:
        """Those of the run's report."""
        return self.counters

    @property
    def window_s(self) -> tuple[float, float]:
        """The part of the run that is measured: from the end of the warm-up to the end of the run."""
        return float(self.scenario.warm_up_s), float(self.scenario.duration_s)


def run_of(part: Flow | Line) -> RunData:
    """The run of a captured flow or line."""
    assert isinstance(part.run, RunData)
    return part.run
