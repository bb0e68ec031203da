"""Memory is bounded, whatever a file holds."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from pathlib import Path

from testbed import node_binary

#: What docs/traces.md promises a file.
MOST_BYTES = 200 << 20
CONNECTIONS = 150_000


def test_a_flood_of_connections_takes_no_more_than_is_promised(tmp_path: Path) -> None:
    flood = tmp_path / "flood.pcap"
    with flood.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101))
        for number in range(CONNECTIONS):
            out.write(struct.pack("<IIII", 1000 + number // 1000, number % 1000 * 1000, 140, 140))
            out.write(struct.pack(">BBHHHBBHII", 0x45, 0, 140, 0, 0, 64, 6, 0, 0x0A000000 + number, 0x0B000001))
            out.write(struct.pack(">HHIIBBHHH", 1000, 80, number, 1, 0x50, 0x18, 1000, 0, 0) + bytes(100))
    words = [node_binary.path(), "trace", "--out", str(tmp_path / "tables"), f"flood={flood}"]
    process = subprocess.Popen(words)
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0
    assert used.ru_maxrss * 1024 < MOST_BYTES
    (found,) = json.loads((tmp_path / "tables/summary.json").read_text())["files"]
    assert found["connections_total"] == CONNECTIONS
    assert found["connections_given_up"] == CONNECTIONS - (1 << 15)
