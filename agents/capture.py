"""Packet capture: one tcpdump per interface.

A capture counts as running only when tcpdump has said so, and its own counters (captured, received, dropped) come back
with the file: a capture that lost packets makes the run invalid.
"""

from __future__ import annotations

import re
import signal
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from agents.errors import AgentError

#: tcpdump prints this once the ring is mapped and packets are being collected.
LISTENING = "listening on"
COUNTERS = re.compile(
    r"(\d+) packets? captured.*?(\d+) packets? received by filter.*?(\d+) packets? dropped by kernel",
    re.DOTALL,
)
#: What tcpdump says when it is asked in between (SIGUSR1), in one line.
SO_FAR = re.compile(r"(\d+) packets? captured, (\d+) packets? received by filter")
#: Seconds that tcpdump may take to read what the kernel has taken, and between two questions.
DRAIN_S, ASK_S = 3.0, 0.02
INTERFACE_DROPS = re.compile(r"(\d+) packets? dropped by interface")
#: Bytes of tcpdump's ring. A kernel that is not preemptible hands out memory it has not used before at a millisecond or
#: so a megabyte (measured: 8 to 15 ms for 8 MiB), and every emulator on that CPU waits. Four of libpcap's blocks, each
#: of which the kernel closes after 100 ms at the earliest, are 0.4 s in which tcpdump need not run.
LEAST_RING_BYTES, MOST_RING_BYTES = 1 << 20, 8 << 20
#: For how much traffic a ring has room, in seconds, in packets of so many bytes, each with so much beside its data.
RING_S, RING_PACKET_BYTES, RING_RECORD_BYTES = 2.0, 500, 96


@dataclass(frozen=True)
class CaptureCounts:
    """What tcpdump said at its end, in packets; `dropped` counts every packet that is not in the file."""

    interface: str
    path: str
    captured: int
    received: int
    dropped: int


def ring_bytes(rate_bps: float | None, snaplen: int) -> int:
    """Of the ring for an interface on which at most `rate_bps` pass, both directions together; None: nobody knows."""
    if rate_bps is None:
        return MOST_RING_BYTES
    packets = RING_S * rate_bps / 8 / RING_PACKET_BYTES
    wanted = packets * (min(snaplen, RING_PACKET_BYTES) + RING_RECORD_BYTES)
    return round(min(max(wanted, LEAST_RING_BYTES), MOST_RING_BYTES))


def command(interface: str, path: Path, snaplen: int, ring: int = MOST_RING_BYTES) -> list[str]:
    """Tcpdump's arguments: nanosecond stamps, nothing resolved, no drop of privileges (the folder is ours alone).

    `ring` is in bytes.

    A tcpdump that only writes a file leaves packets in its ring for up to a second; one that prints as well, line by
    line, reads them every 100 ms, and a run need not wait for the rest at its end. What it prints goes nowhere.
    """
    return [
        "tcpdump", "-i", interface, "-w", str(path), "-s", str(snaplen), "-B", str(ring >> 10),
        "--time-stamp-precision=nano", "-n", "-p", "-Z", "root", "--print", "-l", "-q", "-t",
    ]  # fmt: skip


def parse_counts(interface: str, path: str, stderr: str) -> CaptureCounts:
    """Reads tcpdump's closing lines.

    Raises:
        AgentError: they are missing, so nobody knows what was lost.
    """
    # The last ones: it was asked in between.
    found = COUNTERS.findall(stderr)
    if not found:
        raise AgentError(f"tcpdump on {interface} ended without its counters: {stderr.strip() or 'it said nothing'}")
    captured, received, dropped = (int(group) for group in found[-1])
    # Linux counts a packet that found the ring full as received too. What it had taken and tcpdump had not yet read
    # when it was stopped is not in the file either.
    dropped = max(dropped, received - captured)
    interface_drops = INTERFACE_DROPS.findall(stderr)
    if interface_drops:
        dropped += int(interface_drops[-1])
    return CaptureCounts(interface, path, captured, received, dropped)


class Capture:
    """A tcpdump that is really capturing from the moment the constructor returns.

    Raises:
        AgentError: tcpdump is missing, ended, or did not start within `timeout_s`.
    """

    def __init__(
        self, interface: str, path: Path, snaplen: int, rate_bps: float | None = None, timeout_s: float = 10.0
    ) -> None:
        self.interface = interface
        self.path = path
        self._log = path.with_suffix(".tcpdump.log")
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    command(interface, path, snaplen, ring_bytes(rate_bps, snaplen)),
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
                )  # fmt: skip
        except FileNotFoundError as error:
            raise AgentError("tcpdump is not installed on this node") from error
        self._wait_until_listening(timeout_s)

    def _wait_until_listening(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while LISTENING not in (said := self._log.read_text(errors="replace")):
            if self._process.poll() is not None:
                raise AgentError(f"tcpdump on {self.interface} ended at once: {said.strip()}")
            if time.monotonic() > deadline:
                self._process.kill()
                raise AgentError(f"tcpdump on {self.interface} was not capturing after {timeout_s:g} s: {said.strip()}")
            time.sleep(0.005)

    def stop(self, timeout_s: float = 10.0) -> CaptureCounts:
        """Ends it, once it has read what the kernel took, and returns its counters.

        Raises:
            AgentError: it had died before, or did not end within `timeout_s`.
        """
        self._drain()
        died = self._process.poll()
        if died is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired as error:
                self._process.kill()
                self._process.wait()
                raise AgentError(f"tcpdump on {self.interface} did not end within {timeout_s:g} s") from error
        said = self._log.read_text(errors="replace")
        if died is not None:
            raise AgentError(f"tcpdump on {self.interface} died during the run: {said.strip()}")
        return parse_counts(self.interface, self.path.name, said)

    def _drain(self) -> None:
        """Until it has as many packets as the kernel has; what is missing after DRAIN_S counts as lost."""
        deadline = time.monotonic() + DRAIN_S
        asked = len(self._so_far())
        while self._process.poll() is None and time.monotonic() < deadline:
            self._process.send_signal(signal.SIGUSR1)
            while len(answers := self._so_far()) == asked and time.monotonic() < deadline:
                if self._process.poll() is not None:
                    return
                time.sleep(0.002)
            asked = len(answers)
            captured, received = answers[-1] if answers else (0, 0)
            if captured >= received:
                return
            time.sleep(ASK_S)

    def _so_far(self) -> list[tuple[int, int]]:
        """Packets captured and received, each time that it was asked."""
        return [(int(one), int(two)) for one, two in SO_FAR.findall(self._log.read_text(errors="replace"))]

    def kill(self) -> None:
        """Ends it without asking for anything; for clean-up."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def as_json(counts: CaptureCounts) -> dict[str, object]:
    """For the agent's answer."""
    return asdict(counts)
