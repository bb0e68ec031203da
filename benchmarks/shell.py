"""What `./backchannel shell` costs beside a bare pair of interfaces, in the same rounds.

    ./backchannel bench shell [--seconds 5] [--rounds 5]

In every round each subject starts once and runs the same program behind its line, which pings the other side and sends
one TCP flow (Reno). Everything runs in one cell.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from agents.kernel import offload_command
from benchmarks.ends import ADDRESSES, Ends, bulk_receiver, bulk_sender, run_in_cell
from benchmarks.repeats import shown
from testbed import node_binary
from testbed.local_folders import ScratchFolder

PINGS, PING_INTERVAL_S = 400, 0.005
PATIENCE_S = 60.0
#: A line that delays nothing, with a queue of 1000 packets.
LINE = """\
name: bench-shell
network:
  topology: line
  forward: {{{rate} delay: 0 s, queue: {{policy: droptail, limit: 1000 packets}}}}
  reverse: {{{rate} delay: 0 s, queue: {{policy: droptail, limit: 1000 packets}}}}
stack: reno
workload: [{{name: bulk, from: left, to: right}}]
duration: 1 s
"""


@dataclass(frozen=True)
class Measured:
    """One subject in one round."""

    start_s: float
    rtts_s: Sequence[float]
    rate_bps: float

    def rtt_s(self, share: float) -> float:
        """A quantile of the round-trip times."""
        ordered = sorted(self.rtts_s)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def behind(name: str, ready: Path, seconds: float) -> None:
    """The program behind the line: pings, and sends as soon as the other side listens; prints the round-trip times."""
    peer = socket.gethostbyname(name)
    words = ["ping", "-n", "-i", str(PING_INTERVAL_S), "-c", str(PINGS), peer]
    answered = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    rtts = [
        float(line.rpartition("time=")[2].split()[0]) / 1000 for line in answered.stdout.splitlines() if "time=" in line
    ]
    deadline = time.monotonic() + PATIENCE_S
    while not ready.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    stop_ns = time.monotonic_ns() + round(seconds * 1e9)
    sending = [*bulk_sender("0.0.0.0", peer, stop_ns), "--congestion=reno"]
    sent = subprocess.run(sending, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    print(json.dumps({"rtts": rtts, "trouble": answered.stderr + sent.stderr}), flush=True)


class Subject:
    """A line: how to start the program behind it, and its other side.

    Args:
        folder: for a file that says that the other side listens.
        command: what starts `behind`, given its peer and the words of Python before it.
        far: words before a program on the other side, given the process that runs the command.
    """

    def __init__(
        self, folder: Path, command: Callable[[list[str]], list[str]], far: Callable[[int], list[str]], peer: str
    ) -> None:
        self._ready = folder / "ready"
        self._command = command
        self._far = far
        self._peer = peer

    def measure(self, seconds: float) -> Measured:
        """Starts it once."""
        # A shell's programs do not have the launcher's variables.
        words = [
            "env",
            f"PYTHONPATH={node_binary.ROOT}",
            f"BACKCHANNEL_NODE={node_binary.path()}",
            sys.executable,
            str(Path(__file__).resolve()),
            "--behind",
            self._peer,
            "--ready",
            str(self._ready),
            "--seconds",
            str(seconds),
        ]
        self._ready.unlink(missing_ok=True)
        began = time.time()
        client = subprocess.Popen(
            self._command(["sh", "-c", 'echo began; exec "$@"', "-", *words]),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=node_binary.ROOT,
        )
        assert client.stdout is not None
        assert client.stderr is not None
        if client.stdout.readline() != "began\n":
            raise SystemExit(f"a program did not start behind its line: {client.stderr.read()}")
        start_s = time.time() - began
        listening = bulk_receiver("0.0.0.0", "0.0.0.0")
        receiver = subprocess.Popen(
            [*self._far(client.pid), *listening], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert receiver.stderr is not None
        # The launcher may say something first.
        while (line := receiver.stderr.readline()) and not line.startswith("ready on"):
            pass
        self._ready.touch()
        said, trouble = client.communicate(timeout=PATIENCE_S)
        received, why = receiver.communicate(timeout=PATIENCE_S)
        if client.returncode or not said or receiver.returncode:
            raise SystemExit(f"a program behind a line failed: {trouble}{why}{said}")
        report = json.loads(said)
        if not report["rtts"]:
            raise SystemExit(f"no ping was answered: {report['trouble']}")
        return Measured(start_s, report["rtts"], json.loads(received)["bytes"] * 8 / seconds)


def bare(folder: Path, ends: Ends) -> Subject:
    """A pair of interfaces of the kernel, without offloads, so that packets have their true size as everywhere here."""
    ends.add_veth()
    for end in (0, 1):
        ends.run(end, *offload_command(f"tap{end}"), stdout=subprocess.DEVNULL).wait()
    ends.configure()
    return Subject(folder, lambda words: [*ends.inside(0), *words], lambda _: ends.inside(1), ADDRESSES[1])


def ours(folder: Path, rate: str) -> Subject:
    """A line of `shell` from a campaign file."""
    file = folder / f"line{len(rate)}.yaml"
    file.write_text(LINE.format(rate=rate))
    launcher = [str(node_binary.ROOT / "backchannel"), "shell"]

    def far(session: int) -> list[str]:
        return [*launcher, "--session", str(session), "enter", "left", "--"]

    def command(words: list[str]) -> list[str]:
        return [*launcher, "--network", str(file), "--results", str(folder / "results"), "--", *words]

    return Subject(folder, command, far, "left")


def inside(seconds: float, rounds: int) -> None:
    """The measurements, in a cell."""
    with ScratchFolder() as folder, closing(Ends()) as ends:
        folder.chmod(0o755)
        subjects = {
            "bare pair": bare(folder, ends),
            "shell, no rate": ours(folder, ""),
            "shell, 1 Gbit/s": ours(folder, "rate: 1 Gbit/s,"),
        }
        found: dict[str, list[Measured]] = {name: [] for name in subjects}
        for _ in range(rounds):
            for name, subject in subjects.items():
                found[name].append(subject.measure(seconds))
        show(found)


def show(found: dict[str, list[Measured]]) -> None:
    """Prints the table."""
    first = found["bare pair"]
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"load of the machine: {load} on {os.cpu_count()} CPUs")
    print(f"{'':<20}{'start':>24}{'RTT p50 added':>24}{'RTT p99 added':>24}{'Gbit/s':>24}{'to the bare pair':>24}")
    for name, rows in found.items():
        added = [
            [(row.rtt_s(share) - other.rtt_s(share)) * 1e6 for row, other in zip(rows, first, strict=True)]
            for share in (0.5, 0.99)
        ]
        ratios = [row.rate_bps / other.rate_bps for row, other in zip(rows, first, strict=True)]
        print(
            f"{name:<20}{shown([row.start_s for row in rows], 's'):>24}"
            + "".join(f"{shown(values, 'us'):>24}" for values in added)
            + f"{shown([row.rate_bps / 1e9 for row in rows]):>24}{shown(ratios):>24}"
        )
    median = statistics.median(row.rtt_s(0.5) for row in first)
    print(f"RTT of the bare pair: p50 {median * 1e6:.0f} us (median of the rounds)")


def main() -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description="The cost of a shell behind a line.")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a flow (5)")
    parser.add_argument("--rounds", type=int, default=5, help="starts of each subject (5)")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--behind", help=argparse.SUPPRESS)
    parser.add_argument("--ready", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.behind:
        behind(args.behind, args.ready, args.seconds)
    elif args.inside:
        inside(args.seconds, args.rounds)
    else:
        run_in_cell()


if __name__ == "__main__":
    main()
