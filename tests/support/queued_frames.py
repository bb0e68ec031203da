"""Times how soon a receiver of the research stack ends after a SYN and a reset that it finds together, in a cell.

backchannel-node cell -- python -m tests.support.queued_frames BINARY TRIES
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time

from tests.support.traces.hostile import RST, SYN, segment
from tests.support.waiting import pause

MACS = ("02:bc:00:00:00:01", "02:bc:00:00:00:02")
IPV4 = b"\x08\x00"
#: With a size, so that the program ends when it can no longer arrive.
FLOW = '{"name":"f","kind":"bulk","from":"a","to":"b","port":80,"bytes":1000}'


def frame(packet: bytes) -> bytes:
    """An Ethernet frame from the first interface to the second."""
    source, target = (bytes.fromhex(mac.replace(":", "")) for mac in MACS)
    return target + source + IPV4 + packet


def main() -> None:
    """Prints the shortest time in s."""
    binary, tries = sys.argv[1], int(sys.argv[2])
    for words in (
        f"link add one address {MACS[0]} type veth peer name two address {MACS[1]}",
        "link set one up",
        "link set two up",
    ):
        subprocess.run(["ip", *words.split()], check=True)
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    raw.bind(("one", 0))
    took_s = []
    for _ in range(tries):
        endpoint = subprocess.Popen(
            [
                binary, "load", "receive", "--listen=10.0.0.2:80", "--sender=10.0.0.1:80", f"--flow={FLOW}", "--seed=7",
                "--interface=two", f"--mac={MACS[1]}", f"--next-hop-mac={MACS[0]}", "--stack=modern",
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert endpoint.stderr is not None
        if "ready" not in endpoint.stderr.readline():
            raise SystemExit("the endpoint is not ready")
        pause(endpoint)
        raw.send(frame(segment(True, 99, 0, SYN)))
        raw.send(frame(segment(True, 100, 0, RST)))
        began_s = time.monotonic()
        endpoint.send_signal(signal.SIGCONT)
        endpoint.wait(30)
        took_s.append(time.monotonic() - began_s)
    print(min(took_s))


if __name__ == "__main__":
    main()
