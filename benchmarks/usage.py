"""What a benchmark used of the machine."""

from __future__ import annotations

import resource
from pathlib import Path


def used_s(*, with_own: bool = False) -> float:
    """CPU time of all processes that this one waited for, and of this one too on request."""
    whose = (resource.RUSAGE_CHILDREN, *((resource.RUSAGE_SELF,) if with_own else ()))
    used = [resource.getrusage(who) for who in whose]
    return sum(each.ru_utime + each.ru_stime for each in used)


def size(folder: Path) -> int:
    """Bytes of all files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
