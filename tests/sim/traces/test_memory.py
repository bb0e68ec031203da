"""The trace reader's memory is bounded for any capture."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

from testbed import node_binary, pcap

#: Memory for one capture, as docs/traces.md states it.
LIMIT_BYTES = 200 << 20
CONNECTIONS = 150_000
#: Runs a program and prints its peak memory in KiB. Its parent is small, because a child counts as large as its parent
#: until it executes its program.
MEASURED = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def frame(number: int) -> pcap.Record:
    """100 bytes of data of connection `number`, a millisecond after those of the connection before."""
    ip = struct.pack(">BBHHHBBHII", 0x45, 0, 140, 0, 0, 64, 6, 0, 0x0A000000 + number, 0x0B000001)
    tcp = struct.pack(">HHIIBBHHH", 1000, 80, number, 1, 0x50, 0x18, 1000, 0, 0)
    return pcap.Record((1_000_000 + number) * 1_000_000, ip + tcp + bytes(100), 140)


def test_a_flood_of_connections_stays_below_the_memory_limit(tmp_path: Path) -> None:
    flood = tmp_path / "flood.pcap"
    with flood.open("wb") as out:
        out.write(pcap.written(pcap.Header(pcap.RAW), (frame(number) for number in range(CONNECTIONS))))
    words = [node_binary.path(), "trace", "--out", str(tmp_path / "tables"), f"flood={flood}"]
    done = subprocess.run([sys.executable, "-c", MEASURED, *words], capture_output=True, text=True, check=True)
    assert int(done.stdout) * 1024 < LIMIT_BYTES
    (result,) = json.loads((tmp_path / "tables/summary.json").read_text())["files"]
    assert result["connections_total"] == CONNECTIONS
    assert result["connections_given_up"] == CONNECTIONS - (1 << 15)
