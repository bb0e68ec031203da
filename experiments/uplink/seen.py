"""What a capture shows of a line: which side is local, what each direction carried, and the shape of its traffic."""

from __future__ import annotations

import ipaddress
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import polars as pl

from analysis import parquet
from experiments.found_datagrams import TABLE as DATAGRAMS
from experiments.language.problems import ImportProblem
from testbed import node_binary
from testbed.errors import TestbedError, Unavailable, no_file

#: A transfer is large from this share of its direction's bytes on.
LARGE = 0.05
#: Transfers at the same time that a simulation has at most, of a kind.
MOST_AT_ONCE = 8
#: Round trip if the capture has no sample, in s.
USUAL_RTT_S = 0.04
QUIC_PORT = 443
Part = TypeVar("Part", "Direction", "Replayed")


@dataclass(frozen=True)
class Direction:
    """What a direction carried; bytes of the network layer."""

    packets: int
    bytes: int
    pure_acks: int
    pure_ack_bytes: int
    tcp_bytes: int
    quic_packets: int
    quic_bytes: int
    busiest_second_bytes: int

    @property
    def ack_share(self) -> float:
        """Of pure acks in the bytes; 0 without any."""
        return self.pure_ack_bytes / self.bytes if self.bytes else 0.0


@dataclass(frozen=True)
class Replayed:
    """What a queue did to the packets of the uplink."""

    left: int
    left_bytes: int
    left_acks: int
    purged: int
    dropped: int
    mean_wait_s: float
    longest_wait_s: float


@dataclass(frozen=True)
class Shape:
    """Large transfers at the same time, and the round trip."""

    downloads: int
    quic_downloads: int
    uploads: int
    rtt_s: float
    #: The capture had a sample of it.
    rtt_is_measured: bool


@dataclass(frozen=True)
class Seen:
    """What a capture shows of a line."""

    local: Sequence[str]
    #: How the local side was found.
    found_by: str
    duration_s: float
    up: Direction
    down: Direction
    other_frames: int
    damage: Sequence[str]
    shape: Shape

    def busiest_bps(self, way: Direction) -> float:
        """A direction's rate in its busiest second, in bit/s; of a shorter capture in all of it."""
        return 8.0 * way.busiest_second_bytes / (min(self.duration_s, 1.0) or 1.0)


@dataclass(frozen=True)
class _Pair:
    """Bytes from one host to another."""

    source: str
    destination: str
    bytes: int


def look(capture: Path, folder: Path, local: Sequence[str]) -> Seen:
    """Reads a capture.

    Args:
        capture: pcap or pcapng, plain or compressed.
        folder: for tables.
        local: addresses of the local side; empty: found by the traffic.

    Raises:
        ImportProblem: the file cannot be read, has no packet of TCP or UDP, or none of the local hosts.
    """
    if not capture.is_file():
        raise ImportProblem(no_file(capture))
    _call("trace", "--datagrams", "--no-segments", "--out", str(folder), f"capture={capture}")
    connections = parquet.read(folder / "connections.parquet")
    datagrams = parquet.read(folder / DATAGRAMS)
    pairs = list(_pairs(connections, datagrams))
    if not pairs:
        raise ImportProblem(f"no TCP or UDP was found in {capture.name}")
    addresses = {host for pair in pairs for host in (pair.source, pair.destination)}
    for address in local:
        if address not in addresses:
            raise ImportProblem(f"--local {address}: {capture.name} has no packet of it; it has {_some(addresses)}")
    hosts, found_by = (list(local), "--local") if local else local_side(pairs)
    summary = _replay(capture, hosts)
    up, down = (_read(Direction, summary[way]) for way in ("forward", "reverse"))
    if not up.packets:
        here = _some(hosts)
        why = (
            f"has packets to {here} and none from there: capture both directions, or"
            if down.packets
            else (f"has packets between {here} only, which are taken for hosts on one side:")
        )
        raise ImportProblem(f"{capture.name} {why} name the hosts on your side by --local ADDRESS")
    shape = shape_of(connections, datagrams, set(hosts))
    return Seen(
        hosts, found_by, summary["duration_s"], up, down, summary["other_frames"], tuple(summary["damage"]), shape
    )


def replay(capture: Path, local: Sequence[str], rate_bps: float, policy: dict[str, Any]) -> Replayed:
    """What a queue of this policy before a line of this rate would do to the packets that the local hosts sent."""
    summary = _replay(capture, local, f"--rate={round(rate_bps)}", f"--policy={json.dumps(policy)}")
    return _read(Replayed, summary["replayed"])


def _replay(capture: Path, local: Sequence[str], *words: str) -> dict[str, Any]:
    found: dict[str, Any] = _call("replay", *(f"--from={address}" for address in local), *words, str(capture))
    return found


def _call(*words: str) -> Any:
    try:
        return node_binary.call(*words, timeout_s=3600.0)
    except Unavailable:
        raise
    except TestbedError as error:
        # The reader's sentence names the file.
        raise ImportProblem(str(error).removeprefix(f"backchannel-node {words[0]}: ")) from None


def _read(of: type[Part], values: dict[str, Any]) -> Part:
    return of(**{field.name: values[field.name] for field in fields(of)})


def _pairs(connections: pl.DataFrame, datagrams: pl.DataFrame) -> Iterator[_Pair]:
    columns = ("client", "server", "client_ip_bytes", "server_ip_bytes")
    for client, server, there, back in connections.select(columns).iter_rows():
        yield _Pair(client, server, there)
        yield _Pair(server, client, back)
    sums = datagrams.group_by("src", "dst").agg(pl.col("ip_len").sum())
    for source, destination, length in sums.iter_rows():
        yield _Pair(source, destination, length)


def _is_private(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    # Addresses between a customer and a carrier's NAT (RFC 6598) are the customer's.
    return parsed.is_private or (parsed.version == 4 and parsed in ipaddress.ip_network("100.64.0.0/10"))


def local_side(pairs: Iterable[_Pair]) -> tuple[list[str], str]:
    """The hosts of the local side, and how they were found.

    Private addresses are local where they talk to public ones. Otherwise the host that receives most is, with those of
    its /64 in IPv6.
    """
    pairs = list(pairs)
    mixed = [pair for pair in pairs if _is_private(pair.source) != _is_private(pair.destination)]
    local = {host for pair in mixed for host in (pair.source, pair.destination) if _is_private(host)}
    words = ["private addresses"] if local else []
    rest = [pair for pair in pairs if not {pair.source, pair.destination} & local]
    # Traffic between hosts of the local network does not cross the line.
    rest = [pair for pair in rest if not (local and _is_private(pair.source) and _is_private(pair.destination))]
    if rest:
        received: Counter[str] = Counter()
        for pair in rest:
            received[pair.destination] += pair.bytes
            received[pair.source] -= pair.bytes
        most = max(received, key=lambda host: (received[host], host))
        local |= {host for host in received if _prefix(host) == _prefix(most)}
        words.append("the host that receives most")
    return sorted(local), " and ".join(words)


def _prefix(address: str) -> object:
    parsed = ipaddress.ip_address(address)
    return parsed if parsed.version == 4 else ipaddress.ip_network((parsed, 64), strict=False)


def shape_of(connections: pl.DataFrame, datagrams: pl.DataFrame, local: set[str]) -> Shape:
    """The shape of the traffic."""
    rows = [row for row in connections.iter_rows(named=True) if (row["client"] in local) != (row["server"] in local)]
    sides = [("client", "server") if row["client"] in local else ("server", "client") for row in rows]
    spans = {
        way: [
            (row["first_ns"], row["last_ns"], row[f"{side[way]}_payload_bytes"])
            for row, side in zip(rows, sides, strict=True)
        ]
        for way in (0, 1)
    }
    quic = datagrams.filter((pl.col("first") == QUIC_PORT) & pl.col("dst").is_in(list(local)))
    of_quic = quic.group_by("src", "dst", "second").agg(
        pl.col("time_ns").min().alias("first_ns"), pl.col("time_ns").max().alias("last_ns"), pl.col("ip_len").sum()
    )
    # Both halves of a round trip add up, wherever the capture was made.
    samples = [
        (row["client_rtt_min_ns"] + row["server_rtt_min_ns"]) / 1e9
        for row in rows
        if row["client_rtt_samples"] and row["server_rtt_samples"]
    ]
    return Shape(
        downloads=at_once(spans[1]),
        quic_downloads=at_once(of_quic.select("first_ns", "last_ns", "ip_len").iter_rows()),
        uploads=at_once(spans[0]),
        rtt_s=median(samples) if samples else USUAL_RTT_S,
        rtt_is_measured=bool(samples),
    )


def at_once(spans: Iterable[tuple[int, int, int]]) -> int:
    """Most large transfers at one time, up to MOST_AT_ONCE.

    Args:
        spans: begin, end and bytes of each transfer.
    """
    spans = list(spans)
    least = LARGE * sum(size for *_, size in spans)
    # Requests alone are not a transfer: data come in full packets.
    ends = [
        (at, step) for begin, end, size in spans if size >= max(least, 50_000) for at, step in ((begin, 1), (end, -1))
    ]
    most = active = 0
    for _, step in sorted(ends, key=lambda end: (end[0], -end[1])):
        active += step
        most = max(most, active)
    return min(most, MOST_AT_ONCE)


def _some(hosts: Iterable[str]) -> str:
    """At most ten hosts."""
    names = sorted(hosts)
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
