"""Twenty-one scenarios over all links and policies, simulated and with real packets, side by side.

    ./backchannel bench agreement [--only NAME] [--beside emulated] [--beside virtual-kernel] [--repetitions N]

Each scenario runs N times (6) on every backend with the same seeds, and so the same start times and errors, and hosts
that take no time for a segment beyond what theirs really take. Runs of one seed are paired, and the verdicts take all
comparisons together, at 95 %: "same" if an equivalence test shows that the means differ by less than the margin (5 % of
the first one's), "different" if they are unequal, else "cannot tell". docs/history/measurements.md has what is left.
A run in the virtual kernel is never late, so it tells a wrong model from a late machine.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from analysis.results import Quantity, Values, by_point
from analysis.statistics import MARGIN, Compared, compare_all
from analysis.store import Store
from benchmarks.repeats import shown

ROOT = Path(__file__).resolve().parents[1]

QUEUE = "{policy: droptail, limit: 20 packets}"
MODEM = "  topology: asymmetric-path\n"
#: What the simulator is held against.
BESIDE = ("emulated", "virtual-kernel")
STACK = "{name: reno-ns, timestamps: true, packet: 1000 B}"
BULK = "  - {name: bulk, from: server, to: client, start: [0 s, 0.5 s]}\n"
BOTH = BULK + "  - {name: back, from: client, to: server, start: [0 s, 0.5 s]}\n"


def asymmetric(policy: str, rate: str = "1 Mbit/s", more: str = "") -> str:
    """The paper's path with a queue at its slow line."""
    return (
        f"{MODEM}  forward: {{rate: 5 Mbit/s, delay: 5 ms, queue: {QUEUE}}}\n"
        f"  reverse: {{rate: {rate}, delay: 20 ms, queue: {policy}{more}}}\n"
    )


@dataclass(frozen=True)
class Scenario:
    """What differs from the common file."""

    network: str
    workload: str = BULK
    stack: str = STACK
    duration: str = "12 s"


WAVELAN = """  topology: wireless
  link: wavelan
{box}  forward: {{rate: 2 Mbit/s, delay: 0.5 ms, queue: {{policy: droptail, limit: 100 packets}}, errors: {errors}}}
"""
LOSSY = "[{model: exponential, mean: 65536 B}]"
TO_MOBILE = "  - {name: bulk, from: server, to: mobile, start: [0 s, 0.5 s]}\n"
RADIO = """  topology: packet-radio
  link: {kind: ricochet, hops: HOPS}
  forward: {rate: 100 kbit/s, delay: 10 ms, queue: {policy: droptail, limit: 10 packets}}
"""

SCENARIOS: Mapping[str, Scenario] = {
    "droptail, two ways": Scenario(asymmetric(QUEUE), BOTH),
    "drop from front": Scenario(asymmetric("{policy: drop-from-front, limit: 20 packets}"), BOTH),
    "RED that drops": Scenario(asymmetric("{policy: red, limit: 20 packets, action: drop}"), BOTH),
    "ACC over RED that marks": Scenario(
        asymmetric("{policy: red, limit: 10 packets}", rate="28.8 kbit/s"), stack="{name: acc-sa, packet: 1000 B}"
    ),
    "ack filtering, 28.8 kbit/s": Scenario(
        asymmetric("{policy: ack-filtering, limit: 10 packets}", rate="28.8 kbit/s"), stack="{name: sa, packet: 1000 B}"
    ),
    "acks first": Scenario(asymmetric("{policy: acks-first, limit: 20 packets}"), BOTH),
    "acks first, filtered": Scenario(asymmetric("{policy: ack-filtering-acks-first, limit: 20 packets}"), BOTH),
    "halves": Scenario(asymmetric("{policy: cbq-5050, limit: 20 packets}"), BOTH),
    "fair queueing": Scenario(asymmetric("{policy: fq-drr, limit: 40 packets}"), BOTH),
    "AQ": Scenario(asymmetric("{policy: aq, limit: 50 packets, ack: 52 B, data: 1000 B}"), BOTH),
    "ACQ": Scenario(asymmetric("{policy: acq, limit: 40 packets, period: 1 s}"), BOTH),
    "CoDel": Scenario(asymmetric("{policy: codel, limit: 100 packets}"), BOTH),
    "header compression, 9.6 kbit/s": Scenario(
        asymmetric("{policy: droptail, limit: 10 packets}", rate="9.6 kbit/s", more=", header_compression: cslip"),
        stack="{name: reno-ns, timestamps: false, ack_every: 1, packet: 1000 B}",
    ),
    "rates and delays that change": Scenario(
        MODEM
        + """  forward: {rate: 5 Mbit/s, delay: 5 ms, queue: {policy: droptail, limit: 20 packets},
            changes: [{at: 3 s, rate: 1 Mbit/s}, {at: 6 s, rate: 8 Mbit/s, delay: 20 ms}]}
  reverse: {rate: 1 Mbit/s, delay: 20 ms}
"""
    ),
    "bursts of loss": Scenario(
        MODEM
        + """  forward: {rate: 5 Mbit/s, delay: 5 ms, errors: [{model: gilbert-elliott, p: 0.005, r: 0.4}]}
  reverse: {rate: 1 Mbit/s, delay: 20 ms}
"""
    ),
    "Mahimahi trace": Scenario(
        """  topology: line
  link: mahimahi
  forward: {trace: cellular.trace, delay: 20 ms, queue: {policy: droptail, limit: 60 packets}}
  reverse: {trace: cellular.trace, delay: 20 ms}
""",
        "  - {name: bulk, from: left, to: right, start: [0 s, 0.5 s]}\n",
    ),
    "WaveLAN, lossy, end to end": Scenario(WAVELAN.format(box="", errors=LOSSY), TO_MOBILE),
    "WaveLAN, lossy, snoop": Scenario(WAVELAN.format(box="  middlebox: ll-tcp-aware\n", errors=LOSSY), TO_MOBILE),
    "packet radio, one hop": Scenario(RADIO.replace("HOPS", "1"), TO_MOBILE, duration="30 s"),
    "packet radio, three hops": Scenario(RADIO.replace("HOPS", "3"), TO_MOBILE, duration="30 s"),
    "cable down, packet radio up": Scenario(
        """  topology: hybrid
  link: ricochet
  forward: {rate: 10 Mbit/s, delay: 5 ms, queue: {policy: droptail, limit: 20 packets}}
  reverse: {rate: 100 kbit/s, delay: 10 ms, queue: {policy: droptail, limit: 10 packets}}
"""
    ),
}
"""Every scenario by its name; each is measured by the throughput of its first flow."""


def trace() -> str:
    """A made-up cellular trace: opportunities that come and go in waves of a second, 4 Mbit/s on average."""
    lines = []
    credit = 0.0
    for ms in range(1, 10_001):
        credit += 0.33 * (1 + 0.8 * math.sin(ms / 160))
        while credit >= 1:
            lines.append(str(ms))
            credit -= 1
    return "\n".join([*lines, "10000"]) + "\n"


def throughputs(name: str, backend: str, options: argparse.Namespace, folder: Path) -> tuple[Values, int]:
    """Bit/s of the first flow in each valid run, and how many runs were not."""
    entry = SCENARIOS[name]
    file = folder / "scenario.yaml"
    (folder / "cellular.trace").write_text(trace())
    file.write_text(
        f"name: agreement\nbackend: {backend}\nnetwork:\n{entry.network}stack: {entry.stack}\n"
        f"workload:\n{entry.workload}duration: {entry.duration}\nrepetitions: {options.repetitions}\n"
        # By default hosts of the simulator alone take time for a segment, as much as the fastest line.
        "variation: {processing: none}\n"
    )
    more = ["--jobs", str(options.jobs)] if backend == "emulated" else []
    values = measured(file, folder / backend, *more).get(Quantity("throughput", "bulk", "rate"), {})
    return values, options.repetitions - len(values)


def measured(file: Path, results: Path, *more: str) -> Mapping[Quantity, Values]:
    """Runs a campaign of one point with more options. Returns what its valid runs measured."""
    words = [sys.executable, "-m", "experiments", "run", str(file), "--results", str(results), "--json", *more]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"{file.read_text()}\n{done.stderr.strip()}")
    with Store.open(results) as store:
        (campaign,) = store.campaigns()
        return by_point(store.values(campaign.id)).get(0, {})


def main() -> None:
    """Prints a line for each scenario, and the verdicts."""
    parser = argparse.ArgumentParser(prog="./backchannel bench agreement", description=__doc__)
    parser.add_argument("--only", choices=sorted(SCENARIOS), action="append", help="a scenario; repeatable")
    parser.add_argument("--beside", choices=BESIDE, action="append", help="held against sim; repeatable (emulated)")
    parser.add_argument("--repetitions", type=int, default=6, help="runs of each on every backend (6)")
    parser.add_argument("--jobs", type=int, default=2, help="emulated runs at a time (2)")
    parser.add_argument("--margin", type=float, default=MARGIN, help="greatest difference of what agrees (0.05)")
    options = parser.parse_args()
    backends = ("sim", *dict.fromkeys(options.beside or BESIDE[:1]))
    print(f"{'scenario':34} {'sim (kbit/s)':>24}" + "".join(f" {name:>24}" for name in backends[1:]))
    result: dict[str, dict[str, Values]] = {}
    for name in options.only or SCENARIOS:
        with tempfile.TemporaryDirectory() as folder:
            runs = {backend: throughputs(name, backend, options, Path(folder)) for backend in backends}
        result[name] = {backend: values for backend, (values, _) in runs.items() if values}
        columns = (shown([value / 1e3 for value in of.values()]) if of else "-" for of, _ in runs.values())
        invalid = [f"{count} {backend} runs not valid" for backend, (_, count) in runs.items() if count]
        said = f"  ({', '.join(invalid)})" if invalid else ""
        print(f"{name:34} {' '.join(f'{column:>24}' for column in columns)}{said}", flush=True)
    _judge(result, list(combinations(backends, 2)), options.margin)


def _judge(found: Mapping[str, Mapping[str, Values]], pairs: list[tuple[str, str]], margin: float) -> None:
    """Prints a verdict for each scenario and pair of backends that both have valid runs."""
    asked = [(name, pair) for name, of in found.items() for pair in pairs if all(backend in of for backend in pair)]
    labels = [f"{name:34} {b} beside {a}" for name, (a, b) in asked]
    tell_verdicts(labels, [(found[name][a], found[name][b]) for name, (a, b) in asked], margin)


def verdict_text(entry: Compared) -> str:
    """A relative difference with its half-width, and the verdict on it."""
    half = "" if entry.difference.half is None else f" ± {entry.difference.half / entry.difference.mean_first:.1%}"
    return f"{entry.difference.relative:+.1%}{half}  {entry.verdict}"


def tell_verdicts(labels: Sequence[str], pairs: Sequence[tuple[Values, Values]], margin: float) -> None:
    """Prints a verdict for each pair of sets of runs, judged together, and how many there are of each."""
    judged = compare_all(pairs, margin=margin)
    print(f"\n{len(judged)} comparisons, judged together at 95 %, margin {margin:.0%}:")
    for label, entry in zip(labels, judged, strict=True):
        print(f"{label}: {verdict_text(entry)}")
    counts = {word: sum(entry.verdict == word for entry in judged) for word in ("same", "different", "cannot tell")}
    print(", ".join(f"{count} {word}" for word, count in counts.items()))


if __name__ == "__main__":
    main()
