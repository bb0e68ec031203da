"""Runs a command and writes which of this repository's Python files it enters, in order, to the file $WALKED.

A file is entered when one of its functions is called, apart from calls while modules are imported. Of child processes
those count that fork without starting another program; they end first, and their files come first.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = str(Path(__file__).resolve().parent.parent) + os.sep
entered: dict[str, None] = {}


def _imports(frame: FrameType | None) -> bool:
    """Whether a module of the repository is being imported further up the stack."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "<module>" and code.co_filename.startswith(ROOT) and code.co_filename != __file__:
            return True
        frame = frame.f_back
    return False


def profile(frame: FrameType, event: str, _: Any) -> None:
    """Records the file of a called function."""
    name = frame.f_code.co_filename
    if event != "call" or name in entered or not name.startswith(ROOT) or os.sep + ".venv" + os.sep in name:
        return
    # Functions have local variables; the bodies of modules and classes have none (CO_OPTIMIZED).
    if frame.f_code.co_flags & 1 and not _imports(frame.f_back):
        entered[name] = None


if __name__ == "__main__":
    from experiments.cli import main

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        main()
    finally:
        sys.setprofile(None)
        record = Path(os.environ["WALKED"])
        before = record.read_text().splitlines() if record.exists() else []
        record.write_text("\n".join(dict.fromkeys([*before, *(name.removeprefix(ROOT) for name in entered)])))
