"""A run as its captures and telemetry show it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import polars as pl

from analysis.captures.segments import LINK_TELEMETRY
from analysis.runs import Link, RunView, Unmeasured, grouped, scenario_of
from testbed.scenario import Scenario

if TYPE_CHECKING:
    from analysis.captures.flow import CapturedFlow
    from analysis.captures.line import CapturedLine


class MissingCapture(Unmeasured):
    """A metric needs a capture, or telemetry, that the run does not have."""


@dataclass(frozen=True)
class RunData(RunView):
    """A run's tables. Times are seconds since the run's zero; "at" an interface means in its capture."""

    single_flow_is_active: ClassVar[bool] = False
    scenario: Scenario
    #: Interfaces of the run's report: node, interface, link, end, address.
    interfaces: Sequence[Mapping[str, Any]]
    t0_epoch_ns: int
    segments: pl.DataFrame
    connections: pl.DataFrame
    #: Capture label (the interface's name) to file number.
    files: Mapping[str, int]
    #: Counters of the run's report: link to direction to counters. A second source, beside the captures.
    counters: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    #: The run's folder, for its telemetry.
    folder: Path | None = None

    @classmethod
    def load(cls, folder: Path, scenario: Mapping[str, Any], report: Mapping[str, Any]) -> RunData:
        """Reads segments.parquet, connections.parquet and summary.json of a run's folder."""
        summary = json.loads((folder / "summary.json").read_text())
        return cls(
            scenario=scenario_of(scenario),
            interfaces=report["interfaces"],
            t0_epoch_ns=int(report["t0_epoch_ns"]),
            segments=pl.read_parquet(folder / "segments.parquet"),
            connections=pl.read_parquet(folder / "connections.parquet"),
            files={file["label"]: file["file"] for file in summary["files"]},
            counters=report.get("driver", {}).get("links", {}),
            folder=folder,
        )

    @cached_property
    def flows(self) -> list[CapturedFlow]:
        """The scenario's flows, each with its captures."""
        from analysis.captures.flow import CapturedFlow

        return [CapturedFlow(self, spec) for spec in self.scenario.workload]

    @cached_property
    def groups(self) -> dict[str, list[CapturedFlow]]:
        """Flows that are also measured together, by the group's name."""
        return grouped(self.flows)

    @cached_property
    def lines(self) -> list[CapturedLine]:
        """The lines between nodes that are not hosts; all lines if there are no such lines."""
        hosts = {node.name for node in self.scenario.nodes if node.kind == "host"}
        inner = [line for line in self.all_lines if not hosts & set(line.ends)]
        return inner or self.all_lines

    @cached_property
    def all_lines(self) -> list[CapturedLine]:
        """Both directions of every link; none of an import, which has no links."""
        from analysis.captures.line import lines_of

        return lines_of(self)

    @cached_property
    def links(self) -> list[Link]:
        """The links of which exactly two directions are measured."""
        found: dict[str, list[CapturedLine]] = {}
        for line in self.lines:
            found.setdefault(line.link, []).append(line)
        return [Link(name, pair[0], pair[1]) for name, pair in found.items() if len(pair) == 2]

    @property
    def window_s(self) -> tuple[float, float]:
        """The part of the run that is measured: from the end of the warm-up to the end of the run."""
        return float(self.scenario.warm_up_s), float(self.scenario.duration_s)

    @cached_property
    def busy_window_s(self) -> tuple[float, float]:
        """The part of `window_s` before the last flow ends. Lines are measured over it, because they idle after it."""
        begin_s, end_s = self.window_s
        try:
            last_s = max((flow.ended_s() for flow in self.flows), default=end_s)
        except MissingCapture:  # a transfer whose end was not captured
            last_s = end_s
        return begin_s, max(min(last_s, end_s), begin_s)

    @cached_property
    def addresses(self) -> dict[str, list[str]]:
        """Node to the addresses of its interfaces."""
        found: dict[str, list[str]] = {}
        for interface in self.interfaces:
            found.setdefault(interface["node"], []).append(interface["address"])
        return found

    @cached_property
    def of_connection(self) -> dict[tuple[Any, ...], pl.DataFrame]:
        """(file, conn) to its segments in order of time, with `t_s`: seconds since the run's zero."""
        timed = self.segments.with_columns(((pl.col("time_ns") - self.t0_epoch_ns) / 1e9).alias("t_s"))
        return timed.partition_by("file", "conn", as_dict=True)

    @cached_property
    def telemetry(self) -> pl.DataFrame:
        """Queue lengths and events of all links, as in `telemetry/links.jsonl`, with `t_s`.

        Raises:
            MissingCapture: the run kept none.
        """
        path = None if self.folder is None else self.folder / "telemetry" / "links.jsonl"
        if path is None or not path.is_file():
            raise MissingCapture("the run kept no telemetry of its links: set capture.telemetry to true")
        empty = pl.DataFrame(schema=LINK_TELEMETRY)
        rows = pl.read_ndjson(path, schema=LINK_TELEMETRY) if path.stat().st_size else empty
        return rows.with_columns((pl.col("t_ns") / 1e9).alias("t_s"))
