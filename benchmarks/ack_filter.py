"""CAKE's ack filter and ours, packet by packet, on the same arrivals.

    ./backchannel bench ack-filter [--rate 24000] [--seed 7]

The acks of one CUBIC download over a lossy line are recorded in virtual time. Then each queue gets these very packets
at these very times, with a line behind it that is too slow for them: CAKE without a filter, with `ack-filter` and with
`ack-filter-aggressive` (each without queue management, as its round-trip time is set to 1000 s), our droptail, and our
ack filtering without and with `filter_sack`. Packets are told apart by their bytes, so that every one is known to have
been passed or not.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from experiments.language.campaign import load
from testbed import pcap
from testbed.scenario import Scenario
from testbed.virtual_kernel import kernels
from testbed.virtual_kernel.build import build
from testbed.virtual_kernel.machine import VirtualMachine

HERE = Path(__file__).resolve().parent
REPLAY = HERE.parent / "experiments/programs/replay.py"
#: Virtual seconds of the download, and after which a replay has emptied every queue.
RECORDED_S, DRAINED_S = 6.0, 50.0
RECORDED = """
name: recorded
backend: virtual-kernel
network:
  topology: line
  forward: {{rate: 4 Mbit/s, delay: 20 ms}}
  reverse:
    rate: 4 Mbit/s
    delay: 20 ms
    queue: {{policy: droptail, limit: 50 packets}}
    errors: [{{model: uniform, probability: 0.01}}]
stack: cubic
workload:
  - {{name: download, from: right, to: left}}
duration: {duration_s} s
repetitions: 1
variation: none
seed: {seed}
capture: {{snaplen: 200 B, at: ["left:line"]}}
"""
REPLAYED = """
name: replayed
backend: virtual-kernel
network:
  topology: line
  link: {link}
  forward: {{rate: {rate_bps} bit/s, delay: 1 ms{queue}}}
  reverse: {{rate: 4 Mbit/s, delay: 1 ms}}
stack: cubic
workload:
  - name: arrivals
    kind: command
    from: left
    to: right
    command: {{client_at: from, client: [python3, replay.py, "{drained_s}"], files: [replay.py, arrivals.txt]}}
duration: {duration_s} s
repetitions: 1
variation: none
seed: {seed}
capture: {{snaplen: 200 B, at: ["right:line"]}}
"""
#: Name to link and queue. A queue of ours is as long as all arrivals, so that it drops none.
CAKE = "{{kind: kernel, shaper: cake, rtt: 1000 s{}}}".format
OURS = ", queue: {{policy: {}, limit: 10000 packets{}}}".format
VARIANTS = {
    "droptail": ("point-to-point", OURS("droptail", "")),
    "ours": ("point-to-point", OURS("ack-filtering", "")),
    "ours, SACK": ("point-to-point", OURS("ack-filtering", ", filter_sack: true")),
    "CAKE": (CAKE(""), ""),
    "CAKE, filter": (CAKE(", ack_filter: filter"), ""),
    "CAKE, aggressive": (CAKE(", ack_filter: aggressive"), ""),
}


OWN_FILTERS, CAKES = ("ours", "ours, SACK"), ("CAKE, filter", "CAKE, aggressive")

#: Time since the first departure in s, and bytes, of every packet that left a queue.
Departures = list[tuple[float, bytes]]


@dataclass(frozen=True)
class Ack:
    """A pure ack that arrives at the queue."""

    #: Since the first one.
    at_s: float
    #: From the IP header on.
    data: bytes

    @property
    def number(self) -> int:
        """The acknowledgment number."""
        return int.from_bytes(self.data[28:32])

    @property
    def has_sack(self) -> bool:
        """Whether it has SACK blocks; the kernel's acks have them behind their time stamps."""
        return self.data[32] >> 4 > 8


def run(scenario: Scenario, folder: Path, kernel: kernels.Kernel) -> list[pcap.Record]:
    """The records of the run's one capture."""
    report = VirtualMachine(kernel).run(scenario, folder, lambda progress: None)
    (capture,) = report.captures
    return list(pcap.records((folder / "captures" / capture.path).read_bytes()))


def network_layer(record: pcap.Record) -> bytes:
    """Without the Ethernet header and its padding."""
    data = record.data[14:]
    return data[: int.from_bytes(data[2:4])]


def record_acks(folder: Path, seed: int, kernel: kernels.Kernel) -> list[Ack]:
    """The acks of the download, in order."""
    file = folder / "recorded.yaml"
    file.write_text(RECORDED.format(duration_s=RECORDED_S, seed=seed))
    scenario = load(file).runs[0].scenario
    acks: list[tuple[int, bytes]] = []
    for record in run(scenario, folder / "recorded", kernel):
        data = network_layer(record)
        # From port 5001, with the ACK flag alone and no data.
        is_of_download = len(data) >= 40 and data[20:22] == (5001).to_bytes(2)
        if is_of_download and data[33] == 0x10 and len(data) == 20 + (data[32] >> 4) * 4:
            acks.append((record.time_ns, data))
    return [Ack((time_ns - acks[0][0]) / 1e9, data) for time_ns, data in acks]


def replayed(folder: Path, link: str, queue: str, rate_bps: int, drained_s: float, seed: int = 1) -> Scenario:
    """The scenario that sends what the folder's arrivals.txt has through a queue."""
    (folder / "replay.py").write_bytes(REPLAY.read_bytes())
    file = folder / "replayed.yaml"
    times = {"drained_s": drained_s, "duration_s": drained_s + 5}
    file.write_text(REPLAYED.format(link=link, queue=queue, rate_bps=rate_bps, seed=seed, **times))
    return load(file).runs[0].scenario


def replay(folder: Path, acks: Sequence[Ack], name: str, rate_bps: int, kernel: kernels.Kernel) -> Departures:
    """What left the queue `name`."""
    (folder / "arrivals.txt").write_text("".join(f"{ack.at_s:.9f} {ack.data.hex()}\n" for ack in acks))
    scenario = replayed(folder, *VARIANTS[name], rate_bps, DRAINED_S)
    sent = {ack.data for ack in acks}
    left = [(record.time_ns, network_layer(record)) for record in run(scenario, folder / name, kernel)]
    return [((time_ns - left[0][0]) / 1e9, data) for time_ns, data in left if data in sent]


def staleness_s(acks: Sequence[Ack], departures: Departures) -> float:
    """Mean time from the arrival of an ack until the far side knows its number, from it or a later one.

    It is counted beyond that of the first ack, which finds the queue empty.
    """
    waits = []
    known = iter(departures)
    at_s, data = next(known)
    for ack in acks:
        while (int.from_bytes(data[28:32]) - ack.number) % 2**32 >= 2**31:
            at_s, data = next(known)
        waits.append(max(at_s - ack.at_s, 0.0))
    return fmean(waits)


def kinds(acks: Sequence[Ack]) -> dict[bytes, str]:
    """What each ack is, by its bytes."""
    found = {acks[0].data: "advances"}
    for before, ack in pairwise(acks):
        advances = "advances" if ack.number != before.number else "repeats"
        found[ack.data] = "with SACK" if ack.has_sack else advances
    return found


def tell_passed(acks: Sequence[Ack], left: Mapping[str, Departures], of: Mapping[bytes, str]) -> None:
    """How many acks of each kind every queue passed, and how late."""
    groups = Counter(of.values())
    titles = "".join(f"{f'{name} ({count})':>18}" for name, count in groups.items())
    print(f"{'passed':<18}{titles}{'in order':>10}{'last one after':>16}{'number known after':>20}")
    place = {ack.data: number for number, ack in enumerate(acks)}
    for name, departures in left.items():
        passed = Counter(of[data] for _, data in departures)
        places = [place[data] for _, data in departures]
        counts = "".join(f"{passed[group]:>18}" for group in groups)
        order = "yes" if places == sorted(places) else "no"
        late_s = staleness_s(acks, departures)
        print(f"{name:<18}{counts}{order:>10}{departures[-1][0]:>14.2f} s{late_s:>18.3f} s")


def tell_pairs(left: Mapping[str, Departures], of: Mapping[bytes, str]) -> None:
    """Which acks CAKE and ours agree on."""
    kept = {name: {data for _, data in departures} for name, departures in left.items()}
    for ours in OWN_FILTERS:
        print(f"\n{f'beside {ours!r}':<30}{'both pass':>12}{'only CAKE':>12}{'only ours':>12}{'neither':>12}")
        for name in CAKES:
            for group in dict.fromkeys(of.values()):
                own = {data for data, kind in of.items() if kind == group}
                its, our = kept[name] & own, kept[ours] & own
                counts = (its & our, its - our, our - its, own - its - our)
                print(f"{f'{name}: {group}':<30}" + "".join(f"{len(count):>12}" for count in counts))


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description="CAKE's ack filter and ours on the same arrivals.")
    parser.add_argument(
        "--rate", type=int, default=24_000, help="of the line behind the queue, in bit/s (default 24000)"
    )
    parser.add_argument("--seed", type=int, default=7, help="of the recorded download (default 7)")
    options = parser.parse_args()
    kernel = build(kernels.DEFAULT, print)
    with tempfile.TemporaryDirectory(prefix="backchannel-ack-filter-") as text:
        folder = Path(text)
        acks = record_acks(folder, options.seed, kernel)
        left = {name: replay(folder, acks, name, options.rate, kernel) for name in VARIANTS}
    of = kinds(acks)
    if len(of) != len(acks):
        raise SystemExit(f"{len(acks) - len(of)} acks have the bytes of another: they cannot be told apart")
    carried = sum(len(ack.data) for ack in acks)
    print(f"{len(acks)} acks in {acks[-1].at_s:.1f} s, {carried} bytes; the line has {options.rate} bit/s\n")
    tell_passed(acks, left, of)
    tell_pairs(left, of)


if __name__ == "__main__":
    main()
