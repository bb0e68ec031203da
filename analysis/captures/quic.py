"""A flow whose connections are QUIC: packets of UDP in captures, and the logs of both ends.

A capture shows when packets came and how long they were. What they carried, and round trips, are the endpoints' word:
their qlog files (analysis/qlog.py). An import of such files has no captures, and everything is the endpoints' word.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import polars as pl

from analysis import parquet, qlog
from analysis.captures.flow import CapturedFlow
from analysis.captures.tables import DATAGRAMS, MissingCapture
from analysis.exchange_kinds import UDP_HEADERS
from analysis.runs import Unmeasured

UDP = 17
#: Ends of the names of the logs of data connections: the sender of a flow connects to its receiver.
SENDERS, RECEIVERS = ("sender", "client"), ("receiver", "server")


class QuicFlow(CapturedFlow):
    """One flow with all of its connections, at both ends."""

    def rows(
        self,
        columns: Sequence[str],
        *,
        receiver: bool = False,
        where: pl.Expr | None = None,
        period: tuple[float, float] | None = None,
    ) -> pl.DataFrame:
        """None: QUIC has no segments.

        Raises:
            Unmeasured: always.
        """
        raise Unmeasured(f"flow {self.name} is QUIC, but this needs TCP segments")

    def _segments(self, node: str) -> pl.DataFrame:
        return self.rows(())

    def sack_blocks(self, *, receiver: bool = False) -> pl.DataFrame:
        """None: QUIC has no segments.

        Raises:
            Unmeasured: always.
        """
        return self.rows(())

    # Packets -------------------------------------------------------------------------------------------------

    def _datagrams(self, node: str, *, against: bool) -> pl.DataFrame:
        """Packets of the flow's direction, or `against` it, at a node's interfaces: `t_s`, `bytes`, `packet_bytes`."""
        if self.has_only_logs:
            return self._logged(node, against=against)
        files = self._files(node)
        path = self.tables.folder / DATAGRAMS
        if not path.is_file():
            raise MissingCapture(f"flow {self.name} is QUIC, but the run has no table of UDP packets: repeat the run")
        addresses = self.tables.addresses
        ends = [addresses.get(end, []) for end in (self.sender, self.receiver)]
        ports = ["first", "second"]
        if against:
            ends.reverse()
            ports.reverse()
        # The port of the side that listens is the flow's. A request's connection goes to the sender's.
        is_ours = (
            (pl.col("protocol") == UDP)
            & pl.col("file").is_in(files)
            & pl.col("src").is_in(ends[0])
            & pl.col("dst").is_in(ends[1])
            & (pl.col(ports[1]) == self.spec.port)
        )
        packets_by_time = (
            parquet.scan(path)
            .filter(is_ours)
            .select(
                self.tables.t_s,
                (pl.col("ip_len").cast(pl.Int64) - UDP_HEADERS[self.spec.ip]).alias("bytes"),
                pl.col("ip_len").cast(pl.Int64).alias("packet_bytes"),
            )
        )
        return packets_by_time.sort("t_s", maintain_order=True).collect()

    @property
    def has_only_logs(self) -> bool:
        """Whether the run is an import of logs, which name its ends."""
        return not self.tables.files and bool(self._paths(self.sender) or self._paths(self.receiver))

    def _logged(self, node: str, *, against: bool) -> pl.DataFrame:
        """The same by the log of that node; without one by that of the other."""
        has = {end: bool(self._paths(end)) for end in (self.sender, self.receiver)}
        is_sent = node == (self.receiver if against else self.sender)
        if has[node]:
            log = self._log_of(node)
            packets = log.sent if is_sent else log.received
        elif node == self.receiver and not against:
            # What the sender knows to have arrived, as of captures with acks alone.
            packets = self.log.acks.filter(pl.col("bytes") > 0)
        else:
            other = self._log_of(self.receiver if node == self.sender else self.sender)
            packets = other.received if is_sent else other.sent
        headers = UDP_HEADERS[self.spec.ip]
        known = packets.select("t_s", pl.col("bytes").fill_null(0))
        return known.with_columns((pl.col("bytes") + headers).alias("packet_bytes"))

    @cached_property
    def received(self) -> pl.DataFrame:
        """Packets at the receiver's interfaces: `t_s`, `bytes` of UDP payload, and `packet_bytes` with headers."""
        return self._datagrams(self.receiver, against=False)

    @cached_property
    def arrivals(self) -> pl.DataFrame:
        """The same packets, as data whose order is not known: `t_s`, `bytes`, and `total` since the start."""
        return self.received.select("t_s", "bytes", pl.col("bytes").cum_sum().alias("total"))

    def packet_bytes_per_byte(self) -> float:
        """Bytes of IP packets for each byte of UDP payload at the receiver; 1 without any."""
        payload = int(self.received["bytes"].sum())
        return int(self.received["packet_bytes"].sum()) / payload if payload else 1.0

    def sent_bytes(self) -> int:
        """Bytes of IP packets that the sender put on its link."""
        return int(self._datagrams(self.sender, against=False)["packet_bytes"].sum())

    def ack_times(self, *, receiver: bool) -> pl.Series:
        """When packets against the data's direction passed the receiver's interfaces, or the sender's, in s.

        Nearly all of them are acks; the handshake, and what a receiving application sends, are counted too.
        """
        return self._datagrams(self.receiver if receiver else self.sender, against=True)["t_s"]

    # Logs ----------------------------------------------------------------------------------------------------

    def _paths(self, node: str) -> list[Path]:
        """The qlog files of data connections at a node."""
        folder = self.tables.folder / qlog.FOLDER
        if not folder.is_dir():
            return []
        if self.tables.files:
            end, side = SENDERS if node == self.sender else RECEIVERS
            begin, marker = f"{self.name}-{end}-", f"-{side}{qlog.SUFFIX}"
        else:
            begin, marker = "", f"-{self.spec.port}-{node}{qlog.SUFFIX}"

        def is_ours(path: Path) -> bool:
            name = path.name.removesuffix(".gz")
            if not begin:
                return name.endswith(marker)
            port = name.removeprefix(begin).removesuffix(marker)
            return name == f"{begin}{port}{marker}" and port.isdigit()

        return sorted(filter(is_ours, folder.iterdir()))

    def _log(self, node: str) -> qlog.Log:
        paths = self._paths(node)
        if not paths:
            raise Unmeasured(f"{node} left no qlog files of flow {self.name}, which are kept with captures")
        return qlog.read(paths)

    @cached_property
    def log(self) -> qlog.Log:
        """The log of the flow's sender."""
        return self._log(self.sender)

    def _log_of(self, node: str) -> qlog.Log:
        return self.log if node == self.sender else self.receivers_log

    @cached_property
    def receivers_log(self) -> qlog.Log:
        """That of its receiver."""
        return self._log(self.receiver)

    @cached_property
    def telemetry(self) -> pl.DataFrame:
        """The sender's telemetry; of an import of logs, by its log, in packets of the largest size that it sent."""
        if not self.has_only_logs:
            return super().telemetry
        metrics, largest = self.log.metrics, self.log.sent["bytes"].max()
        if not isinstance(largest, int) or largest == 0:
            raise Unmeasured(f"the log of {self.sender} has no sizes of packets, in which windows are stated")
        return metrics.select(
            "t_s",
            (pl.col("cwnd_bytes") / largest).alias("cwnd_segments"),
            (pl.col("ssthresh_bytes") / largest).alias("ssthresh_segments"),
        )

    def streams(self, *, receiver: bool) -> pl.DataFrame:
        """Data of streams that the sender sent, or the receiver received, by its log: the columns of
        `qlog.Log.sent_data` or of `data`, with those of `qlog.placed`.
        """
        return qlog.placed(self.receivers_log.data if receiver else self.log.sent_data)

    def completed_s(self) -> float | None:
        """Arrival of the last byte, all bytes before it having arrived, by the receiver's log; None if unfinished, or
        without a size.
        """
        if self.size_bytes is None:
            return None
        arrived = qlog.in_order(self.receivers_log.data).with_columns(pl.col("bytes").cum_sum().alias("total"))
        done = arrived.filter(pl.col("total") >= self.size_bytes)
        return None if done.is_empty() else float(done["t_s"][0])

    def round_trips(self) -> pl.DataFrame:
        """Round-trip samples of the whole run, by the sender's log: `t_s` and `rtt_s`."""
        samples = self.log.metrics.select("t_s", "rtt_s").filter(pl.col("rtt_s").is_not_null())
        # The first value is assumed, before there is a sample.
        return samples.filter(pl.col("rtt_s") != pl.col("rtt_s").shift(1))

    @cached_property
    def rtt_samples(self) -> pl.DataFrame:
        """Those of the measured time."""
        return self.round_trips().filter(pl.col("t_s") >= self.start_s)
