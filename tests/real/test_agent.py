"""An agent's emulator, with real interfaces."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from testbed import node_binary
from tests.support.waiting import HANGS_S

OUTLIVING = """
import sys, threading
from pathlib import Path
from agents.errors import AgentError, AgentUnreachable
from agents.links import Links
from testbed import node_binary
from tests.support.waiting import wait_until
links = Links(node_binary.path(), Path(sys.argv[1]), {"line": ["lo", "lo"]})
direction = {"rate_bps": 1_000_000, "delay_s": 0.0, "queue": {"name": "droptail", "options": {}}}
spec = {
    "name": "line", "kind": "point-to-point", "ends": ["a", "b"], "forward": direction, "reverse": direction,
    "options": {},
}
asking = threading.Thread(target=links.configure, args=("line", spec, 1, []))
asking.start()
asking.join()
# A thread is joined a moment before the kernel ends it.
wait_until(lambda: not Path(f"/proc/self/task/{asking.native_id}").exists(), "the end of the thread")
print(*links.stop()["links"])
links.close()
try:
    links.stop()
except AgentError as error:
    print(error)
"""


@pytest.mark.emulated
def test_an_emulator_outlives_the_connection_that_asked_for_it(tmp_path: Path) -> None:
    """Its parent-death signal comes when the thread that started it ends. Runs in a cell, on the cell's loopback."""
    done = subprocess.run(
        [node_binary.path(), "cell", "--", sys.executable, "-c", OUTLIVING, str(tmp_path)],
        capture_output=True, text=True, timeout=HANGS_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "line"
    assert "no link is emulated here" in done.stdout
