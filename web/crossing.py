"""Packets that crossed the link under study: when each entered its queue, left it, and arrived."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import TypedDict

import polars as pl

from analysis.captures import DATA, RETRANSMISSION, RunData, is_a
from analysis.handle import StoredRun
from analysis.runs import Unmeasured
from testbed.scenario import DIRECTIONS, LinkSpec, Scenario
from web.run_view import captured

#: Packets of one answer.
MOST = 4000
#: What identifies a segment's connection.
ENDS = ("client", "client_port", "server", "server_port")
#: Columns of a segment that are equal at both ends of the link.
KEY = slice(1, len(ENDS) + 5)
COLUMNS = ("dir", "seq", "ack", "payload", "ip_len", "class")
#: Names that topologies give their link under study, in order of preference.
STUDIED = ("bottleneck", "air", "line")


#: When a packet entered its queue, left it and arrived (s; None: it did not), its direction (0 forward), bytes, kind (0
#: data, 1 ack, 2 sent again) and the number of its flow.
Packet = tuple[float, float, float | None, int, int, int, int]


class Side(TypedDict):
    """A direction of the link."""

    rate_bps: float | None
    delay_s: float
    #: Its queue's policy.
    queue: str


class Crossing(TypedDict):
    """Packets on a link during a period."""

    link: str
    ends: list[str]
    #: Names.
    flows: list[str]
    directions: dict[str, Side]
    packets: list[Packet]
    #: Whether there were more than MOST.
    cut: bool


class NotShown(TypedDict):
    """Why the captures do not show it."""

    note: str


def link_under_study(scenario: Scenario) -> LinkSpec | None:
    """The topology's link under study; in a network written out in the file, the slowest link with two ends."""
    links = [link for link in scenario.links if len(link.ends) == 2]
    for name in STUDIED:
        for link in links:
            if link.name == name:
                return link
    return min(links, key=lambda link: min(side.rate_bps or 1e15 for _, side in link.directions()), default=None)


def crossing(run: StoredRun, from_s: float, to_s: float) -> Crossing | NotShown:
    """Packets that were on the link, or in its queues, at any time of a period."""
    scenario = run.row.documents.scenario
    link = link_under_study(scenario)
    if link is None:
        return NotShown(note="this network has no link with two ends")
    slack_s = _longest_s(link)
    try:
        tables = captured(run)
        near, far = (
            tables.at_interface(end, link.name, COLUMNS, from_s - slack_s, to_s + slack_s) for end in link.ends
        )
    except Unmeasured as error:
        return NotShown(note=f"{error}; both ends of {link.name} are needed")
    others = [other for other in scenario.links if other is not link]
    # Nodes on the near side of the link.
    left = distances(link.ends[0], (node.name for node in scenario.nodes), others).keys()
    ends = {address: node for node, of_node in tables.addresses.items() for address in of_node}
    workload = scenario.workload
    numbers = {(flow.from_, flow.port): number for number, flow in enumerate(workload)}
    packets: list[Packet] = []
    for direction, (entry, exit_) in enumerate(((near, far), (far, near))):
        side = link.direction(DIRECTIONS[direction])
        going = _going(tables, entry, left, ends, direction)
        coming = _going(tables, exit_, left, ends, direction)
        arrived = _arrivals(going, coming, slack_s)
        for number, (t_s, *key, ip_len, again, data, port) in enumerate(going.iter_rows()):
            out_s = arrived.get(number)
            # Transmissions after the period are read as well: their arrivals must not count for earlier copies.
            if t_s > to_s or (out_s if out_s is not None else t_s) < from_s:
                continue
            on_air_s = side.delay_s + (ip_len * 8 / side.rate_bps if side.rate_bps else 0.0)
            leaves_s = max(t_s, out_s - on_air_s) if out_s is not None else t_s
            kind = 2 if again else 0 if data else 1
            arrives_s = None if out_s is None else round(out_s, 6)
            flow = numbers.get((ends.get(key[0], ""), port), 0)
            packets.append((round(t_s, 6), round(leaves_s, 6), arrives_s, direction, ip_len, kind, flow))
    packets.sort(key=lambda item: item[0])
    return Crossing(
        link=link.name,
        ends=list(link.ends),
        flows=[flow.name for flow in workload],
        directions={
            way: Side(rate_bps=side.rate_bps, delay_s=side.delay_s, queue=side.queue.name)
            for way, side in link.directions()
        },
        packets=packets[:MOST],
        cut=len(packets) > MOST,
    )


def _arrivals(going: pl.DataFrame, coming: pl.DataFrame, slack_s: float) -> dict[int, float]:
    """When each transmission arrived, by its row; one without an arrival was lost.

    Only time distinguishes copies of a segment: the last arrival belongs to the latest transmission before it, and so
    on backwards. A segment that was dropped and retransmitted is therefore lost once, where it was dropped.
    """
    sendings: dict[tuple[object, ...], list[tuple[float, int]]] = {}
    for number, row in enumerate(going.iter_rows()):
        sendings.setdefault(row[KEY], []).append((row[0], number))
    arrivals: dict[int, float] = {}
    for row in reversed(list(coming.iter_rows())):
        copies = sendings.get(row[KEY], [])
        del copies[bisect_right(copies, row[0], key=lambda item: item[0]) :]
        if copies and row[0] - copies[-1][0] <= slack_s:
            arrivals[copies.pop()[1]] = row[0]
    return arrivals


def _going(
    data: RunData, seen: pl.DataFrame, left: Collection[str], ends: Mapping[str, str], direction: int
) -> pl.DataFrame:
    """Segments in one direction of the link, with the columns that identify each at both ends."""
    named = seen.join(data.connections.select("conn", "file", *ENDS, "listening_port"), on=["conn", "file"])
    on_left = pl.col("client").replace_strict({address: node in left for address, node in ends.items()}, default=True)
    # The client's packets are `dir` 0; they go forward if the client is on the near side.
    forward = pl.when(pl.col("dir") == 0).then(on_left).otherwise(~on_left)
    chosen = named.filter(forward if direction == 0 else ~forward).sort("t_s", maintain_order=True)
    return chosen.select(
        "t_s",
        *ENDS,
        "dir",
        "seq",
        "ack",
        "payload",
        "ip_len",
        is_a(RETRANSMISSION).alias("again"),
        is_a(DATA).alias("data"),
        "listening_port",
    )


def distances(start: str, names: Iterable[str], links: Iterable[LinkSpec]) -> dict[str, int]:
    """Nodes that are reached from one over these links, and over how many."""
    beside: dict[str, list[str]] = {name: [] for name in names}
    for link in links:
        for end in link.ends:
            beside[end] += [other for other in link.ends if other != end]
    found, todo = {start: 0}, deque([start])
    while todo:
        here = todo.popleft()
        for other in beside[here]:
            if other not in found:
                found[other] = found[here] + 1
                todo.append(other)
    return found


def _longest_s(link: LinkSpec) -> float:
    """The longest time in s that a packet takes through a full queue and over the link; 30 s at most."""
    longest = 0.0
    for _, side in link.directions():
        packets = side.queue.options.get("limit_packets") or 100
        per_packet_s = 1500 * 8 / side.rate_bps if side.rate_bps else 0.0
        longest = max(longest, side.delay_s + (packets + 1) * per_packet_s)
    return min(longest + 0.5, 30.0)
