"""A flow as its captures at both ends show it."""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path

import polars as pl

from analysis import exchanges, outputs, slices
from analysis.captures.losses import retransmitted, timeouts
from analysis.captures.rtt import rtt_samples
from analysis.captures.segments import FAST_RETRANSMISSION, FLOW_TELEMETRY, is_a, step_mean, step_variation
from analysis.captures.tables import MissingCapture, Tables
from analysis.exchanges import datagrams
from analysis.records import read_records
from analysis.runs import Flow, RunView, Slices
from testbed.addressing import with_port
from testbed.scenario import Flow as FlowSpec

#: Length of `arrival_slices`, in s.
SLICE_S = 1.0


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
        rows = self.tables.connections.filter(
            pl.col("client").is_in(addresses.get(self.sender, []))
            & pl.col("server").is_in(addresses.get(self.receiver, []))
            & (pl.col("listening_port") == self.spec.port)
            & pl.lit(self.spec.kind not in datagrams())
        ).sort("file", "first_ns", maintain_order=True)
        ends = ["client", "client_port", "server", "server_port"]
        nth = pl.int_range(pl.len()).over("file", *ends)
        keys = rows.with_columns(nth.alias("nth"))
        ranked = keys.group_by(*ends, "nth").agg(pl.col("first_ns").min())
        ranked = ranked.sort("first_ns", *ends, "nth").with_row_index("stream").drop("first_ns")
        return keys.join(ranked, on=[*ends, "nth"], maintain_order="left").drop("nth")

    def _segments(self, node: str) -> pl.DataFrame:
        captured = [interface.interface for interface in self.tables.interfaces if interface.node == node]
        files = [self.tables.files[name] for name in captured if name in self.tables.files]
        if not files:
            raise MissingCapture(f"flow {self.name} was not captured at {node}: add that interface to capture.at")
        rows = self.connections.filter(pl.col("file").is_in(files))
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

    @cached_property
    def sack_blocks(self) -> pl.DataFrame:
        """Selective blocks in the acks that the sender received: `t_s`, `ack`, `left`, `right`, in the acks' order.

        Without rows if the run's tables have no blocks (sacks.parquet).
        """
        nothing = pl.DataFrame(schema={"t_s": pl.Float64, "ack": pl.Int64, "left": pl.Int64, "right": pl.Int64})
        path = None if self.tables.folder is None else self.tables.folder / "sacks.parquet"
        connections = self.at_sender.select("file", "conn").unique()
        if path is None or not path.is_file() or connections.is_empty():
            return nothing
        rows = pl.read_parquet(path).filter(pl.col("dir") == 1).join(connections, on=["file", "conn"], how="semi")
        timed = rows.with_columns(((pl.col("time_ns") - self.tables.t0_epoch_ns) / 1e9).alias("t_s"))
        return timed.select(nothing.columns).sort("t_s", maintain_order=True)

    @cached_property
    def arrivals(self) -> pl.DataFrame:
        """What became deliverable at the receiver's interfaces, and when: `t_s`, `bytes`, and `total` since the start.

        Over all of the flow's connections; in each, the bytes by which its data before the first hole grew. If acks
        alone were captured, the bytes by which they grew. Packets of UDP are those that the receiver recorded.
        """
        if self.spec.kind in datagrams():
            return self._packets
        data = self.at_receiver.filter(pl.col("dir") == 0)
        top = pl.col("in_order").cum_max()
        acks = self.at_receiver.filter(pl.col("ack") >= 0).join(data, on="stream", how="anti")
        if acks.height:
            # The first byte is 1; that of a capture that begins amid a transfer is the first one acknowledged.
            acknowledged = acks.with_columns((pl.col("ack") - 1).clip(0).alias("in_order"))
            data = pl.concat([data, acknowledged]).sort("t_s", maintain_order=True)
        grown = data.select("t_s", (top - top.shift(1, fill_value=0)).over("stream").alias("bytes"))
        return grown.filter(pl.col("bytes") > 0).with_columns(pl.col("bytes").cum_sum().alias("total"))

    @cached_property
    def _packets(self) -> pl.DataFrame:
        recorded = exchanges.read(self.tables.folder, self.spec)
        if recorded is None:
            return pl.DataFrame(schema={"t_s": pl.Float64, "bytes": pl.Int64, "total": pl.Int64})
        if recorded["arrived_s"].null_count() == recorded.height > recorded["returned_s"].null_count():
            raise MissingCapture(f"flow {self.name} was not captured at {self.receiver}, so what arrived is unknown")
        found = exchanges.arrivals(recorded, self.spec.ip)
        return found.with_columns(pl.col("bytes").cum_sum().alias("total"))

    @cached_property
    def rtt_samples(self) -> pl.DataFrame:
        """Round-trip samples of the measured time at the sender's interface: `t_s` (the ack's) and `rtt_s`."""
        return rtt_samples(self.at_sender).filter(pl.col("t_s") >= self.start_s)

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
        path = self._telemetry_path()
        if path is None or not path.is_file():
            raise MissingCapture(
                f"flow {self.name} left no telemetry; capture.telemetry records it, and imports have none"
            )
        rows = read_records(path, FLOW_TELEMETRY)
        # Stacks count from the flow's start.
        return rows.with_columns((pl.col("t_ns") / 1e9 + self.begun_s).alias("t_s"))

    def _telemetry_path(self) -> Path | None:
        return None if self.tables.folder is None else self.tables.folder / "telemetry" / f"{self.name}.jsonl"

    @cached_property
    def relay(self) -> pl.DataFrame:
        """Samples of the base station's sender of a split connection: `t_s`, `event`, `cwnd_segments`.

        No rows without a middlebox that sends data.

        Raises:
            MissingCapture: the run kept no telemetry of its links.
        """
        receivers = [with_port(address, self.spec.port) for address in self.tables.addresses.get(self.receiver, [])]
        rows = self.tables.telemetry.filter(pl.col("part").is_not_null() & pl.col("to").is_in(receivers))
        return rows.select("t_s", "event", "cwnd_segments")

    @cached_property
    def cwnd_steps(self) -> pl.DataFrame:
        """The congestion window in segments: `t_s`, `y`."""
        known = self.telemetry.filter(pl.col("cwnd_segments").is_not_null())
        return known.select("t_s", pl.col("cwnd_segments").alias("y"))

    # What every provider measures ----------------------------------------------------------------------------

    def delivered_bytes(self, from_s: float, to_s: float, *, closed: bool = False) -> int:
        """Bytes that became deliverable in order at the receiver's interface in [from_s, to_s), or [from_s, to_s]."""
        before = pl.col("t_s") <= to_s if closed else pl.col("t_s") < to_s
        return int(self.arrivals.filter((pl.col("t_s") >= from_s) & before)["bytes"].sum())

    def packet_bytes_per_byte(self) -> float:
        """Bytes of IP packets for each byte of data, over the data segments at the receiver; 1 without any."""
        data = self.at_receiver.filter((pl.col("dir") == 0) & (pl.col("payload") > 0))
        payload = int(data["payload"].sum())
        return int(data["ip_len"].sum()) / payload if payload else 1.0

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
        """Data segments that the sender sent again, at its interface (class RETRANSMISSION); None for UDP."""
        return None if self.spec.kind in datagrams() else float(retransmitted(self.at_sender).height)

    def fast_retransmits(self) -> float | None:
        """Retransmissions of class FAST_RETRANSMISSION at the sender, less `timeouts` among them; None for UDP."""
        if self.spec.kind in datagrams():
            return None
        fast = retransmitted(self.at_sender).filter(is_a(FAST_RETRANSMISSION))
        return float(fast.join(self.timeouts, on=["t_s", "stream", "seq"], how="anti").height)

    def coarse_timeouts(self) -> float | None:
        """Rows of `timeouts`: retransmissions at the sender's interface that only a timer explains; None for UDP."""
        return None if self.spec.kind in datagrams() else float(self.timeouts.height)

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


def throughput_over_time(
    flow: CapturedFlow, width_s: float, from_s: float = 0.0, to_s: float | None = None
) -> pl.DataFrame:
    """Throughput at the receiver in slices: `t_s` (the slice's end) and `bps`; a slice without bytes has 0.

    Long gaps are left out as analysis/slices.py states.

    Args:
        flow: the flow.
        width_s: of a slice; the last one may reach beyond `to_s`.
        from_s: where the first slice begins.
        to_s: the last slice begins before it; the run's end if absent.

    Raises:
        AnalysisError: the slices are too short for the period.
    """
    number = slices.count(from_s, flow.run.window_s[1] if to_s is None else to_s, width_s)
    return slices.totals(flow.arrivals, from_s, width_s, number).select(
        (from_s + (pl.col("slice") + 1) * width_s).alias("t_s"), (pl.col("bytes") * 8 / width_s).alias("bps")
    )
