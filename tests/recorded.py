"""What commands print, in README and docs: the commands are run, and their output is compared or written.

    python -m tests.recorded             # fails if a page differs from what its commands print
    python -m tests.recorded --update    # writes it

A record stands between `<!-- recorded: WORDS -->` and `<!-- end -->`; WORDS are those of the command. The commands run
in the order of the pages, in the simulator, in one folder that is empty at first. One that two pages show runs once.
"""

from __future__ import annotations

import contextlib
import re
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from testbed.node_binary import ROOT
from tests.support.command_line import backchannel

PAGES = (ROOT / "docs/tutorial.md", ROOT / "README.md")
RECORD = re.compile(r"(<!-- recorded: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)
#: Lines that depend on the machine: its pace, progress after the last run, the number of runs at a time.
_DEPENDS = re.compile(r"^expected: .*\n|^\S+: \d+ of \d+ runs, .*\n|, \d+ at a time", re.MULTILINE)
COLUMNS = 80


def output(words: str, folder: Path) -> str:
    """What a command prints for people, without progress and what depends on the machine."""
    # An empty folder of results is none.
    environment: Any = {"COLUMNS": str(COLUMNS), "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "BACKCHANNEL_RESULTS": ""}
    with contextlib.chdir(folder):
        done = backchannel(*words.split(), status=0, **environment)
    # Progress ends where the title of the table begins.
    _, _, answer = done.stdout.rpartition(": done\n")
    lines = _DEPENDS.sub("", answer).strip("\n").splitlines()
    return "".join(f"{'    ' + line.rstrip() if line.strip() else ''}\n" for line in lines)


def renewed() -> dict[Path, str]:
    """The pages with what their commands print now."""
    with tempfile.TemporaryDirectory(prefix="bc-recorded-") as name:
        printed = cache(lambda words: output(words, Path(name)))
        return {
            page: RECORD.sub(lambda record: f"{record[1]}\n{printed(record[2])}\n{record[3]}", page.read_text())
            for page in PAGES
        }


def main() -> int:
    """Compares or writes."""
    differing = {page: now for page, now in renewed().items() if page.read_text() != now}
    for page, now in differing.items():
        print(page.relative_to(ROOT))
        if "--update" in sys.argv:
            page.write_text(now)
    return 1 if differing and "--update" not in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
