"""The settings of experiments/ns2, in our simulator and in ns-2, side by side.

    ./backchannel bench ns2

Throughput counts whole packets after the warm-up; ns-2's is of acknowledged packets, ours of packets that arrived in
order. It prints means with the half-widths of their 95 % intervals, and a verdict on each row: "same" if an equivalence
test shows that the means differ by less than the margin, "different" if they are unequal, else "cannot tell"; all rows
are judged together. docs/ns2.md explains what is left of a difference.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from analysis.captures import RunData
from analysis.metrics import packet_throughput
from analysis.statistics import MARGIN, compare_all
from analysis.store.documents import Batch
from experiments.engine.execution import Worker
from experiments.language.campaign import load
from tests.benchmarks.repeats import shown

HERE = Path(__file__).resolve().parent
CAMPAIGNS = HERE.parents[1] / "experiments" / "ns2"


@dataclass(frozen=True)
class Setting:
    """One row: a campaign with one point, and ns-2's arguments for the same."""

    title: str
    campaign: str
    overrides: tuple[str, ...]
    ns2: tuple[str, str, str]
    directions: tuple[str, ...]


SETTINGS = (
    Setting("two flows, 60 s", "aq-two-flows", ("duration=60 s", "stack.ack_every=1"),
            ("two-flows", "60", "0"), ("down", "up")),
    Setting("two flows, 60 s, delayed acks", "aq-two-flows", ("duration=60 s", "stack.ack_every=2"),
            ("two-flows", "60", "1"), ("down", "up")),
    Setting("two flows, 600 s", "aq-two-flows", ("duration=600 s", "stack.ack_every=1"),
            ("two-flows", "600", "0"), ("down", "up")),
    Setting("5 up, 10 down", "aq-main", ("stack.ack_every=1",), ("main", "60", "0"), ("down", "up")),
    Setting("5 up, 10 down, delayed acks", "aq-main", ("stack.ack_every=2",), ("main", "60", "1"), ("down", "up")),
    Setting("asym table 1, Reno", "asym-table1-reno", ("network.access.rate=10 Mbit/s",),
            ("table1", "50", "0"), ("down",)),
)  # fmt: skip
#: What the campaigns call a direction.
GROUPS = {"down": ("download", "forward"), "up": ("upload", "reverse")}


def ours(setting: Setting, runs: int, folder: Path) -> dict[str, list[float]]:
    """Mbit/s of each direction in every run."""
    file = CAMPAIGNS / f"{setting.campaign}.yaml"
    plan = load(file, [*setting.overrides, f"repetitions={runs}"])
    found: dict[str, list[float]] = {direction: [] for direction in setting.directions}
    worker = Worker("bench", lambda _: None)
    for number, run in enumerate(plan.runs):
        out = folder / f"{setting.campaign}-{number}"
        out.mkdir()
        landing = worker.run(run, 1, out)(Batch())
        data = RunData.load(out, run.scenario, landing.documents.report)
        for direction in setting.directions:
            of_group = [flow for flow in data.flows if (flow.group or flow.name) in GROUPS[direction]]
            found[direction].append(sum(packet_throughput(flow) for flow in of_group) / 1e6)
        shutil.rmtree(out)
    return found


def ns2(setting: Setting, runs: int) -> dict[str, list[float]]:
    """The same of ns-2."""
    name, seconds, delayed = setting.ns2
    found: dict[str, list[float]] = {direction: [] for direction in setting.directions}
    for seed in range(1, runs + 1):
        words = ["ns", str(HERE / "line.tcl"), name, str(seed), seconds, delayed]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        values = dict(line.split() for line in said.splitlines())
        for direction in setting.directions:
            found[direction].append(float(values[direction]) / 1e6)
    return found


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="Our simulator's throughput beside ns-2's.")
    parser.add_argument("--runs", type=int, default=10, help="runs of each setting, each with its own seed (10)")
    parser.add_argument("--margin", type=float, default=MARGIN, help="greatest difference of 'same' rows (0.05)")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="backchannel-bench-"))
    sets = []
    try:
        print(f"{'setting':<32} {'':<5} {'ns-2 (Mbit/s)':>24} {'ours':>24} {'ours/ns-2':>10}")
        for setting in SETTINGS:
            theirs, own = ns2(setting, args.runs), ours(setting, args.runs, folder)
            for direction in setting.directions:
                # Other seeds mean other draws: the runs are no pairs.
                first, second = theirs[direction], own[direction]
                sets.append((dict(enumerate(first)), dict(enumerate(second, len(first)))))
                ratio = sum(second) / len(second) / (sum(first) / len(first))
                row = f"{setting.title:<32} {direction:<5}"
                print(f"{row} {shown(first):>24} {shown(second):>24} {ratio:>10.3f}", flush=True)
        titles = [f"{setting.title}, {direction}" for setting in SETTINGS for direction in setting.directions]
        print(f"\n{len(sets)} comparisons, judged together at 95 %, margin {args.margin:.0%}:")
        for title, one in zip(titles, compare_all(sets, margin=args.margin), strict=True):
            half = "" if one.difference.half is None else f" ± {one.difference.half / one.difference.mean_first:.1%}"
            print(f"{title:<38} {one.difference.relative:+.1%}{half}  {one.verdict}")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
