"""FQ-CoDel, PIE, DualPI2 and CAKE of Linux and of this project on the same arrivals.

    ./backchannel bench queues [--seeds 5] [--queue pie]

Datagrams of three flows arrive at a line of 2 Mbit/s at times that a seed draws: two flows that together offer 1.3
times the line for two seconds and 0.7 times it for the next two, again and again, and one that sends little. The very
same packets go to the kernel's queueing discipline below HTB (CAKE shapes by itself) and to this project's policy on
the emulated line, both in virtual time. Which packets left, marked or not, and how long each waited is known by a
number in each. What the two queues do is compared as means over the seeds: their random numbers differ.
"""

from __future__ import annotations

import argparse
import ipaddress
import random
import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from analysis.estimates import AT_LEAST_0, Estimate
from benchmarks.ack_filter import network_layer, replayed, run
from testbed.addressing import interfaces, make_plan
from testbed.scenario import Scenario
from testbed.virtual_kernel import kernels
from testbed.virtual_kernel.build import build

RATE_BPS = 2_000_000
#: Seconds of arrivals, of each load in turn, and after which every queue is empty.
ARRIVALS_S, PHASE_S, DRAINED_S = 16.0, 2.0, 22.0
#: Offered load of the two large flows in turn, of the line.
LOADS = (1.3, 0.7)
#: By flow: bytes of a packet, share of the load of the large flows, and the two ECN bits. The small one has one each
#: 50 ms on average, whatever the load.
FLOWS = {"large": (1000, 0.6, 0), "L4S": (1000, 0.4, 1), "small": (200, 0.0, 0)}
SMALL_INTERVAL_S = 0.05


@dataclass(frozen=True)
class Side:
    """A queue as campaigns have it, with the link before which it stands."""

    queue: str
    link: str
    rate_bps: int = RATE_BPS

    @property
    def taken_when_ended(self) -> bool:
        """Whether the link delivers a packet when its transmission has ended; kernels do so when it may begin."""
        return self.link == LINE


HTB, LINE = "{kind: kernel, shaper: htb, burst: 1 B}", "point-to-point"
#: Behind our shaper, so fast that it does not count.
FAST_BPS = 1_000_000_000
#: Linux's queue and ours. CoDel's target exceeds a packet's 4 ms. L4S is marked by a step.
QUEUES = {
    # What the shapers alone do.
    "droptail": (
        Side("{policy: droptail, limit: 1000 packets}", HTB),
        Side("{policy: droptail, limit: 1000 packets}", LINE),
    ),
    "fq-codel": (
        Side("{policy: fq-codel, target: 10 ms, ecn: false}", HTB),
        Side("{policy: fq-codel, target: 10 ms, ecn: false}", LINE),
    ),
    # The kernel's timer has ticks of 10 ms in virtual time, which would make 20 ms of the RFC's 15.
    "pie": (Side("{policy: pie, tupdate: 20 ms}", HTB), Side("{policy: pie, tupdate: 20 ms}", LINE)),
    "dual-pi2": (
        Side("{policy: dualpi2, step_threshold: 10 ms}", HTB),
        Side("{policy: dual-pi2, min_threshold: 10 ms, range: 0 s}", LINE),
    ),
    # Without overhead: the size table of kernel links takes the Ethernet header off what CAKE counts.
    "cake": (
        Side("", "{kind: kernel, shaper: cake}"),
        Side(f"{{policy: cake, rate: {RATE_BPS} bit/s}}", LINE, FAST_BPS),
    ),
}


@dataclass(frozen=True)
class Arrival:
    """A datagram that arrives at the queue."""

    at_s: float
    flow: str


def arrivals(seed: int) -> list[Arrival]:
    """The datagrams of a seed, in order."""
    drawn = random.Random(seed)
    found = []
    for name, (size, share, _) in FLOWS.items():
        at_s = 0.0
        while True:
            load = LOADS[int(at_s / PHASE_S) % len(LOADS)]
            at_s += drawn.expovariate(share * load * RATE_BPS / (8 * size) if share else 1 / SMALL_INTERVAL_S)
            if at_s >= ARRIVALS_S:
                break
            found.append(Arrival(at_s, name))
    return sorted(found, key=lambda arrival: arrival.at_s)


def datagram(number: int, flow: str, source: str, destination: str) -> bytes:
    """An IPv4 datagram that has its number behind the UDP header."""
    size, _, ecn = FLOWS[flow]
    addresses = b"".join(ipaddress.ip_address(address).packed for address in (source, destination))
    header = struct.pack("!BBHHHBBH", 0x45, ecn, size, number & 0xFFFF, 0, 64, 17, 0) + addresses
    udp = struct.pack("!HHHH", 6000 + list(FLOWS).index(flow), 6000, size - 20, 0)
    return (header + udp + struct.pack("!I", number)).ljust(size, b"\0")


def write_arrivals(folder: Path, packets: Sequence[Arrival], scenario: Scenario) -> None:
    """The file that replay.py reads."""
    ends = interfaces(make_plan(scenario.nodes, scenario.links))
    source, destination = (next(end.address for end in ends if end.node == node) for node in ("left", "right"))
    lines = (
        f"{packet.at_s:.9f} {datagram(number, packet.flow, source, destination).hex()}\n"
        for number, packet in enumerate(packets)
    )
    (folder / "arrivals.txt").write_text("".join(lines))


@dataclass(frozen=True)
class Left:
    """A datagram that left the queue."""

    flow: str
    #: Until its transmission began, beyond that of the first one, which found the queue empty.
    wait_s: float
    is_marked: bool


def replay(folder: Path, packets: Sequence[Arrival], side: Side, seed: int, kernel: kernels.Kernel) -> list[Left]:
    """What left a queue."""
    folder.mkdir()
    (folder / "arrivals.txt").touch()
    place = (side.link, f", queue: {side.queue}" if side.queue else "", side.rate_bps)
    # The addresses in the arrivals are the scenario's, which holds their file.
    write_arrivals(folder, packets, replayed(folder, *place, DRAINED_S, seed))
    left = []
    for record in run(replayed(folder, *place, DRAINED_S, seed), folder / "run", kernel):
        data = network_layer(record)
        if data[9] == 17 and data[22:24] == (6000).to_bytes(2):
            bits = 8 * int.from_bytes(data[2:4])
            taken_ns = bits * 1_000_000_000 // side.rate_bps if side.taken_when_ended else 0
            left.append((record.time_ns - taken_ns, int.from_bytes(data[28:32]), data[1] & 3))
    first_ns, first, _ = left[0]
    sent_s = [packet.at_s for packet in packets]
    return [
        Left(packets[number].flow, (time_ns - first_ns) / 1e9 - (sent_s[number] - sent_s[first]), ecn == 3)
        for time_ns, number, ecn in left
    ]


def figures(packets: Sequence[Arrival], left: Sequence[Left]) -> Iterator[tuple[str, float]]:
    """What a queue did with each flow: shares in percent, waits in ms."""
    for flow in FLOWS:
        arrived = sum(packet.flow == flow for packet in packets)
        passed = [packet for packet in left if packet.flow == flow]
        yield f"{flow}: dropped, %", 100 * (1 - len(passed) / arrived)
        if FLOWS[flow][2]:
            yield f"{flow}: marked, %", 100 * sum(packet.is_marked for packet in passed) / arrived
        yield f"{flow}: mean wait, ms", 1000 * fmean(packet.wait_s for packet in passed)


def compare(name: str, seeds: int, kernel: kernels.Kernel, folder: Path) -> None:
    """Prints the table of a queue."""
    values: dict[str, list[tuple[float, float]]] = {}
    for seed in range(1, seeds + 1):
        packets = arrivals(seed)
        pair: list[Mapping[str, float]] = []
        for side in QUEUES[name]:
            left = replay(folder / f"{name}-{seed}-{len(pair)}", packets, side, seed, kernel)
            pair.append(dict(figures(packets, left)))
        for figure, value in pair[0].items():
            values.setdefault(figure, []).append((value, pair[1][figure]))
    print(f"\n| {name} | Linux | ours | ours less Linux |\n|---|---|---|---|")
    for figure, pairs in values.items():
        of_linux, of_ours = (Estimate(tuple(side), AT_LEAST_0).text("number") for side in zip(*pairs, strict=True))
        differences = tuple(ours - linux for linux, ours in pairs)
        difference = Estimate(differences).text("number")
        print(f"| {figure} | {of_linux} | {of_ours} | {difference} |")


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description="Queues of Linux and of this project on the same arrivals.")
    parser.add_argument("--seeds", type=int, default=5, help="sequences of arrivals (default 5)")
    parser.add_argument("--queue", action="append", choices=QUEUES, help="only this queue; may be repeated")
    options = parser.parse_args()
    kernel = build(kernels.DEFAULT, print)
    count = len(arrivals(1))
    print(f"Linux {kernel.name}, {options.seeds} seeds, {count} packets in {ARRIVALS_S:g} s with seed 1")
    with tempfile.TemporaryDirectory(prefix="backchannel-queues-") as text:
        for name in options.queue or QUEUES:
            compare(name, options.seeds, kernel, Path(text))


if __name__ == "__main__":
    main()
