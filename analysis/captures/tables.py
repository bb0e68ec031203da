"""The tables of a run: classified captures, telemetry, and what the report says of its interfaces and links."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import polars as pl

from analysis import parquet
from analysis.captures.segments import LINK_TELEMETRY
from analysis.records import read_records, record_file
from analysis.runs import Unmeasured
from testbed.addressing import addresses_of
from testbed.report import InterfaceReport, LinkReport, Report
from testbed.scenario import Scenario

#: Table of `backchannel-node trace --datagrams`.
DATAGRAMS = "datagrams.parquet"


class MissingCapture(Unmeasured):
    """A metric needs a capture, or telemetry, that the run does not have."""


def read_connections(folder: Path, scenario: Scenario) -> pl.DataFrame:
    """connections.parquet of a run's folder, always with `listening_port`."""
    connections = parquet.read(folder / "connections.parquet")
    if "listening_port" in connections.columns:
        return connections
    # Tables have it since 25 November 2026, where the ends of connections may have changed places
    # (experiments.found_flows). Before, flows that were found had the port that the server has now, and programs that
    # listened at the sender's host had that of the client.
    listening = pl.col("server_port")
    declares_programs = any(flow.command is not None for flow in scenario.workload)
    if declares_programs and "opened_by_server" in connections.columns:
        listening = pl.when("opened_by_server").then(pl.col("client_port")).otherwise(listening)
    return connections.with_columns(listening.alias("listening_port"))


@dataclass(frozen=True)
class Tables:
    """A run's tables. Times are seconds since the run's start; "at" an interface means in its capture."""

    scenario: Scenario
    #: Of the run's report.
    interfaces: Sequence[InterfaceReport]
    t0_epoch_ns: int
    #: Of all interfaces; lazy where only the columns and rows that are needed are read, of millions.
    source: pl.DataFrame | pl.LazyFrame
    #: With `listening_port`, the port that was opened at either end.
    connections: pl.DataFrame
    #: Capture label (the interface's name) to file number.
    files: Mapping[str, int]
    #: The run's folder, for its telemetry.
    folder: Path
    #: Counters of the run's report by link: a second source, beside the captures.
    counters: Mapping[str, LinkReport] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path, scenario: Scenario, report: Report, *, lazy: bool = False) -> Self:
        """Reads connections.parquet and summary.json of a run's folder, and segments.parquet now or when needed."""
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        path = folder / "segments.parquet"
        return cls(
            scenario=scenario,
            interfaces=report.interfaces,
            t0_epoch_ns=report.t0_epoch_ns,
            source=parquet.scan(path) if lazy else parquet.read(path),
            connections=read_connections(folder, scenario),
            files={file["label"]: file["file"] for file in summary["files"]},
            counters=report.driver.links,
            folder=folder,
        )

    @cached_property
    def addresses(self) -> dict[str, list[str]]:
        """Node to the addresses of its interfaces, over both versions of IP."""
        return addresses_of(self.interfaces)

    @cached_property
    def segments(self) -> pl.DataFrame:
        """All segments."""
        return self.source.lazy().collect()

    def during(self, from_s: float, to_s: float) -> pl.Expr:
        """Whether a segment's `time_ns` is in a period or at most 1 ns outside of it."""
        # Whole numbers of ns, so that the reader can pass over the parts of a file that lie outside.
        return pl.col("time_ns").is_between(
            self.t0_epoch_ns + int(from_s * 1e9) - 1, self.t0_epoch_ns + int(to_s * 1e9) + 1
        )

    def files_at(self, node: str, link: str | None = None) -> list[int]:
        """Numbers of the captures at a node's interfaces, or at its interfaces on a link."""
        here = [end.interface for end in self.interfaces if end.node == node and link in (None, end.link)]
        return [self.files[name] for name in here if name in self.files]

    def at_interface(self, node: str, link: str, columns: Sequence[str], from_s: float, to_s: float) -> pl.DataFrame:
        """What passed the interface of a node on a link during a period: `file`, `conn`, `t_s` and other columns.

        Raises:
            MissingCapture: nothing was captured there.
        """
        files = self.files_at(node, link)
        if not files:
            raise MissingCapture("this interface was not captured: capture.at of the campaign selects interfaces")
        rows = self.source.lazy().filter(pl.col("file").is_in(files), self.during(from_s, to_s))
        return rows.select("file", "conn", self.t_s, *columns).collect()

    @property
    def t_s(self) -> pl.Expr:
        """The time of a segment in seconds since the run's zero."""
        return ((pl.col("time_ns") - self.t0_epoch_ns) / 1e9).alias("t_s")

    def sack_blocks(self, segments: pl.DataFrame) -> dict[tuple[int, int], list[list[int]]]:
        """SACK blocks of single segments, by their `file` and `frame`: [left edge, right edge] each, in their order."""
        path = self.folder / "sacks.parquet"
        if segments.is_empty() or not path.is_file():
            return {}
        here = pl.col("frame").is_between(segments["frame"].min(), segments["frame"].max())
        rows = parquet.scan(path).filter(here).select("file", "frame", "left", "right").collect()
        blocks: dict[tuple[int, int], list[list[int]]] = {}
        for file, frame, left, right in rows.iter_rows():
            blocks.setdefault((file, frame), []).append([left, right])
        return blocks

    @cached_property
    def datagrams(self) -> pl.DataFrame | None:
        """Packets of UDP and echoes of ICMP at all interfaces (datagrams.parquet); None: the captures were read for TCP
        only.
        """
        path = self.folder / DATAGRAMS
        return parquet.read(path) if path.is_file() else None

    @cached_property
    def of_connection(self) -> dict[tuple[Any, ...], pl.DataFrame]:
        """(file, conn) to its segments in order of time, with `t_s`: seconds since the run's zero."""
        return self.segments.with_columns(self.t_s).partition_by("file", "conn", as_dict=True)

    @cached_property
    def telemetry(self) -> pl.DataFrame:
        """Queue lengths and events of all links, as in `telemetry/links.jsonl`, with `t_s`.

        Raises:
            MissingCapture: the run kept none.
        """
        path = record_file(self.folder / "telemetry", "links")
        if path is None:
            raise MissingCapture("the run kept no telemetry of its links: set capture.telemetry to true")
        rows = read_records(path, LINK_TELEMETRY)
        return rows.with_columns((pl.col("t_ns") / 1e9).alias("t_s"))
