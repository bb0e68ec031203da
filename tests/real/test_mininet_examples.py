"""Mininet's own examples, unchanged, on emulated lines: those of Debian's package that need no Open vSwitch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed import node_binary
from tests.support.waiting import HANGS_S

pytestmark = [pytest.mark.slow("Mininet's examples"), pytest.mark.emulated]

FOLDER = Path("/usr/share/doc/mininet/examples")
SCRIPT = node_binary.ROOT / "tests/support/mininet_example.py"
#: With a command line, where all hosts reach each other; and programs that end by themselves.
ASKED, ALONE = ("linuxrouter", "multilink", "nat"), ("bind", "multiping", "multipoll", "popen", "popenpoll")


@pytest.mark.parametrize("name", [*ASKED, *ALONE])
def test_example(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [node_binary.path(), "cell", "--", sys.executable, str(SCRIPT), str(FOLDER / f"{name}.py")],
        input="pingall\nlinks\nexit\n" if name in ASKED else "", capture_output=True, text=True, check=False,
        timeout=HANGS_S, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(node_binary.ROOT)},
    )  # fmt: skip
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert "Traceback" not in output
    if name in ASKED:
        assert "Results: 0% dropped" in output
