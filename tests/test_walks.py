"""The walks of docs/architecture.md name every Python file that a campaign and a capture enter."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from testbed.node_binary import ROOT

PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
#: What every program needs; and a command whose help is made from its formats before any command is chosen.
GROUND = ("testbed/node_binary.py", "testbed/errors.py", "experiments/commands/export.py")
CAMPAIGN = """
name: walk
backend: sim
network: {topology: line, forward: {rate: 1 Mbit/s, delay: 10 ms}}
stack: newreno
workload:
  - {name: bulk, from: left, to: right}
duration: 2 s
repetitions: 2
"""


def section(title: str) -> str:
    """A section's text, without the heading."""
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def walked(tmp_path: Path, *words: object) -> list[str]:
    """Files that a command enters."""
    record = tmp_path / "walked"
    subprocess.run(
        [sys.executable, "-m", "tests.walked", *map(str, words)], check=True, cwd=ROOT, timeout=300,
        stdout=subprocess.DEVNULL, env={**os.environ, "WALKED": str(record)},
    )  # fmt: skip
    return record.read_text().splitlines()


def unnamed(files: list[str], text: str) -> list[str]:
    """Files that a text names neither by themselves nor by a folder of theirs that it names with a slash."""
    names = re.findall(r"`([\w./-]+)`", text)
    folders = tuple(name.rstrip("/") + "/" for name in names if "/" in name and "." not in name.rsplit("/", 1)[1])
    named = tuple("/" + name for name in names if name.endswith(".py"))
    return [
        file
        for file in files
        if file not in GROUND and not file.startswith(folders) and not f"/{file}".endswith(named)
    ]  # fmt: skip


def test_a_campaign_and_its_captures_enter_only_files_that_the_page_names(tmp_path: Path) -> None:
    file, results = tmp_path / "walk.yaml", tmp_path / "results"
    file.write_text(CAMPAIGN)
    text = section("One campaign, from file to table") + section("One capture, from bytes to numbers")
    files = walked(tmp_path, "run", file, "--results", results)
    assert len(files) > 50
    assert unnamed(files, text) == []
    capture = next(iter(sorted(results.glob("runs/*/*/captures/*"))))
    files = walked(tmp_path, "import", capture, "--results", tmp_path / "imported")
    # The files that its child process enters are those after the campaign's captures, and not recorded.
    assert "experiments/limits.py" in files
    assert unnamed(files, text) == []
