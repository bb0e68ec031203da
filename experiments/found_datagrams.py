"""Flows of UDP and of ICMP echoes that captures contain and no scenario declared, for imports and sessions.

An echo request and its reply are an exchange of a flow of kind `probe`, as of our own probes. Packets of UDP between
two hosts form a flow for each port that listens: the lower one, as for TCP without a handshake. UDP has no acks, so
both directions may be data: the one of fewer bytes is a flow too if it has a tenth of the other's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from analysis import parquet
from analysis.exchange_kinds import FOUND_DATAGRAMS
from experiments import found_flows
from experiments.found_flows import MOST_FLOWS
from testbed.exchanges import FOLDER
from testbed.scenario import Flow

#: Table of the node binary's `trace --datagrams`.
TABLE = "datagrams.parquet"
UDP = 17
#: Packets that are analysed, together some 2 GB of memory. Captures of more have only their TCP analysed: a part of the
#: packets would have other rates.
MOST_PACKETS = 5_000_000
#: The direction of fewer bytes is a flow if it has this share of the other's.
LEAST_SHARE = 0.1
#: What a packet has in common in two captures.
_SAME = ["protocol", "src", "first", "dst", "second", "reply", "ip_len", "ip_id", "checksum"]


@dataclass(frozen=True)
class Found:
    """A flow of packets."""

    kind: str
    from_: str
    to: str
    ip: int
    #: The port that listens; 0 for echoes.
    port: int
    first_ns: int
    last_ns: int
    bytes: int
    #: Lines of core::exchange::Exchange, with times of the captures. `sent_ns` is null for packets that were seen at
    #: one place only, or at the receiver only.
    exchanges: pl.DataFrame

    def as_flow(self, zero_ns: int) -> Flow:
        """The flow in a scenario, with times since the run's zero."""
        return Flow.read(
            {
                "name": self.name,
                "kind": self.kind,
                "from": self.from_,
                "to": self.to,
                "port": self.port,
                "ip": self.ip,
                "start_s": max((self.first_ns - zero_ns) / 1e9, 0.0),
                # Just after its last packet.
                "stop_s": max((self.last_ns - zero_ns + 1000) / 1e9, 1e-6),
                "options": {"protocol": "icmp"} if self.kind == "probe" else {},
            }
        )

    @property
    def name(self) -> str:
        """As unique as host names, protocol and port are."""
        from_, to = _in_name(self.from_), _in_name(self.to)
        version = "6" if self.ip == 6 else ""
        return f"{from_}-{to}:icmp{version}" if self.kind == "probe" else f"{from_}-{to}:{self.port}-udp{version}"

    def write(self, folder: Path, zero_ns: int) -> None:
        """Writes its exchanges, with times since the run's zero."""
        times = ("sent_ns", "arrived_ns", "returned_ns")
        (folder / FOLDER).mkdir(exist_ok=True)
        rows = self.exchanges.with_columns(pl.col(name) - zero_ns for name in times)
        rows.write_ndjson(folder / FOLDER / f"{self.name}.jsonl")


def read(folder: Path) -> tuple[pl.DataFrame, int]:
    """The packets of the captures, in order of time, with `ip`: the version of IP; and the number of those left out.

    All are left out if there are more than MOST_PACKETS.
    """
    table = parquet.scan(folder / TABLE)
    packets = int(table.select(pl.len()).collect().item())
    left_out = packets if packets > MOST_PACKETS else 0
    version = pl.when(pl.col("src").str.contains(":", literal=True)).then(6).otherwise(4)
    kept = table.head(0) if left_out else table
    return kept.with_columns(ip=version).sort("time_ns", maintain_order=True).collect(), left_out


def nearest(packets: pl.DataFrame) -> dict[str, int]:
    """Senders whose packets several captures show, each with the capture that shows most of them first.

    Args:
        packets: of captures whose clocks agree.
    """
    nth = pl.int_range(pl.len()).over("file", *_SAME).alias("nth")
    of_packet = packets.with_columns(nth).group_by(*_SAME, "nth")
    first = of_packet.agg(pl.col("file").sort_by("time_ns").first(), several=pl.col("file").n_unique() > 1)
    counted = first.filter("several").group_by("src", "file").len().sort(["len", "file"], descending=[True, False])
    return dict(counted.unique("src", keep="first", maintain_order=True).select("src", "file").iter_rows())


def flows(packets: pl.DataFrame, files: Mapping[str, Sequence[int]]) -> tuple[list[Found], int]:
    """Probes first, then flows of UDP; of each the largest first, and as many as are measured; and the number of
    those that are left out.

    Args:
        packets: `read`; `src` and `dst` may be names of hosts.
        files: numbers of the captures at each host.
    """
    known = pl.col("src").is_in(list(files)) & pl.col("dst").is_in(list(files)) & (pl.col("src") != pl.col("dst"))
    packets = packets.filter(known)
    found: list[Found] = []
    left_out = 0
    for of_protocol in (_probes, _datagrams):
        of_kind = of_protocol(packets, files)
        # What was seen at one instant only has no rate.
        lasting = [flow for flow in of_kind if flow.last_ns > flow.first_ns and flow.bytes > 0]
        found += sorted(lasting, key=lambda flow: (-flow.bytes, flow.first_ns, flow.name))[:MOST_FLOWS]
        left_out += max(len(lasting) - MOST_FLOWS, 0)
    return found, left_out


def workload(
    folder: Path,
    connections: pl.DataFrame,
    packets: pl.DataFrame,
    files: Mapping[str, Sequence[int]],
    zero_ns: int,
) -> tuple[list[Flow], int]:
    """The measured flows as a scenario has them, of TCP first, and the number of those left out. Writes exchanges.

    Args:
        folder: of the run.
        connections: as of `found_flows.flows`.
        packets: as of `flows`.
        files: numbers of the captures at each host.
        zero_ns: the run's zero.
    """
    rows = found_flows.flows(connections)
    measured = [
        Flow.read(
            {
                "name": f"{_in_name(row['client'])}-{_in_name(row['server'])}:{row['listening_port']}",
                "kind": "bulk",
                "from": row["client"],
                "to": row["server"],
                "port": row["listening_port"],
                "start_s": max((row["first_ns"] - zero_ns) / 1e9, 0.0),
                # Just after its last segment.
                "stop_s": max((row["last_ns"] - zero_ns + 1000) / 1e9, 1e-6),
            }
        )
        for row in rows.head(MOST_FLOWS).iter_rows(named=True)
    ]
    found, left_out = flows(packets, files)
    for flow in found:
        flow.write(folder, zero_ns)
    measured += [flow.as_flow(zero_ns) for flow in found]
    return measured, max(rows.height - MOST_FLOWS, 0) + left_out


def _in_name(host: str) -> str:
    """A host in the name of a flow, where a port follows."""
    return f"[{host}]" if ":" in host else host


def _probes(packets: pl.DataFrame, files: Mapping[str, Sequence[int]]) -> list[Found]:
    echoes = packets.filter(pl.col("protocol") != UDP)
    found = []
    for (from_, to, ip), requests in _by(echoes.filter(pl.col("reply") == 0), "src", "dst", "ip"):
        sent, arrived = _at_both_ends(requests, files[from_], files[to])
        crossed = (
            _crossed(sent, arrived)
            if arrived is not None
            else sent.with_columns(sent_ns=pl.col("time_ns"), arrived_ns=pl.lit(None, pl.Int64)).drop("time_ns")
        )
        crossed = crossed.filter(pl.col("sent_ns").is_not_null()).sort("sent_ns", maintain_order=True)
        back = (pl.col("src") == to) & (pl.col("dst") == from_) & (pl.col("ip") == ip) & (pl.col("reply") == 1)
        replies = echoes.filter(back & pl.col("file").is_in(sent["file"].unique().to_list()))
        key = ["first", "second"]
        returns = replies.select(*key, returned_ns="time_ns").sort("returned_ns")
        # The first reply after the request, and before the next one of the same number.
        after = crossed.join_asof(
            returns, left_on="sent_ns", right_on="returned_ns", by=key, strategy="forward", check_sortedness=False
        ).with_columns(next_ns=pl.col("sent_ns").shift(-1).over(key))
        in_turn = pl.col("next_ns").is_null() | (pl.col("returned_ns") < pl.col("next_ns"))
        exchanges = after.with_columns(returned_ns=pl.when(in_turn).then("returned_ns"))
        found.append(_found("probe", (from_, to), ip, 0, exchanges))
    return found


def _datagrams(packets: pl.DataFrame, files: Mapping[str, Sequence[int]]) -> list[Found]:
    udp = packets.filter(pl.col("protocol") == UDP).with_columns(
        port=pl.min_horizontal("first", "second"),
        low=pl.min_horizontal("src", "dst"),
        high=pl.max_horizontal("src", "dst"),
    )
    found = []
    for (_, _, port, ip), between in _by(udp, "low", "high", "port", "ip"):
        ways = [
            _found(FOUND_DATAGRAMS, (from_, to), ip, port, _seen(one_way, files[from_], files[to]))
            for (from_, to), one_way in _by(between, "src", "dst")
        ]
        most = max(way.bytes for way in ways)
        found += [way for way in ways if way.bytes >= LEAST_SHARE * most]
    return found


def _by(packets: pl.DataFrame, *columns: str) -> list[tuple[tuple[Any, ...], pl.DataFrame]]:
    return list(packets.partition_by(*columns, as_dict=True, maintain_order=True).items())


def _at_both_ends(
    packets: pl.DataFrame, at_sender: Sequence[int], at_receiver: Sequence[int]
) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """The packets where their sender was captured, and where their receiver was; None if that is the same place."""
    sender_packets, receiver_packets = (
        packets.filter(pl.col("file").is_in(list(of_end))) for of_end in (at_sender, at_receiver)
    )
    if set(at_sender) & set(at_receiver) or sender_packets.is_empty() or receiver_packets.is_empty():
        return (receiver_packets if sender_packets.is_empty() else sender_packets), None
    return sender_packets, receiver_packets


def _crossed(sent: pl.DataFrame, arrived: pl.DataFrame) -> pl.DataFrame:
    """Packets with `sent_ns` and `arrived_ns`, null if they were not seen there. Equal packets keep their order."""
    nth = pl.int_range(pl.len()).over(_SAME).alias("nth")
    departures = sent.select(*_SAME, nth, sent_ns="time_ns")
    arrivals = arrived.select(*_SAME, nth, arrived_ns="time_ns")
    return departures.join(arrivals, on=[*_SAME, "nth"], how="full", coalesce=True)


def _seen(packets: pl.DataFrame, at_sender: Sequence[int], at_receiver: Sequence[int]) -> pl.DataFrame:
    """Packets of UDP one way."""
    sender_packets, receiver_packets = _at_both_ends(packets, at_sender, at_receiver)
    crossed = None if receiver_packets is None else _crossed(sender_packets, receiver_packets)
    if crossed is None or crossed.drop_nulls(["sent_ns", "arrived_ns"]).is_empty():
        # Seen at one place; or translated on the way, or with checksums that a network card fills in.
        once = sender_packets if receiver_packets is None else receiver_packets
        crossed = once.with_columns(sent_ns=pl.lit(None, pl.Int64), arrived_ns=pl.col("time_ns"))
    return crossed.with_columns(returned_ns=pl.lit(None, pl.Int64))


def _found(kind: str, ends: tuple[str, str], ip: int, port: int, packets: pl.DataFrame) -> Found:
    times = ["sent_ns", "arrived_ns", "returned_ns"]
    at = pl.coalesce("sent_ns", "arrived_ns")
    exchanges = packets.sort(at, maintain_order=True).select(
        pl.int_range(pl.len()).alias("seq"), pl.col("ip_len").cast(pl.Int64).alias("bytes"), *times
    )
    all_ns = pl.concat([exchanges[name] for name in times]).drop_nulls()
    return Found(
        kind=kind,
        from_=ends[0],
        to=ends[1],
        ip=ip,
        port=port,
        first_ns=_edge(all_ns.min()),
        last_ns=_edge(all_ns.max()),
        bytes=int(exchanges["bytes"].sum()),
        exchanges=exchanges,
    )


def _edge(value: object) -> int:
    return value if isinstance(value, int) else 0
