"""What a benchmark used of the machine."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path

from testbed import node_binary


def used_s(*, with_own: bool = False) -> float:
    """CPU time of all processes that this one waited for, and of this one too on request."""
    whose = (resource.RUSAGE_CHILDREN, *((resource.RUSAGE_SELF,) if with_own else ()))
    used = [resource.getrusage(who) for who in whose]
    return sum(each.ru_utime + each.ru_stime for each in used)


def timed(*words: str) -> tuple[float, float, str]:
    """Runs `./backchannel`. Returns wall time, CPU time and output; ends this program if it fails."""
    before_s, began_s = used_s(), time.monotonic()
    command = [sys.executable, "-m", "experiments", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=node_binary.ROOT)
    if done.returncode != 0:
        sys.exit(f"'{' '.join(words)}' has status {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return time.monotonic() - began_s, used_s() - before_s, done.stdout + done.stderr


def size(folder: Path) -> int:
    """Bytes of all files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
