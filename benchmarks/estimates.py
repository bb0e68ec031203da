"""What `plan` expects beside what happens, for campaigns of different shape: `./backchannel bench estimates`.

Each campaign of tests/support/ten_campaigns.py that can be run, and the quickstart in virtual time, is planned and run
in a results folder of its own. Estimates rest on this machine's pace of earlier runs, as those of a new user do.

Aim: time and disk space within a factor of two.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from experiments.plain_table import plain_table
from testbed import node_binary, units
from tests.support.command_line import backchannel
from tests.support.ten_campaigns import PAPER, SHORTER, SIMULATED

QUICKSTART = ("backend=sim", "stack=newreno")


@dataclass(frozen=True)
class Measured:
    """A campaign's estimate and what it took."""

    campaign: str
    runs: int
    expected_s: float
    took_s: float
    expected_bytes: float
    used_bytes: int


def main() -> None:
    """Plans and runs each of them, and prints a table."""
    parser = argparse.ArgumentParser(description="What `plan` expects beside what happens.")
    parser.add_argument("--rounds", type=int, default=2, help="times that each campaign is planned and run")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    before, rows = os.getloadavg()[0], []
    with tempfile.TemporaryDirectory(prefix="backchannel-bench-") as name:
        folder = Path(name)
        files = [(folder / f"{campaign}.yaml", ()) for campaign in SIMULATED]
        for file, text in zip((file for file, _ in files), SIMULATED.values(), strict=True):
            file.write_text(f"name: {file.stem}\n{text}")
        experiments = node_binary.ROOT / "experiments"
        campaigns: list[tuple[Path, Sequence[str]]] = [
            *files,
            (experiments / f"acq/{PAPER}.yaml", SHORTER),
            (experiments / "quickstart.yaml", QUICKSTART),
        ]
        for count in range(given.rounds):
            for file, overrides in campaigns:
                rows.append(measured(file, overrides, folder / f"results-{count}-{file.stem}"))
                print(f"{file.stem}: {rows[-1].took_s:.0f} s", file=sys.stderr)
    if given.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        show(rows)
        print(f"load {before:.1f} before, {os.getloadavg()[0]:.1f} after, on {os.cpu_count()} CPUs")


def measured(file: Path, overrides: Sequence[str], results: Path) -> Measured:
    """Plans a campaign and runs it."""
    words = [str(file), "--results", str(results), *(word for entry in overrides for word in ("--set", entry))]
    expected = json.loads(called("plan", *words, "--json"))["expected"]
    began = time.perf_counter()
    called("run", *words)
    took_s = time.perf_counter() - began
    used_bytes = sum(path.stat().st_size for path in results.rglob("*") if path.is_file())
    return Measured(file.stem, expected["runs"], expected["time_s"], took_s, expected["disk_bytes"], used_bytes)


def called(*words: str) -> str:
    """Standard output of a command."""
    done = backchannel(*words)
    if done.returncode:
        raise SystemExit(done.stderr)
    return str(done.stdout)


def show(rows: Sequence[Measured]) -> None:
    """A row for each campaign and round."""
    heads = ("campaign", "runs", "expected", "took", "ratio", "disk expected", "used", "disk ratio")
    table = plain_table(*heads, right=heads[1:])
    for row in rows:
        table.add_row(
            row.campaign,
            str(row.runs),
            units.show(row.expected_s, "time"),
            units.show(row.took_s, "time"),
            f"{row.expected_s / row.took_s:.2f}",
            units.show(row.expected_bytes, "bytes"),
            units.show(row.used_bytes, "bytes"),
            f"{row.expected_bytes / row.used_bytes:.2f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
