"""TCP through two TAP interfaces: a bare copier between them, then our emulator, then our own stack at either end.

    ./backchannel bench tap

Each line is one bulk flow for some seconds, every program of it in this cell, in several rounds. The copier, one frame
a read and one a write, is a yardstick and no upper bound: a carrier that polls longer can be faster. Ratios are of
flows of one round. The emulator's line has neither rate nor delay, so that what is left is its own cost.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from pathlib import Path

from benchmarks.ends import ADDRESSES, MACS, Ends, bulk_receiver, bulk_sender, run_in_cell
from benchmarks.repeats import shown
from benchmarks.shaping import spec
from benchmarks.usage import used_s
from testbed.emulator_process import Emulator, LinkEnd
from testbed.local_folders import ScratchFolder

HERE = Path(__file__).resolve().parent
STACK = "modern"
MINUTE_S = 60.0


class Copier:
    """The bare one."""

    def __init__(self, ends: Ends, program: Path) -> None:
        words = [str(program)]
        for end, holder in enumerate(ends.holders):
            words += [str(holder.pid), f"tap{end}"]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def close(self) -> None:
        """Ends it; its interfaces go with it."""
        self._process.kill()
        self._process.wait()


class Ours:
    """The emulator, with a line that only carries."""

    def __init__(self, ends: Ends, folder: Path) -> None:
        taps = [LinkEnd(holder.pid, f"tap{end}") for end, holder in enumerate(ends.holders)]
        self._emulator = Emulator(folder / "emulator.log")
        self._emulator.add_link(spec("line", None, {"name": "droptail", "options": {}}), taps)
        self._emulator.start()

    def close(self) -> None:
        """Ends it; its interfaces go with it."""
        self._emulator.close()


def words_of(end: int, kernel: bool, stop_ns: int = 0) -> list[str]:
    """The traffic program of one end: 0 sends, 1 receives."""
    words = bulk_receiver(*ADDRESSES[::-1]) if end else bulk_sender(*ADDRESSES, stop_ns)
    if kernel:
        return [*words, "--congestion=reno"]
    return [
        *words,
        f"--interface=tap{end}",
        f"--mac={MACS[end]}",
        f"--next-hop-mac={MACS[1 - end]}",
        f"--stack={STACK}",
    ]


def measure(carrier: str, kernels: tuple[bool, bool], seconds: float, folder: Path) -> dict[str, float]:
    """Gbit/s of payload at the receiver, and CPU seconds of a second: of the sender, the receiver, the carrier."""
    ends = Ends()
    line = Copier(ends, folder / "copier") if carrier == "copier" else Ours(ends, folder)
    try:
        ends.configure(kernels)
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        receiver = ends.run(1, *words_of(1, kernels[1]), **piped)
        assert receiver.stderr is not None
        receiver.stderr.readline()
        stop_ns = time.monotonic_ns() + round(seconds * 1e9)
        before_s = used_s()
        sender = ends.run(0, *words_of(0, kernels[0], stop_ns), **piped)
        sender.communicate(timeout=MINUTE_S)
        sent_s = used_s()
        said, trouble = receiver.communicate(timeout=MINUTE_S)
        received_s = used_s()
    finally:
        before_carrier_s = used_s()
        line.close()
        after_carrier_s = used_s()
        ends.close()
    if receiver.returncode or sender.returncode:
        raise SystemExit(f"a traffic program failed: {trouble}")
    report = json.loads(said)
    if not report["payload_ok"]:
        raise SystemExit("the bytes received are not those sent")
    return {
        "gbps": report["bytes"] * 8 / seconds / 1e9,
        "sender": (sent_s - before_s) / seconds,
        "receiver": (received_s - sent_s) / seconds,
        "carrier": (after_carrier_s - before_carrier_s) / seconds,
    }


def inside(seconds: float, rounds: int) -> None:
    """The measurements, in a cell."""
    with ScratchFolder() as folder:
        source, program = str(HERE / "copier.c"), str(folder / "copier")
        subprocess.run(["gcc", "-O2", "-o", program, source], check=True)
        cases = [
            ("copier, kernel to kernel", "copier", (True, True)),
            ("emulator, kernel to kernel", "emulator", (True, True)),
            ("emulator, ours to kernel", "emulator", (False, True)),
            ("emulator, kernel to ours", "emulator", (True, False)),
            ("emulator, ours to ours", "emulator", (False, False)),
        ]
        result: dict[str, list[dict[str, float]]] = {name: [] for name, *_ in cases}
        for _ in range(rounds):
            for name, carrier, kernels in cases:
                result[name].append(measure(carrier, kernels, seconds, folder))
        copier = [got["gbps"] for got in result[cases[0][0]]]
        print(f"{'':<30} {'Gbit/s':>22} {'to the copier':>22}   CPU of sender, receiver, carrier")
        for name, rows in result.items():
            rates = [got["gbps"] for got in rows]
            ratios = [rate / other for rate, other in zip(rates, copier, strict=True)]
            shares = "; ".join(
                shown([got[part] * 100 for got in rows], "%") for part in ("sender", "receiver", "carrier")
            )
            print(f"{name:<30} {shown(rates):>22} {shown(ratios):>22}   {shares}")


def main() -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description="One TCP flow through two TAP interfaces.")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a flow (5)")
    parser.add_argument("--rounds", type=int, default=5, help="flows of each kind (5)")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        inside(args.seconds, args.rounds)
        return
    run_in_cell()


if __name__ == "__main__":
    main()
