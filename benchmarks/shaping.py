"""How exactly links keep their rate, and how late packets leave: the emulator beside HTB, TBF and netem.

    ./backchannel bench shaping [--seconds N] [--rounds N] [--only RATE ...]

A UDP flood of 1.2 times the rate goes through each for some seconds (20), in some rounds (3). The rate is counted by
the receiving kernel's time stamps. Lateness is the emulator's own, against its ideal timeline, beside that of a bare
timerfd that runs at the same time. The second table has the emulator's CPU time for a packet while idle links, busy
links and queues grow. Every program runs in one cell.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

from analysis.estimates import Bounds
from benchmarks.ends import ADDRESSES, Ends, run_in_cell
from benchmarks.repeats import shown
from testbed import kernel_links
from testbed.emulator_process import Emulator, LinkEnd
from testbed.errors import TestbedError
from testbed.local_folders import ScratchFolder
from testbed.scenario import DirectionSpec, LinkSpec
from tests.support.waiting import cpu_s

HERE = Path(__file__).resolve().parent
RATES: dict[str, int] = {
    "9.6 kbit/s": 9_600,
    "28.8 kbit/s": 28_800,
    "1 Mbit/s": 1_000_000,
    "10 Mbit/s": 10_000_000,
    "100 Mbit/s": 100_000_000,
    "1 Gbit/s": 1_000_000_000,
}
SHAPERS = ("emulator", "htb", "tbf", "netem")
DEEP = {"name": "droptail", "options": {"limit_packets": 100}}


def spec(name: str, rate_bps: int | None, queue: dict[str, Any] = DEEP) -> LinkSpec:
    """A line of this rate both ways."""
    direction: dict[str, Any] = {"queue": queue} | ({"rate_bps": rate_bps} if rate_bps else {})
    line = {"name": name, "kind": "point-to-point", "ends": ["a", "b"], "forward": direction, "reverse": direction}
    return LinkSpec.read(line)


class KernelLine:
    """A veth pair that tc shapes at its first end."""

    def __init__(self, ends: Ends, shaper: str, rate_bps: int) -> None:
        ends.add_veth()
        direction = DirectionSpec.read({"rate_bps": rate_bps, "queue": DEEP})
        lines, _ = kernel_links.commands(direction, {"shaper": shaper}, "tap0", "tap1")
        for line in lines:
            done = ends.run(0, "tc", *line.split(), stderr=subprocess.PIPE)
            if done.wait():
                assert done.stderr is not None
                raise TestbedError(done.stderr.read().strip().splitlines()[0])

    def close(self) -> dict[str, Any]:
        """It goes with its namespaces."""
        return {}


class OurLine:
    """The emulator's."""

    def __init__(self, ends: Ends, rate_bps: int, folder: Path) -> None:
        taps = [LinkEnd(holder.pid, f"tap{end}") for end, holder in enumerate(ends.holders)]
        self._emulator = Emulator(folder / "emulator.log")
        self._emulator.add_link(spec("line", rate_bps), taps)
        self._emulator.start()

    def close(self) -> dict[str, Any]:
        """Ends it; its report of the busy direction."""
        report = self._emulator.stop()
        self._emulator.close()
        return report.links["line"]["forward"].as_json()


def measure(shaper: str, rate_bps: int, seconds: float, folder: Path) -> dict[str, Any]:
    """Rate error, and lateness where there is one, of one shaper at one rate.

    Raises:
        TestbedError: the kernel has no such shaper.
    """
    # Short packets on slow lines, so that there are some.
    size = 1500 if rate_bps >= 1_000_000 else 200
    blaster = str(folder / "blaster")
    ends = Ends()
    line: KernelLine | OurLine | None = None
    try:
        line = OurLine(ends, rate_bps, folder) if shaper == "emulator" else KernelLine(ends, shaper, rate_bps)
        ends.configure()
        piped: dict[str, Any] = {"stdout": subprocess.PIPE}
        receiver = ends.run(1, blaster, "receive", ADDRESSES[1], "5001", str(seconds), **piped)
        assert receiver.stdout is not None
        receiver.stdout.readline()
        timer = subprocess.Popen([blaster, "timer", str(seconds)], text=True, **piped)
        flood = [ADDRESSES[1], "5001", str(size), str(round(1.2 * rate_bps)), str(seconds + 0.5)]
        sender = ends.run(0, blaster, "send", *flood)
        counted = json.loads(receiver.communicate(timeout=seconds + 60)[0])
        sender.wait(timeout=60)
        bare = json.loads(timer.communicate(timeout=60)[0])
        report = line.close()
        line = None
    finally:
        if line is not None:
            line.close()
        ends.close()
    got_bps = counted["packets"] * counted["bytes"] * 8 / counted["seconds"]
    return {
        "error": got_bps / rate_bps - 1,
        "busy_error": report.get("rate_error"),
        "lateness": report.get("lateness_s"),
        "timer": bare,
        "packets": counted["packets"],
    }


def rates(seconds: float, rounds: int, wanted: list[str], folder: Path) -> None:
    """The first table: mean errors of the rate with their half-widths, and medians over the rounds of lateness."""
    absent: dict[str, str] = {}
    for name in wanted:
        print(f"{name}:")
        for shaper in SHAPERS:
            try:
                if shaper in absent:
                    raise TestbedError(absent[shaper])
                got = [measure(shaper, RATES[name], seconds, folder) for _ in range(rounds)]
            except TestbedError as error:
                absent[shaper] = str(error)
                continue
            errors = shown([entry["error"] * 1e4 for entry in got], bounds=Bounds())
            line = f"  {shaper:<9} rate error in 1/10000: {errors}"
            if shaper == "emulator":
                busy = [entry["busy_error"] * 1e4 for entry in got if entry["busy_error"] is not None]
                line += f"; while busy: {shown(busy, bounds=Bounds())}" if busy else ""
                for key, title in (("lateness", "lateness"), ("timer", "bare timer")):
                    for q in ("p50", "p99"):
                        line += f"\n            {title} {q} (us): {shown([entry[key][q] * 1e6 for entry in got])}"
            print(line, flush=True)
    for shaper, why in absent.items():
        print(f"{shaper} is absent: {why}")


def cost(links: int, busy: int, waiting: int, folder: Path, seconds: float) -> float:
    """CPU seconds of the emulator for a packet: `links` in all, `busy` of which share a load; `waiting` in a queue."""
    ends = Ends()
    emulator = Emulator(folder / "emulator.log")
    try:
        for number in range(links):
            taps = [
                LinkEnd(holder.pid, f"t{number}x{end}" if number else f"tap{end}")
                for end, holder in enumerate(ends.holders)
            ]
            queue = {"name": "ack-filtering", "options": {"limit_packets": max(waiting, 1)}}
            emulator.add_link(
                spec(f"line{number}", 40_000_000 // busy if waiting else None, queue if waiting else DEEP), taps
            )
        ends.configure()
        for number in range(1, busy):
            for end in (0, 1):
                done = ends.run(
                    end,
                    "sh",
                    "-c",
                    f"ip address add 10.10.{number}.{end + 1}/24 dev t{number}x{end} && ip link set t{number}x{end} up",
                )
                done.wait()
        emulator.start()
        blaster = str(folder / "blaster")
        before = cpu_s(emulator.pid)
        load_bps = 48_000_000
        # So that the kernel has no reason for ICMP.
        sink = ends.run(1, blaster, "receive", "0.0.0.0", "5001", str(seconds + 2), stdout=subprocess.PIPE)
        assert sink.stdout is not None
        sink.stdout.readline()
        senders = []
        for number in range(busy):
            to = ADDRESSES[1] if number == 0 else f"10.10.{number}.2"
            senders.append(ends.run(0, blaster, "send", to, "5001", "600", str(load_bps // busy), str(seconds)))
        for sender in senders:
            sender.wait()
        used = cpu_s(emulator.pid) - before
        report = emulator.stop()
        sink.communicate()
        packets = sum(link["forward"].submitted_packets for link in report.links.values())
        return used / packets
    finally:
        emulator.close()
        ends.close()


def costs(seconds: float, rounds: int, folder: Path) -> None:
    """The second table."""
    print()
    print("CPU time of the emulator for a packet (600 bytes, 10 000 a second), in us, and relative to the first line")
    base: list[float] = []
    for title, (links, busy, waiting) in {
        "1 link": (1, 1, 0),
        "10 links, 1 busy": (10, 1, 0),
        "100 links, 1 busy": (100, 1, 0),
        "10 links, 10 busy": (10, 10, 0),
        "1 link, 10 packets wait": (1, 1, 10),
        "1 link, 10 000 packets wait": (1, 1, 10_000),
    }.items():
        got = [cost(links, busy, waiting, folder, seconds) * 1e6 for _ in range(rounds)]
        if not base or title.endswith("10 packets wait"):
            # A line with a queue has a timer for each packet beside.
            base = got
        ratios = [entry / other for entry, other in zip(got, base, strict=True)]
        print(f"{title:<30} {shown(got):>24} {shown(ratios):>24}", flush=True)


def inside(seconds: float, rounds: int, wanted: list[str]) -> None:
    """The measurements, in a cell."""
    with ScratchFolder() as folder:
        source, program = str(HERE / "blaster.c"), str(folder / "blaster")
        subprocess.run(["gcc", "-O2", "-o", program, source], check=True)
        rates(seconds, rounds, wanted, folder)
        costs(min(seconds, 5.0), rounds, folder)


def main() -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description="Rate and lateness of links, beside the kernel's shapers.")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a flood (20)")
    parser.add_argument("--rounds", type=int, default=3, help="floods of each (3)")
    parser.add_argument("--only", choices=RATES, action="append", help="a rate; repeatable")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        inside(args.seconds, args.rounds, args.only or list(RATES))
        return
    run_in_cell()


if __name__ == "__main__":
    main()
