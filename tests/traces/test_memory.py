"""Memory is bounded, whatever a file holds."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

from testbed import node_binary

#: What docs/traces.md promises a file.
MOST_BYTES = 200 << 20
CONNECTIONS = 150_000
#: Runs a program and prints its greatest memory in KiB. A small parent: until it runs its own program a child counts as
#: large as its parent.
MEASURED = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def test_a_flood_of_connections_takes_no_more_than_is_promised(tmp_path: Path) -> None:
    flood = tmp_path / "flood.pcap"
    with flood.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101))
        for number in range(CONNECTIONS):
            out.write(struct.pack("<IIII", 1000 + number // 1000, number % 1000 * 1000, 140, 140))
            out.write(struct.pack(">BBHHHBBHII", 0x45, 0, 140, 0, 0, 64, 6, 0, 0x0A000000 + number, 0x0B000001))
            out.write(struct.pack(">HHIIBBHHH", 1000, 80, number, 1, 0x50, 0x18, 1000, 0, 0) + bytes(100))
    words = [node_binary.path(), "trace", "--out", str(tmp_path / "tables"), f"flood={flood}"]
    done = subprocess.run([sys.executable, "-c", MEASURED, *words], capture_output=True, text=True, check=True)
    assert int(done.stdout) * 1024 < MOST_BYTES
    (found,) = json.loads((tmp_path / "tables/summary.json").read_text())["files"]
    assert found["connections_total"] == CONNECTIONS
    assert found["connections_given_up"] == CONNECTIONS - (1 << 15)
