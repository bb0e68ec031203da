"""CPU time of short commands beside that of an interpreter that does nothing, in the same run.

    ./backchannel bench startup

Each value is the least of several starts, children included: other load only adds to a start. The commands take turns,
so that load that comes and goes meets all of them.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EMPTY = [sys.executable, "-c", "pass"]
COMMANDS = {
    "python -c pass": EMPTY,
    "import typer, pydantic": [sys.executable, "-c", "import typer, pydantic.main"],
    "backchannel --help": [sys.executable, "-m", "experiments", "--help"],
    "backchannel list policies": [sys.executable, "-m", "experiments", "list", "policies"],
    "backchannel validate quickstart.yaml": [
        sys.executable, "-m", "experiments", "validate", str(ROOT / "experiments/quickstart.yaml"),
    ],
}  # fmt: skip


def cpu_s(command: list[str]) -> float:
    """CPU time of one start."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="CPU time of short commands.")
    parser.add_argument("--starts", type=int, default=10, help="starts of each command (default 10)")
    starts = parser.parse_args().starts
    rounds = [{name: cpu_s(command) for name, command in COMMANDS.items()} for _ in range(starts)]
    least = {name: min(values[name] for values in rounds) for name in COMMANDS}
    print(f"{'command':<40}{'CPU s':>8}{'times python -c pass':>24}")
    for name, value in least.items():
        print(f"{name:<40}{value:>8.3f}{value / least['python -c pass']:>24.1f}")


if __name__ == "__main__":
    main()
