"""The command line as a person calls it, without the imports of each call."""

from __future__ import annotations

import atexit
import os
import subprocess
import tempfile
import threading
from functools import cache
from pathlib import Path

from tests.support.starter import Starter

#: What other commands than `run` import.
IMPORTED = (
    "analysis.captures", "analysis.exports", "analysis.figures", "analysis.figures.printed", "analysis.metrics",
    "experiments.commands.compare", "experiments.commands.export",
    "experiments.commands.imports", "experiments.commands.inspect", "experiments.commands.papers",
    "experiments.commands.plot", "experiments.importing", "experiments.language.campaign",
    "experiments.papers.page", "experiments.papers.reproduction", "experiments.papers.tables",
)  # fmt: skip
_one_at_a_time = threading.Lock()


@cache
def _starter() -> Starter:
    folder = tempfile.TemporaryDirectory(prefix="bc-commands-")
    starter = Starter(dict(os.environ), Path(folder.name) / "log", IMPORTED)

    def close() -> None:
        starter.close()
        folder.cleanup()

    atexit.register(close)
    return starter


def backchannel(
    *words: str | Path,
    status: int | None = None,
    timeout_s: float = 900,
    memory_bytes: int | None = None,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """A command, as a process of its own that was forked after the imports, in the folder of this one.

    Args:
        words: of the command line.
        status: that the command must have; None for any.
        timeout_s: the command is killed after this time.
        memory_bytes: limit of its address space.
        environment: beside that of this process.
    """
    with _one_at_a_time:
        done = _starter().run([*map(str, words)], {**os.environ, **environment}, timeout_s, memory_bytes)
    assert status in (None, done.returncode), f"status {done.returncode}: {done.stdout}{done.stderr}"
    return done
