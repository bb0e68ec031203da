"""What hosts and runs cost, and what 100 hosts and 10,000 runs would: measured, fitted, extrapolated.

    ./backchannel bench scale [--rounds N] [--only hosts | runs]

Hosts are namespaces of this machine, in sets of two with a wire between them (2 to 16 hosts), so that `site` pays for
the hosts' CPU time too, which real hosts would spend themselves. Runs are physical ones of 2 s over a link box, 2 to 14
of them: CPU time of the controller (the command and everything that it waits for, its captures' analysis included, the
hosts and what keeps the CPUs from halting not), and the size of the results folder. `plan` is measured at 100 to
10,000 runs.

Each quantity is a line over its number, by least squares. The prediction has a 95 % interval of a new measurement
(Student's t with n - 2 degrees of freedom). It is only as good as the line: beyond the largest number measured nothing
is known but the line.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML
from scipy import stats

from analysis.estimates import plus_minus
from benchmarks.usage import size, timed
from testbed import cpu_hold
from testbed.local_folders import ScratchFolder
from testbed.slots import Slots

HOSTS = (2, 4, 8, 16)
RUNS = (2, 6, 14)
PLANNED = (100, 1_000, 10_000)
#: What is extrapolated to.
MANY_HOSTS, MANY_RUNS = 100, 10_000
DURATION_S = 2
CAMPAIGN = f"""
name: scale
network:
  nodes: [{{name: left, kind: host}}, {{name: right, kind: host}}]
  links:
    - {{name: line, ends: [left, right], forward: {{rate: 1 Mbit/s, delay: 5 ms}}, reverse: {{rate: 128 kbit/s}}}}
workload: [{{name: bulk, from: left, to: right}}]
duration: {DURATION_S} s
# What an attempt costs does not depend on its verdict.
fidelity: {{rate: 50 %, delay: 1 s, lateness: 1 s, stall: 1 s, stalled: 50 %}}
"""


@dataclass(frozen=True)
class LinearFit:
    """A linear fit through measurements."""

    fixed: float
    each: float
    #: What was measured at.
    numbers: tuple[float, ...]
    #: Standard deviation of the measurements around the line; infinite with two.
    deviation: float

    def at(self, number: float) -> tuple[float, float]:
        """Prediction, and half of its 95 % interval; infinite with two measurements."""
        n = len(self.numbers)
        mean = sum(self.numbers) / n
        spread = sum((one - mean) ** 2 for one in self.numbers)
        if n < 3:
            return self.fixed + self.each * number, math.inf
        wide = self.deviation * math.sqrt(1 + 1 / n + (number - mean) ** 2 / spread)
        return self.fixed + self.each * number, float(stats.t.ppf(0.975, n - 2)) * wide


def fitted(numbers: Sequence[float], values: Sequence[float]) -> LinearFit:
    """The line of least squares through at least two measurements at different numbers."""
    fit = stats.linregress(numbers, values)
    residues = [value - fit.intercept - fit.slope * number for number, value in zip(numbers, values, strict=True)]
    deviation = math.sqrt(sum(one**2 for one in residues) / (len(numbers) - 2)) if len(numbers) > 2 else math.inf
    return LinearFit(float(fit.intercept), float(fit.slope), tuple(numbers), deviation)


def pair(number: int) -> dict[str, object]:
    """A set of two hosts with a wire."""
    hosts = {f"l{number}": {"plays": "left"}, f"r{number}": {"plays": "right"}}
    return {"hosts": hosts, "links": {"line": {"real": "wire"}}}


def inventory(path: Path, sets: dict[str, dict[str, object]]) -> Path:
    """Writes a lab of these sets."""
    with path.open("w") as file:
        YAML().dump({"plugin": "backchannel", "campaign": "scale.yaml", "connection": "namespace", "sets": sets}, file)
    return path


def measure_hosts(path: Path) -> None:
    """In a lab: prints wall and CPU time of `site` on hosts that have nothing, then removes it again."""
    wall_s, cpu_s, _ = timed("testbed", "site", "-i", str(path))
    timed("testbed", "teardown", "-i", str(path))
    print(f"measured {wall_s:.2f} {cpu_s:.2f}")


def measure_runs(path: Path) -> None:
    """In a lab: prints number, attempts, wall time, CPU time and bytes of campaigns."""
    timed("testbed", "site", "-i", str(path))
    words = ["run", str(path.with_name("scale.yaml")), "--backend", "physical", "-i", str(path), "--attempts", "20"]
    # What keeps CPUs from halting takes all that nothing else uses. Here this process does, and the commands do not.
    with Slots(cpu_hold.SLOT, 1, threading.Event()), cpu_hold.held(wanted=True):
        for runs in RUNS:
            # New ones for each round: a campaign whose runs are there makes none.
            results = Path(tempfile.mkdtemp(dir=path.parent))
            wall_s, cpu_s, text = timed(*words, "--results", str(results), "--set", f"repetitions={runs}")
            again = text.count(" is not valid: ")
            print(f"measured {runs} {runs + again} {wall_s:.2f} {cpu_s:.2f} {size(results)}", flush=True)


def in_lab(path: Path, kind: str) -> list[list[float]]:
    """Runs this file in a lab and returns what it measured."""
    *_, said = timed("testbed", "rehearse", "-i", str(path), "--", sys.executable, __file__, kind, str(path))
    rows = [line.split()[1:] for line in said.splitlines() if line.startswith("measured ")]
    return [[float(word) for word in row] for row in rows]


def row(what: str, unit: str, numbers: Sequence[float], values: Sequence[float], many: int) -> None:
    """Prints a quantity's measurements, line and extrapolation."""
    line = fitted(numbers, values)
    value, half = line.at(many)
    shown = ", ".join(f"{number:g}: {value:.4g}" for number, value in zip(numbers, values, strict=True))
    extrapolated = f"{plus_minus(value, half)} {unit}"
    print(f"| {what} | {shown} | {line.fixed:.3g} + {line.each:.3g} n | {extrapolated} |", flush=True)


def hosts_rows(folder: Path, rounds: int) -> None:
    """Prints what `site` costs."""
    hosts = HOSTS * rounds
    labs = {
        count: inventory(folder / f"hosts-{count}.yml", {f"s{number}": pair(number) for number in range(count // 2)})
        for count in HOSTS
    }
    sites = [in_lab(labs[count], "hosts")[0] for count in hosts]
    row("hosts: `site`, first time, wall", "s", hosts, [wall_s for wall_s, _ in sites], MANY_HOSTS)
    row("hosts: `site`, first time, CPU with the hosts'", "s", hosts, [cpu_s for _, cpu_s in sites], MANY_HOSTS)


def runs_rows(folder: Path, rounds: int) -> None:
    """Prints what runs cost, and what many would on many hosts."""
    boxed = {"hosts": {"left": {}, "right": {}, "box": {}}, "links": {"line": {"box": "box"}}}
    lab = inventory(folder / "runs.yml", {"runs": boxed})
    measurements = [measured for _ in range(rounds) for measured in in_lab(lab, "runs")]
    planned = [timed("plan", str(folder / "scale.yaml"), "--set", f"repetitions={count}")[1] for count in PLANNED]
    runs = [one[0] for one in measurements]
    attempts = [one[1] for one in measurements]
    row("attempts: controller's CPU", "s", attempts, [one[3] for one in measurements], MANY_RUNS)
    row("attempts: wall on one set", "s", attempts, [one[2] for one in measurements], MANY_RUNS)
    row("runs: results folder", "MB", runs, [one[4] / 1e6 for one in measurements], MANY_RUNS)
    largest = ", ".join(f"{number:g}: {value:.3g} s" for number, value in zip(PLANNED, planned, strict=True))
    print(f"\n`plan`, CPU (measured, not extrapolated): {largest}")
    each, cpu_each = (fitted(attempts, [one[column] for one in measurements]).each for column in (2, 3))
    sets = MANY_HOSTS // 2
    print(
        f"An attempt of {DURATION_S} s takes {each:.2f} s of a set. {MANY_HOSTS} hosts are {sets} sets, on which "
        f"{MANY_RUNS:,} runs take {MANY_RUNS * each / sets / 60:.0f} min, if the controller has the CPUs for it: "
        f"{cpu_each * sets / each:.1f} (extrapolated)."
    )


def main() -> int:
    """Prints the table."""
    if len(sys.argv) == 3 and sys.argv[1] in ("hosts", "runs"):
        {"hosts": measure_hosts, "runs": measure_runs}[sys.argv[1]](Path(sys.argv[2]))
        return 0
    parser = argparse.ArgumentParser(prog="backchannel bench scale")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", choices=["hosts", "runs"])
    arguments = parser.parse_args()
    with ScratchFolder() as folder:
        (folder / "scale.yaml").write_text(CAMPAIGN)
        load, *_ = os.getloadavg()
        print(f"load before: {load:.1f} on {os.cpu_count()} CPUs; {arguments.rounds} round(s)\n", flush=True)
        head = f"extrapolated to {MANY_HOSTS} hosts, {MANY_RUNS:,} runs (95 %)"
        print(f"| n | measured | line | {head} |\n|---|---|---|---|", flush=True)
        if arguments.only != "runs":
            hosts_rows(folder, arguments.rounds)
        if arguments.only != "hosts":
            runs_rows(folder, arguments.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
