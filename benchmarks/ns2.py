"""The settings of experiments/ns2, in our simulator and in ns-2, side by side.

    ./backchannel bench ns2                  # every row
    ./backchannel bench ns2 --differences    # every row again, with one known difference removed at a time

Throughput counts whole packets after the warm-up; ns-2's is of acknowledged packets, ours of packets that arrived in
order. It prints means with the half-widths of their 95 % intervals, and a verdict on each row: "same" if an equivalence
test shows that the means differ by less than the margin, "different" if they are unequal, else "cannot tell"; all rows
are judged together. docs/ns2.md has the results.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.statistics import MARGIN, compare_all
from analysis.store.documents import Batch
from benchmarks.agreement import verdict_text
from benchmarks.repeats import shown
from experiments.engine.execution import Worker
from experiments.language.campaign import load
from testbed.local_folders import ScratchFolder

HERE = Path(__file__).resolve().parent
CAMPAIGNS = HERE.parent / "experiments" / "ns2"
#: Counters, which are faster than captures.
COUNTED = "capture={at: [none], telemetry: false, counters: {every: 1 s, at: [bottleneck]}}"
#: Variation of round trips, by up to 1 % for each end, and the round trips without queues.
VARIED = "variation={start: none, processing: none, round_trip: 1 %, phase: none}"
ROUND_TRIP_S = {"two-flows": 0.1, "table1": 0.059, "two-way": 0.06, "two-rtts": 0.022}


@dataclass(frozen=True)
class Setting:
    """One row: a campaign with one point, and ns-2's arguments for the same."""

    title: str
    campaign: str
    overrides: tuple[str, ...]
    #: Setting, seconds, delayed acks and greatest stretch of line.tcl.
    ns2: tuple[str, str, str, str]
    #: Flow of the campaign by direction.
    flows: dict[str, str]


def _two_way(title: str, campaign: str, name: str, seconds: int, ack_every: int) -> Setting:
    overrides = (f"duration={seconds} s", f"stack.ack_every={ack_every}")
    return Setting(
        title, campaign, overrides, (name, str(seconds), str(ack_every - 1), "0"), {"down": "download", "up": "upload"}
    )


def _lossy(title: str, ack_every: int) -> Setting:
    return Setting(
        title, "loss", (f"stack.ack_every={ack_every}",), ("loss", "60", str(ack_every - 1), "0"), {"down": "download"}
    )


TWO_FLOWS = _two_way("two flows, 60 s", "aq-two-flows", "two-flows", 60, 1)
TABLE_1 = Setting(
    "asym table 1, Reno",
    "asym-table1-reno",
    ("network.access.rate=10 Mbit/s",),
    ("table1", "50", "0", "0"),
    {"down": "forward"},
)
SETTINGS = (
    TWO_FLOWS,
    _two_way("two flows, 60 s, delayed acks", "aq-two-flows", "two-flows", 60, 2),
    _two_way("two flows, 600 s", "aq-two-flows", "two-flows", 600, 1),
    _two_way("5 up, 10 down", "aq-main", "main", 60, 1),
    _two_way("5 up, 10 down, delayed acks", "aq-main", "main", 60, 2),
    TABLE_1,
    _two_way("10 Mbit/s and 128 kbit/s, delayed acks", "two-way", "two-way", 60, 2),
    _two_way("10 Mbit/s and 128 kbit/s", "two-way", "two-way", 60, 1),
    Setting(
        "round trips of 22 and 202 ms", "two-rtts", (), ("two-rtts", "60", "0", "0"), {"short": "short", "long": "long"}
    ),
    _lossy("random loss of 0.1 %", 1),
    _lossy("random loss of 0.1 %, delayed acks", 2),
)


def differences(setting: Setting) -> list[Setting]:
    """The row with each known difference to ns-2 removed on its own, and with all of them removed."""
    table_1 = setting.campaign == TABLE_1.campaign
    limit = 10 if table_1 else 50
    ways = ("forward", "reverse", "access") if table_1 else ("forward", "reverse")
    limits = dict.fromkeys(ways, limit)
    if setting.campaign == "two-way":
        limits["reverse"] = 20
    removed = {"queues of n - 1": [f"network.{way}.queue.limit={most - 1} packets" for way, most in limits.items()]}
    if setting.campaign in ("two-rtts", "loss"):
        removed = {}
    if table_1:
        removed["acks of 40 bytes"] = ["network.reverse.rate=192 kbit/s", "network.reverse.header_compression=none"]
    else:
        removed["timing in recovery"] = ["stack.timing_in_recovery=true"]
        removed["whole thresholds"] = ["stack.whole_threshold=true"]
    if "stack.ack_every=2" in setting.overrides:
        removed["no heartbeat of acks"] = ["stack.ack_heartbeat=false"]
    result = [_with(setting, name, overrides) for name, overrides in removed.items()]
    if table_1:
        bsd = [
            "stack.successive_fast_retransmits=true",
            "stack.successive_after_recovery=false",
            "stack.timeout_halves=outstanding",
        ]
        result.append(_with(setting, "4.4BSD's recovery", bsd))
    everything = [override for overrides in removed.values() for override in overrides]
    result.append(_with(setting, "all of these", everything))
    name, seconds, delayed, _ = setting.ns2
    if name in ROUND_TRIP_S:
        # The other settings draw their round trips already.
        both = (name, seconds, delayed, str(0.01 * ROUND_TRIP_S[name]))
        result.append(replace(_with(setting, "round trips vary in both", [VARIED]), ns2=both))
        result.append(replace(_with(setting, "all, and round trips vary", [*everything, VARIED]), ns2=both))
    return result


def _with(setting: Setting, name: str, overrides: list[str]) -> Setting:
    return replace(setting, title=f"{setting.title}: {name}", overrides=(*setting.overrides, *overrides))


def ours(setting: Setting, runs: int, folder: Path) -> dict[str, list[float]]:
    """Mbit/s of each direction in every run; one run if all would be the same."""
    file = CAMPAIGNS / f"{setting.campaign}.yaml"
    plan = load(file, [*setting.overrides, COUNTED, f"repetitions={runs}"])
    result: dict[str, list[float]] = {direction: [] for direction in setting.flows}
    worker = Worker("bench", lambda _: None)
    for number, run in enumerate(plan.runs):
        out = folder / f"{setting.campaign}-{number}"
        out.mkdir()
        rows = {(row.metric, row.subject): row.value for row in worker.run(run, 1, out)(Batch()).metrics}
        for direction, flow in setting.flows.items():
            result[direction].append(rows["packet_throughput", flow] / 1e6)
        shutil.rmtree(out)
    return result


def ns2(arguments: tuple[str, str, str, str], directions: Iterable[str], runs: int) -> dict[str, list[float]]:
    """The same of ns-2."""
    name, *rest = arguments
    result: dict[str, list[float]] = {direction: [] for direction in directions}
    for seed in range(1, runs + 1):
        words = ["ns", str(HERE / "line.tcl"), name, str(seed), *rest]
        printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        values = dict(line.split() for line in printed.splitlines())
        for direction, measured in result.items():
            measured.append(float(values[direction]) / 1e6)
    return result


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="Our simulator's throughput beside ns-2's.")
    parser.add_argument("--runs", type=int, default=10, help="runs of each setting, each with its own seed (10)")
    parser.add_argument("--margin", type=float, default=MARGIN, help="greatest difference of 'same' rows (0.05)")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose title contains this; all by default")
    parser.add_argument(
        "--differences", action="store_true", help="also run each row with one known difference removed at a time"
    )
    args = parser.parse_args()
    rows = [row for row in SETTINGS if args.only in row.title]
    if args.differences:
        rows = [entry for row in rows for entry in (row, *differences(row))]
    sets, titles = [], []
    results_of_ns2: dict[tuple[str, ...], dict[str, list[float]]] = {}
    with ScratchFolder() as folder:
        print(f"{'setting':<58} {'':<5} {'ns-2 (Mbit/s)':>24} {'ours':>24} {'ours/ns-2':>10}")
        for row in rows:
            theirs = results_of_ns2.get(row.ns2) or ns2(row.ns2, row.flows, args.runs)
            results_of_ns2[row.ns2] = theirs
            own = ours(row, args.runs, folder)
            for direction in row.flows:
                # The seeds differ, so the runs are not pairs.
                first, second = theirs[direction], own[direction]
                sets.append((dict(enumerate(first)), dict(enumerate(second, len(first)))))
                titles.append(f"{row.title}, {direction}")
                ratio = sum(second) / len(second) / (sum(first) / len(first))
                print(
                    f"{row.title:<58} {direction:<5} {shown(first):>24} {shown(second):>24} {ratio:>10.3f}", flush=True
                )
        print(f"\n{len(sets)} comparisons, judged together at 95 %, margin {args.margin:.0%}:")
        for title, entry in zip(titles, compare_all(sets, margin=args.margin), strict=True):
            print(f"{title:<64} {verdict_text(entry)}")


if __name__ == "__main__":
    main()
