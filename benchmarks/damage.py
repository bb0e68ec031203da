"""Damages the database and the files of a store, and bundles, at random, and counts what readers make of it.

    ./backchannel bench damage
    ./backchannel bench damage --databases 50 --artefacts 50 --bundles 20 --seed 7

Each damage is read by commands and by pages of the site. A traceback is a finding, and so is another output with
status 0. A damage is refused if a command ends with a sentence; others are at places that mean nothing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.command_line import backchannel
from tests.support.damaging import Damaged, Finding, made


def run(file: Path, results: Path) -> None:
    """Runs a campaign."""
    done = backchannel("run", file, "--results", results)
    if done.returncode:
        sys.exit(done.stderr)


def main() -> int:
    """Prints how many damages of each kind were read, and the findings."""
    parser = argparse.ArgumentParser(description="Damaged stores and bundles, as readers see them.")
    parser.add_argument("--databases", type=int, default=500, help="damages of the database (default 500)")
    parser.add_argument("--artefacts", type=int, default=500, help="damages of artefacts (default 500)")
    parser.add_argument("--bundles", type=int, default=200, help="damages of bundles (default 200)")
    parser.add_argument("--seed", type=int, default=1, help="number of the first damage (default 1)")
    asked = parser.parse_args()
    findings = 0
    with tempfile.TemporaryDirectory() as folder:
        results, bundle = made(Path(folder), run)
        damaged = Damaged(results, Path(folder))
        print(f"{'damage':<12}{'number':>8}{'refused':>9}{'tracebacks':>12}{'silent changes':>16}{'min':>7}")
        kinds: dict[str, Callable[[int], list[Finding]]] = {
            "databases": damaged.database,
            "artefacts": damaged.artefact,
            "bundles": lambda number: damaged.bundle(number, bundle),
        }
        for name, read in kinds.items():
            begun_s, count, damaged.refused = time.monotonic(), getattr(asked, name), 0
            found = [finding for number in range(asked.seed, asked.seed + count) for finding in read(number)]
            tracebacks = sum("Traceback" in finding.why for finding in found)
            minutes = (time.monotonic() - begun_s) / 60
            silent = len(found) - tracebacks
            print(f"{name:<12}{count:>8}{damaged.refused:>9}{tracebacks:>12}{silent:>16}{minutes:>7.1f}", flush=True)
            for finding in found:
                print(f"    {finding.number}: {finding.what}: {finding.why.strip().splitlines()[-1][:200]}")
            findings += len(found)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
