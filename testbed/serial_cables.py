"""Serial cables between virtual machines: what one UART sends, the other receives, at the speed of the line.

QEMU's own UARTs hand every byte over at once. Here a byte takes ten bits (8N1), as on a wire. A UART is kept waiting
while its end of the cable is full, so a machine's own queues fill as they do before a modem.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import TestbedError

#: Start bit, eight bits of data, stop bit.
BITS_PER_BYTE = 10
#: Bytes pass in portions of this time.
PORTION_S = 0.005
#: A portion that is late by less does not delay those after it, so that the line keeps its rate.
LATE_S = 0.1
#: Devices of a virtual machine; the first UART is its console.
DEVICE = re.compile(r"/dev/ttyS([123])")


@dataclass(frozen=True)
class SerialEnd:
    """Serial device of a host, and its speed in bit/s."""

    device: str
    speed_bps: int

    @property
    def index(self) -> int:
        """Number of the UART.

        Raises:
            TestbedError: virtual machines have no such device.
        """
        match = DEVICE.fullmatch(self.device)
        if match is None:
            raise TestbedError(
                f"virtual machines have no serial device '{self.device}'; allowed: /dev/ttyS1, /dev/ttyS2, /dev/ttyS3"
            )
        return int(match[1])


class SerialCable:
    """A cable with a socket for each end, on which it listens until QEMU connects.

    Args:
        folder: for the sockets; it must not exist.
        ends: both devices, of one speed.

    Raises:
        TestbedError: the ends differ in speed.
    """

    def __init__(self, folder: Path, ends: Sequence[SerialEnd]) -> None:
        speeds = [end.speed_bps for end in ends]
        if len(set(speeds)) != 1:
            raise TestbedError(f"both ends of a serial line need one speed, and these have {speeds[0]} and {speeds[1]}")
        folder.mkdir()
        self.paths = [folder / str(number) for number in range(len(ends))]
        self._listeners = []
        for path in self.paths:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(path))
            listener.listen(1)
            self._listeners.append(listener)
        threading.Thread(target=self._carry, args=(speeds[0],), daemon=True).start()

    def close(self) -> None:
        """Closes the sockets. Call it after the machines have ended, which ends the threads."""
        for listener in self._listeners:
            listener.close()

    def _carry(self, speed_bps: int) -> None:
        try:
            near, far = (listener.accept()[0] for listener in self._listeners)
        except OSError:  # closed before both machines were started
            return
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=carry, args=(source, sink, speed_bps), daemon=True).start()


def carry(source: socket.socket, sink: socket.socket, speed_bps: int) -> None:
    """Carries the bytes of one direction until an end is gone."""
    most_bytes = max(1, int(speed_bps * PORTION_S / BITS_PER_BYTE))
    free_s = 0.0
    try:
        while portion := source.recv(most_bytes):
            now_s = time.monotonic()
            if free_s < now_s - LATE_S:
                free_s = now_s
            # A byte arrives when its last bit has.
            free_s += len(portion) * BITS_PER_BYTE / speed_bps
            time.sleep(max(0.0, free_s - now_s))
            sink.sendall(portion)
    except OSError:
        pass
    finally:
        # The other direction waits for bytes of `sink`, and `close` would not wake it.
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
