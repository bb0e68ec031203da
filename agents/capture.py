"""Packet capture: one tcpdump per interface.

A capture has started when tcpdump has reported it. Tcpdump's counters (captured, received, dropped) come back with the
file, because a capture that lost packets makes the run invalid.
"""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from agents.errors import AgentError
from agents.messages import CaptureCounts

#: tcpdump prints this when its ring is mapped and it collects packets.
LISTENING = "listening on"
COUNTERS = re.compile(
    r"(\d+) packets? captured.*?(\d+) packets? received by filter.*?(\d+) packets? dropped by kernel", re.DOTALL
)
#: tcpdump's counters on SIGUSR1, in one line.
SO_FAR = re.compile(r"(\d+) packets? captured, (\d+) packets? received by filter")
#: Longest time for tcpdump to read the packets that the kernel has taken, and the time between two SIGUSR1.
DRAIN_S, ASK_S, ASK_IN_VIRTUAL_TIME_S = 3.0, 0.02, 0.25
INTERFACE_DROPS = re.compile(r"(\d+) packets? dropped by interface")
#: Size of tcpdump's ring. A kernel that is not preemptible takes 1 to 2 ms to allocate a megabyte of fresh memory
#: (measured: 8 to 15 ms for 8 MiB), and every emulator on that CPU waits. The least ring has four of libpcap's blocks,
#: which the kernel closes after 100 ms or later, so tcpdump may pause for 0.4 s.
LEAST_RING_BYTES, MOST_RING_BYTES = 1 << 20, 8 << 20
#: A ring has room for this many seconds of packets of this size, each with this many bytes beside its data.
RING_S, RING_PACKET_BYTES, RING_RECORD_BYTES = 2.0, 500, 96


def ring_bytes(rate_bps: float | None, snaplen: int) -> int:
    """Size of the ring for at most `rate_bps`, both directions together; None: no bound is known."""
    if rate_bps is None:
        return MOST_RING_BYTES
    packets = RING_S * rate_bps / 8 / RING_PACKET_BYTES
    size = packets * (min(snaplen, RING_PACKET_BYTES) + RING_RECORD_BYTES)
    return round(min(max(size, LEAST_RING_BYTES), MOST_RING_BYTES))


def command(
    interface: str, path: Path, snaplen: int, ring: int = MOST_RING_BYTES, virtual_time: bool = False
) -> list[str]:
    """Tcpdump's arguments: nanosecond stamps, no name resolution, no change of user; `ring` is in bytes.

    A tcpdump that only writes a file leaves packets in its ring for up to a second. One that also prints line by line
    reads them every 100 ms, so a run need not wait for them at its end. Its output is discarded. In virtual time
    waiting is free, and a line for each packet is not.
    """
    words = [
        "tcpdump",
        "-i",
        interface,
        "-w",
        str(path),
        "-s",
        str(snaplen),
        "-B",
        str(ring >> 10),
        "--time-stamp-precision=nano",
        "-n",
        "-p",
        "-Z",
        "root",
    ]
    return words if virtual_time else [*words, "--print", "-l", "-q", "-t"]


def parse_counts(interface: str, path: str, stderr: str) -> CaptureCounts:
    """Reads tcpdump's closing lines.

    Raises:
        AgentError: they are missing, so the number of lost packets is unknown.
    """
    # The last ones, because SIGUSR1 prints counters too.
    counters = COUNTERS.findall(stderr)
    if not counters:
        raise AgentError(f"tcpdump on {interface} ended without its counters: {stderr.strip() or 'it printed nothing'}")
    captured, received, dropped = (int(group) for group in counters[-1])
    # Linux counts a packet that found the ring full as received. Packets that tcpdump had not read when it was stopped
    # are not in the file either.
    dropped = max(dropped, received - captured)
    interface_drops = INTERFACE_DROPS.findall(stderr)
    if interface_drops:
        dropped += int(interface_drops[-1])
    return CaptureCounts(interface, path, captured, received, dropped)


class Capture:
    """A tcpdump that captures when the constructor returns. `prefix` is words that run it in another namespace.

    Raises:
        AgentError: tcpdump is missing, ended, or did not start within `timeout_s`.
    """

    def __init__(
        self,
        interface: str,
        path: Path,
        snaplen: int,
        rate_bps: float | None = None,
        timeout_s: float = 10.0,
        virtual_time: bool = False,
        prefix: Sequence[str] = (),
    ) -> None:
        self.interface = interface
        self._ask_s = ASK_IN_VIRTUAL_TIME_S if virtual_time else ASK_S
        self.path = path
        self._log = path.with_suffix(".tcpdump.log")
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [*prefix, *command(interface, path, snaplen, ring_bytes(rate_bps, snaplen), virtual_time)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                )
        except FileNotFoundError as error:
            raise AgentError("tcpdump is not installed on this node") from error
        self._wait_until_listening(timeout_s)

    def _wait_until_listening(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            # Checked before the log is read, so that the log has the reason if it has ended.
            status = self._process.poll()
            output = self._log.read_text(errors="replace")
            if status is not None:
                raise AgentError(f"tcpdump on {self.interface} ended at once: {output.strip()}")
            if LISTENING in output:
                return
            if time.monotonic() > deadline:
                self._process.kill()
                raise AgentError(
                    f"tcpdump on {self.interface} was not capturing after {timeout_s:g} s: {output.strip()}"
                )
            time.sleep(0.005)

    def stop(self, timeout_s: float = 10.0) -> CaptureCounts:
        """Ends it when it has read the packets that the kernel has taken; its counters.

        Raises:
            AgentError: it had ended before, or did not end within `timeout_s`.
        """
        self._drain()
        status = self._process.poll()
        if status is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired as error:
                self._process.kill()
                self._process.wait()
                raise AgentError(f"tcpdump on {self.interface} did not end within {timeout_s:g} s") from error
        output = self._log.read_text(errors="replace")
        if status is not None:
            raise AgentError(f"tcpdump on {self.interface} ended during the run: {output.strip()}")
        return parse_counts(self.interface, self.path.name, output)

    def _drain(self) -> None:
        """Waits until it has read all packets; those missing after DRAIN_S count as lost."""
        deadline = time.monotonic() + DRAIN_S
        n_answers = len(self._so_far())
        while self._process.poll() is None and time.monotonic() < deadline:
            self._process.send_signal(signal.SIGUSR1)
            while len(answers := self._so_far()) == n_answers and time.monotonic() < deadline:
                if self._process.poll() is not None:
                    return
                time.sleep(0.002)
            n_answers = len(answers)
            captured, received = answers[-1] if answers else (0, 0)
            if captured >= received:
                return
            time.sleep(self._ask_s)

    def _so_far(self) -> list[tuple[int, int]]:
        """Packets captured and received, for each SIGUSR1."""
        return [
            (int(captured), int(received))
            for captured, received in SO_FAR.findall(self._log.read_text(errors="replace"))
        ]

    def kill(self) -> None:
        """Kills it; for clean-up."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
