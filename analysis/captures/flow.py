"""A flow as its captures at both ends show it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import polars as pl

from analysis import exchanges, outputs, parquet, qlog, routes, slices
from analysis.captures.losses import retransmitted, timeouts
from analysis.captures.rtt import rtt_samples
from analysis.captures.segments import (
    BAD_CHECKSUM,
    FAST_RETRANSMISSION,
    FLOW_TELEMETRY,
    PURE_ACK,
    is_a,
    step_mean,
    step_means,
    step_variation,
)
from analysis.captures.tables import MissingCapture, Tables
from analysis.exchange_kinds import datagrams
from analysis.records import read_records, record_file
from analysis.runs import Flow, RunView, Slices, Unmeasured, once_a_flow
from analysis.transports import has_segments
from testbed.addressing import with_port
from testbed.scenario import Flow as FlowSpec

#: Length of `arrival_slices`, in s.
SLICE_S = 1.0
#: Length of the slices of `window_levels`, in s: the bins of ton's figure 4.
WINDOW_SLICE_S = 0.1


class CapturedFlow(Flow):
    """One flow with all of its connections, at both ends."""

    def __init__(self, run: RunView, tables: Tables, spec: FlowSpec) -> None:
        super().__init__(run, spec)
        self.tables = tables
        self.sender, self.receiver = spec.from_, spec.to

    # Segments ------------------------------------------------------------------------------------------------

    @cached_property
    def at_sender(self) -> pl.DataFrame:
        """Segments of both directions (`dir` 0 is the data's) at the sender's interfaces, in order of time.

        Beside the columns of segments.parquet: `t_s`, and `stream`, the number of the connection within the flow.

        Raises:
            MissingCapture: no interface of the sender was captured.
        """
        return self._segments(self.sender)

    @cached_property
    def at_receiver(self) -> pl.DataFrame:
        """The same at the receiver's interfaces."""
        return self._segments(self.receiver)

    @cached_property
    def connections(self) -> pl.DataFrame:
        """The flow's rows of connections.parquet, wherever captured, with `stream`.

        A connection has the same `stream` in every capture: its place in time among those of its two ports.
        """
        addresses = self.tables.addresses
        rows = (
            self.tables.connections.lazy()
            .filter(
                pl.col("client").is_in(addresses.get(self.sender, []))
                & pl.col("server").is_in(addresses.get(self.receiver, []))
                & (pl.col("listening_port") == self.spec.port)
                & pl.lit(self.spec.kind not in datagrams())
            )
            .sort("file", "first_ns", maintain_order=True)
        )
        ends = ["client", "client_port", "server", "server_port"]
        nth = pl.int_range(pl.len()).over("file", *ends)
        keys = rows.with_columns(nth.alias("nth"))
        ranked = keys.group_by(*ends, "nth").agg(pl.col("first_ns").min())
        ranked = ranked.sort("first_ns", *ends, "nth").with_row_index("stream").drop("first_ns")
        return keys.join(ranked, on=[*ends, "nth"], maintain_order="left").drop("nth").collect()

    def rows(
        self,
        columns: Sequence[str],
        *,
        receiver: bool = False,
        where: pl.Expr | None = None,
        period: tuple[float, float] | None = None,
    ) -> pl.DataFrame:
        """The columns of the flow's segments at its sender or receiver, with `t_s` and `stream`, in order of time.

        Of lazy tables, nothing else is read.

        Args:
            columns: of segments.parquet.
            receiver: at the receiver's interfaces.
            where: which segments; all of them without it.
            period: from when to when, in s, to 1 ns; the whole run without it.

        Raises:
            MissingCapture: no interface there was captured.
        """
        chosen = [] if where is None else [where]
        chosen += [] if period is None else [self.tables.during(*period)]
        if isinstance(self.tables.source, pl.DataFrame):
            here = self.at_receiver if receiver else self.at_sender
            return here.filter(pl.lit(value=True), *chosen).select(*columns, "t_s", "stream")
        files = self._files(self.receiver if receiver else self.sender)
        keys = self.connections.filter(pl.col("file").is_in(files)).select("file", "conn", "stream")
        rows = self.tables.source.filter(
            pl.col("file").is_in(keys["file"].unique().to_list()),
            pl.col("conn").is_in(keys["conn"].unique().to_list()),
            *chosen,
        )
        if keys.height == 1:
            frame = rows.select(*columns, self.tables.t_s).collect()
            frame = frame.with_columns(pl.lit(keys["stream"][0], pl.UInt32).alias("stream"))
        else:
            # Only pairs are the flow's: captures number their connections each for itself.
            more = [name for name in columns if name not in ("file", "conn")]
            frame = rows.select("file", "conn", *more, self.tables.t_s).collect()
            frame = frame.join(_typed(keys, frame), on=["file", "conn"], how="inner", maintain_order="left")
            frame = frame.select(*columns, "t_s", "stream")
        # A node with several interfaces sees a connection's directions on different ones, or all on one.
        return frame if frame["t_s"].is_sorted() else frame.sort("t_s", maintain_order=True)

    def capture_times(self, stream: int, seq: int, payload: int) -> dict[tuple[str, str], list[float]]:
        """Where a data segment was captured: (node, link) to its times in s, ascending, in all of its copies.

        An interface that was captured and never saw it has no times.
        """
        keys = self.connections.filter(pl.col("stream") == stream).select("file", "conn")
        is_it = (pl.col("dir") == 0) & (pl.col("seq") == seq) & (pl.col("payload") == payload)
        rows = self.tables.source.lazy().filter(is_it).select("file", "conn", self.tables.t_s).collect()
        times: dict[int, list[float]] = {}
        for file, t_s in (
            rows.join(_typed(keys, rows), on=["file", "conn"], how="semi").sort("t_s").select("file", "t_s").iter_rows()
        ):
            times.setdefault(file, []).append(t_s)
        return {
            (end.node, end.link): times.get(self.tables.files[end.interface], [])
            for end in self.tables.interfaces
            if end.interface in self.tables.files
        }

    def _files(self, node: str) -> list[int]:
        if files := self.tables.files_at(node):
            return files
        raise MissingCapture(f"flow {self.name} was not captured at {node}: add that interface to capture.at")

    def _segments(self, node: str) -> pl.DataFrame:
        rows = self.connections.filter(pl.col("file").is_in(self._files(node)))
        parts = [
            self.tables.of_connection[row["file"], row["conn"]].with_columns(
                pl.lit(row["stream"], pl.UInt32).alias("stream")
            )
            for row in rows.select("file", "conn", "stream").iter_rows(named=True)
            if (row["file"], row["conn"]) in self.tables.of_connection
        ]
        if not parts:
            empty = self.tables.segments.clear()
            return empty.with_columns(
                pl.lit(None, pl.Float64).alias("t_s"), pl.lit(None, pl.UInt32).alias("stream")
            ).clear()
        # A node with several interfaces sees a connection's directions on different ones, or all on one.
        return pl.concat(parts).sort("time_ns", maintain_order=True)

    def sack_blocks(self, *, receiver: bool = False) -> pl.DataFrame:
        """Selective blocks in the acks at the sender or receiver: `t_s`, `ack`, `left`, `right`, in order of time.

        Without rows if the run's tables have no blocks (sacks.parquet).
        """
        nothing = pl.DataFrame(schema={"t_s": pl.Float64, "ack": pl.Int64, "left": pl.Int64, "right": pl.Int64})
        path = self.tables.folder / "sacks.parquet"
        files = self._files(self.receiver if receiver else self.sender)
        keys = self.connections.filter(pl.col("file").is_in(files)).select("file", "conn").unique()
        if not path.is_file() or keys.is_empty():
            return nothing
        rows = parquet.scan(path).filter(pl.col("dir") == 1).collect()
        blocks = rows.join(_typed(keys, rows), on=["file", "conn"], how="semi").with_columns(self.tables.t_s)
        return blocks.select(nothing.columns).sort("t_s", maintain_order=True)

    @cached_property
    def arrivals(self) -> pl.DataFrame:
        """What became deliverable at the receiver's interfaces, and when: `t_s`, `bytes`, and `total` since the start.

        Over all of the flow's connections; in each, the bytes by which its data before the first hole grew. If acks
        alone were captured, the bytes by which they grew. Packets of UDP are those that the receiver recorded.
        """
        if self.spec.kind in datagrams():
            return self._packets
        data = self.rows(("in_order",), receiver=True, where=pl.col("dir") == 0)
        top = pl.col("in_order").cum_max()
        if data["stream"].n_unique() < self.connections["stream"].n_unique():
            acks = self.rows(("ack",), receiver=True, where=pl.col("ack") >= 0).join(data, on="stream", how="anti")
            # The first byte is 1; that of a capture that begins amid a transfer is the first one acknowledged.
            acknowledged = acks.select((pl.col("ack") - 1).clip(0).alias("in_order"), "t_s", "stream")
            data = pl.concat([data, acknowledged]).sort("t_s", maintain_order=True)
        grown = data.select("t_s", "stream", (top - top.shift(1, fill_value=0)).over("stream").alias("bytes"))
        return grown.filter(pl.col("bytes") > 0).with_columns(pl.col("bytes").cum_sum().alias("total"))

    @cached_property
    def received(self) -> pl.DataFrame:
        """Data as it arrives at the receiver's interfaces: `t_s`, `bytes`, and `packet_bytes` with headers.

        Segments that come twice count twice, damaged ones do not. Packets of UDP, and connections of which only acks
        were captured, are those of `arrivals`.
        """
        columns = ("t_s", "bytes", pl.col("bytes").cast(pl.Int64).alias("packet_bytes"))
        if self.spec.kind in datagrams():
            return self.arrivals.select(columns)
        is_data = (pl.col("dir") == 0) & (pl.col("payload") > 0) & ~is_a(BAD_CHECKSUM)
        data = self.rows(("payload", "ip_len"), receiver=True, where=is_data)
        arrived = data.select(
            "t_s",
            pl.col("payload").cast(pl.Int64).alias("bytes"),
            pl.col("ip_len").cast(pl.Int64).alias("packet_bytes"),
        )
        if data["stream"].n_unique() == self.connections["stream"].n_unique():
            return arrived
        acknowledged = self.arrivals.join(data, on="stream", how="anti").select(columns)
        return pl.concat([arrived, acknowledged]).sort("t_s", maintain_order=True)

    @cached_property
    def _packets(self) -> pl.DataFrame:
        recorded = exchanges.read(self.tables.folder, self.spec)
        if recorded is None:
            return pl.DataFrame(schema={"t_s": pl.Float64, "bytes": pl.Int64, "total": pl.Int64})
        if recorded["arrived_s"].null_count() == recorded.height > recorded["returned_s"].null_count():
            raise MissingCapture(f"flow {self.name} was not captured at {self.receiver}, so what arrived is unknown")
        found = exchanges.arrivals(recorded, self.spec.ip)
        return found.with_columns(pl.col("bytes").cum_sum().alias("total"))

    def round_trips(self) -> pl.DataFrame:
        """Round-trip samples of the whole run: `t_s` and `rtt_s`; of UDP and ICMP, of packets that were returned."""
        if self.spec.kind in datagrams():
            recorded = exchanges.read(self.tables.folder, self.spec)
            nothing = pl.DataFrame(schema={"sent_s": pl.Float64, "returned_s": pl.Float64})
            packets = nothing if recorded is None else recorded
            took = packets.select(t_s="returned_s", rtt_s=pl.col("returned_s") - pl.col("sent_s")).drop_nulls()
            if took.is_empty():
                raise Unmeasured("no packet of this flow is returned to its sender")
            return took.sort("t_s")
        if len(self._files(self.sender)) > 1:
            return rtt_samples(self.at_sender)
        samples = self.rows(("rtt_ns",), where=(pl.col("dir") == 1) & pl.col("rtt_ns").is_not_null())
        return samples.select("t_s", (pl.col("rtt_ns") / 1e9).alias("rtt_s"))

    @cached_property
    def rtt_samples(self) -> pl.DataFrame:
        """Round-trip samples of the measured time at the sender's interface: `t_s` (the ack's) and `rtt_s`."""
        return rtt_samples(self.at_sender).filter(pl.col("t_s") >= self.start_s)

    @cached_property
    def retransmitted(self) -> pl.DataFrame:
        """The data segments that the sender sent again, at its interface."""
        return retransmitted(self.at_sender)

    @cached_property
    def timeouts(self) -> pl.DataFrame:
        """The retransmissions that only a timer explains (rule: losses.py): `t_s`, `stream`, `seq`, `waited_s`."""
        return timeouts(self.at_sender)

    # Telemetry -----------------------------------------------------------------------------------------------

    @cached_property
    def telemetry(self) -> pl.DataFrame:
        """The sender's samples: `t_s`, `cwnd_segments`, `ssthresh_segments`, `rto_s`, `event`; null if not reported.

        Raises:
            MissingCapture: the run kept none.
        """
        path = record_file(self.tables.folder / "telemetry", self.name)
        if path is None:
            raise MissingCapture(
                f"flow {self.name} left no telemetry; capture.telemetry records it, and imports have none"
            )
        rows = read_records(path, FLOW_TELEMETRY)
        # Stacks count from the flow's start.
        return rows.with_columns((pl.col("t_ns") / 1e9 + self.begun_s).alias("t_s"))

    @cached_property
    def relay(self) -> pl.DataFrame:
        """Samples of the base station's sender of a split connection: `t_s`, `part`, `event`, `cwnd_segments`.

        No rows without a middlebox that sends data.

        Raises:
            MissingCapture: the run kept no telemetry of its links.
        """
        receivers = [with_port(address, self.spec.port) for address in self.tables.addresses.get(self.receiver, [])]
        rows = self.tables.telemetry.filter(pl.col("part").is_not_null() & pl.col("to").is_in(receivers))
        return rows.select("t_s", "part", "event", "cwnd_segments")

    @cached_property
    def cwnd_steps(self) -> pl.DataFrame:
        """The congestion window in segments: `t_s`, `y`."""
        known = self.telemetry.filter(pl.col("cwnd_segments").is_not_null())
        return known.select("t_s", pl.col("cwnd_segments").alias("y"))

    # What every provider measures ----------------------------------------------------------------------------

    def delivered_bytes(self, from_s: float, to_s: float, *, closed: bool = False) -> int:
        """Bytes that became deliverable in order at the receiver's interface in [from_s, to_s), or [from_s, to_s]."""
        # Many metrics ask. Columns take a tenth of the time of a query.
        times_s = self.arrivals["t_s"]
        before = times_s <= to_s if closed else times_s < to_s
        return int(self.arrivals["bytes"].filter((times_s >= from_s) & before).sum())

    @once_a_flow
    def packet_bytes_per_byte(self) -> float:
        """Bytes of IP packets for each byte of data, over the data segments at the receiver; 1 without any."""
        is_data = (pl.col("dir") == 0) & (pl.col("payload") > 0)
        data = self.at_receiver.select(pl.col("payload", "ip_len").filter(is_data))
        payload = int(data["payload"].sum())
        return int(data["ip_len"].sum()) / payload if payload else 1.0

    @cached_property
    def log(self) -> qlog.Log | None:
        """The log of the sender of QUIC; None for other flows."""
        return None

    def sent_bytes(self) -> int:
        """Bytes of IP packets that the sender put on its link."""
        return int(self.at_sender.select(pl.col("ip_len").filter(pl.col("dir") == 0)).to_series().sum())

    def ack_times(self, *, receiver: bool) -> pl.Series:
        """When pure acks passed the receiver's interfaces, or the sender's, in s."""
        seen = self.at_receiver if receiver else self.at_sender
        return seen.select(pl.col("t_s").filter((pl.col("dir") == 1) & is_a(PURE_ACK))).to_series()

    def completed_s(self) -> float | None:
        """Arrival of the last byte, all bytes before it having arrived; None if unfinished, or without a size.

        The bytes of all its connections count together. A flow of programs is complete when its client has ended.
        """
        programs = outputs.program_report(self.tables.folder, self.spec)
        if programs is not None:
            return float(programs.ended_s) if programs.client.ended == "itself" else None
        if self.size_bytes is None:
            return None
        done = self.arrivals.filter(pl.col("total") >= self.size_bytes)
        return None if done.is_empty() else float(done["t_s"][0])

    def arrival_slices(self) -> Slices:
        """Throughput in the whole seconds of the flow's time, in bit/s."""
        first = math.ceil(self.start_s)
        count = max(math.floor(self.ended_s()) - first, 0)
        got = slices.totals(self.arrivals, first, SLICE_S, count).filter(pl.col("bytes") > 0)
        rates_bps = got.select("slice", pl.col("bytes") * 8 / SLICE_S).rows()
        return Slices(first, SLICE_S, count, dict(rates_bps))

    def retransmissions(self) -> float | None:
        """Data segments that the sender sent again, at its interface (class RETRANSMISSION); None if it is not TCP."""
        return float(self.retransmitted.height) if has_segments(self.run.scenario, self.spec) else None

    def fast_retransmits(self) -> float | None:
        """Retransmissions of class FAST_RETRANSMISSION at the sender, less its `timeouts`; None if it is not TCP."""
        if not has_segments(self.run.scenario, self.spec):
            return None
        fast = self.retransmitted.filter(is_a(FAST_RETRANSMISSION))
        return float(fast.join(self.timeouts, on=["t_s", "stream", "seq"], how="anti").height)

    def coarse_timeouts(self) -> float | None:
        """Rows of `timeouts`: retransmissions at the sender that only a timer explains; None if it is not TCP."""
        return float(self.timeouts.height) if has_segments(self.run.scenario, self.spec) else None

    def rtt_mean_s(self) -> float | None:
        """Mean of the round-trip samples; None without any."""
        samples = self.rtt_samples["rtt_s"]
        return None if samples.is_empty() else float(samples.mean())  # type: ignore[arg-type]

    def rtt_sd_s(self) -> float | None:
        """Sample standard deviation of the round-trip samples; None for fewer than two."""
        samples = self.rtt_samples["rtt_s"]
        return float(samples.std()) if samples.len() > 1 else None  # type: ignore[arg-type]

    def cwnd_mean_segments(self) -> float | None:
        """Time average over the flow's measured time, from telemetry."""
        return step_mean(self.cwnd_steps, self.start_s, self.ended_s())

    def cwnd_variation(self) -> float | None:
        """sqrt(E w^2 - (E w)^2) / E w over the flow's measured time; None if the window was 0, or for no time."""
        return step_variation(self.cwnd_steps, self.start_s, self.ended_s())

    def cwnd_growth(self) -> float | None:
        """Growth of the window's mean from the first to the last second of the measured time, in segments/s."""
        steps, begin, end = self.cwnd_steps, self.start_s, self.ended_s()
        first, last = step_mean(steps, begin, begin + 1.0), step_mean(steps, end - 1.0, end)
        return None if first is None or last is None or end - begin <= 1.0 else (last - first) / (end - begin - 1.0)

    def throughput_over_time(self, width_s: float, from_s: float = 0.0, to_s: float | None = None) -> pl.DataFrame:
        """Data that arrives at the receiver (`received`), in slices: `t_s` (the slice's end) and `bps`.

        Long gaps are left out as analysis/slices.py states.

        Args:
            width_s: of a slice; the last one may reach beyond `to_s`.
            from_s: where the first slice begins.
            to_s: the last slice begins before it; the run's end if absent.

        Raises:
            AnalysisError: the slices are too short for the period.
        """
        return self._rates(self.received, width_s, from_s, to_s)

    def delivery_over_time(self, width_s: float, from_s: float = 0.0, to_s: float | None = None) -> pl.DataFrame:
        """Data that becomes deliverable in order (`arrivals`), in the same slices."""
        return self._rates(self.arrivals, width_s, from_s, to_s)

    def slice_s(self, least_s: float) -> float:
        """Length of slices in which several packets arrive, by the slowest line of the path and the median gap."""
        if self.received.is_empty():
            return least_s
        line = routes.limiting_line(self.run.scenario, self.spec)
        largest_bits = 8 * float(self.received["packet_bytes"].max())  # type: ignore[arg-type]
        packet_s = largest_bits / min(rate for _, rate in line.rates) if line else 0.0
        gaps_s = self.received["t_s"].diff().drop_nulls()
        gap_s = 0.0 if gaps_s.is_empty() else float(gaps_s.median())  # type: ignore[arg-type]
        return slices.width_s(least_s, packet_s, gap_s)

    def _rates(self, events: pl.DataFrame, width_s: float, from_s: float, to_s: float | None) -> pl.DataFrame:
        number = slices.count(from_s, self.run.window_s[1] if to_s is None else to_s, width_s)
        return slices.totals(events, from_s, width_s, number).select(
            (from_s + (pl.col("slice") + 1) * width_s).alias("t_s"), (pl.col("bytes") * 8 / width_s).alias("bps")
        )

    def window_levels(self, from_s: float, to_s: float) -> list[float]:
        """Means over slices of 0.1 s, from telemetry."""
        edges = range(math.ceil(from_s / WINDOW_SLICE_S - 1e-9), math.floor(to_s / WINDOW_SLICE_S + 1e-9) + 1)
        return step_means(self.cwnd_steps, [edge * WINDOW_SLICE_S for edge in edges])

    def window_samples(self) -> pl.DataFrame:
        """The sender's congestion window, from telemetry."""
        return self.telemetry

    def relay_windows(self) -> dict[str, pl.DataFrame]:
        """Windows of the senders of a split connection, by their part; none without telemetry of the links."""
        try:
            rows = self.relay.filter(pl.col("cwnd_segments").is_not_null())
        except MissingCapture:
            return {}
        parts = sorted(rows["part"].unique().to_list())
        return {f"cwnd, {part} part": rows.filter(pl.col("part") == part) for part in parts}


def _typed(keys: pl.DataFrame, like: pl.DataFrame) -> pl.DataFrame:
    """Keys with the types of another table: two tables need not number alike."""
    return keys.cast({name: like.schema[name] for name in ("file", "conn")})
