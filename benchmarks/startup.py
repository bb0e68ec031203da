"""CPU time and memory of short commands beside those of an interpreter that does nothing, in the same run.

    ./backchannel bench startup [--starts N] [--large]

Each time is the least of several starts, children included: other load only adds to a start. The commands take turns,
so that load that comes and goes meets all of them. With `--large`, `validate` also reads campaigns of 100,000 runs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VALIDATE = [sys.executable, "-m", "experiments", "validate"]
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import typer, pydantic": [sys.executable, "-c", "import typer, pydantic.main"],
    "backchannel --help": [sys.executable, "-m", "experiments", "--help"],
    "backchannel list policies": [sys.executable, "-m", "experiments", "list", "policies"],
    "backchannel validate quickstart.yaml": [*VALIDATE, str(ROOT / "experiments/quickstart.yaml")],
}
SWEEP = """\
name: large
backend: sim
network: {{topology: line, forward: {{rate: 1 Mbit/s, delay: 5 ms}}, reverse: {{rate: 1 Mbit/s, delay: 5 ms}}}}
stack: newreno
workload: [{{name: bulk, from: left, to: right}}]
duration: 5 s
repetitions: {repetitions}
sweep:
  network.forward.rate: [{forward}]
  network.reverse.rate: [{reverse}]
"""
#: Values of both axes, and repetitions: 100,000 runs each.
LARGE = ((10, 10, 1000), (50, 40, 50), (200, 100, 5), (400, 250, 1))


def cost(command: Sequence[str]) -> tuple[float, float]:
    """CPU time in s and greatest resident memory in MB of one start."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed: {errors.decode(errors='replace')}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1000


def large() -> None:
    """Prints a line for each shape of a campaign of 100,000 runs."""
    for forward, reverse, repetitions in LARGE:
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            axes = (", ".join(f"{number + 1} kbit/s" for number in range(count)) for count in (forward, reverse))
            file.write(SWEEP.format(repetitions=repetitions, forward=next(axes), reverse=next(axes)))
            file.flush()
            cpu_s, memory_mb = cost([*VALIDATE, file.name])
        name = f"validate {forward * reverse:,} points x {repetitions}"
        print(f"{name:<40}{cpu_s:>8.3f}{memory_mb:>8.0f}", flush=True)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="CPU time and memory of short commands.")
    parser.add_argument("--starts", type=int, default=10, help="starts of each command (default 10)")
    parser.add_argument("--large", action="store_true", help="also validate campaigns of 100,000 runs")
    options = parser.parse_args()
    rounds = [{name: cost(command) for name, command in COMMANDS.items()} for _ in range(options.starts)]
    least = {name: min(values[name] for values in rounds) for name in COMMANDS}
    print(f"{'command':<40}{'CPU s':>8}{'MB':>8}{'times python -c pass':>24}")
    for name, (cpu_s, memory_mb) in least.items():
        print(f"{name:<40}{cpu_s:>8.3f}{memory_mb:>8.0f}{cpu_s / least['python -c pass'][0]:>24.1f}")
    if options.large:
        large()


if __name__ == "__main__":
    main()
