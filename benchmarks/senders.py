"""Scenarios with the research stack's senders beside Linux's own in virtual time.

    ./backchannel bench senders [--sender NAME] [--only NAME] [--repetitions N] [--kernel NAME]

Each scenario runs N times (6) in the simulator with `modern` and on Linux 7.3 in virtual time with the kernel's TCP,
with the same seeds, and so the same start times and errors. The table has the throughput of the first flow, or for
short transfers the time that one takes, and the segments sent again. The verdicts take all scenarios together, at 95 %:
"same" if an equivalence test shows that the means differ by less than the margin (5 %), "different" if they are
unequal, else "cannot tell". docs/senders.md explains what differs.

BBR's third version is in trees of Linux, and in no release. Held against one of them:

    ./backchannel kernel build --source TREE --name bbr3
    ./backchannel bench senders --sender BBRv3 --kernel bbr3
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.results import Values
from analysis.statistics import MARGIN, mean
from benchmarks.agreement import measured, tell_verdicts
from benchmarks.repeats import shown

#: Simulated, and what it is held against.
BACKENDS = ("sim", "virtual-kernel")
#: Both stacks of a sender: the research stack's, the kernel's. Linux's Reno has no HyStart.
SENDERS = {
    "CUBIC": ("name: modern", "name: cubic"),
    "Reno": ("name: modern, congestion: newreno, slow_start: standard", "name: reno"),
    "Vegas": ("name: modern-vegas, slow_start: standard", "name: vegas"),
    "DCTCP": ("name: modern-dctcp, slow_start: standard", "name: dctcp, ecn: true"),
    "BBR": ("name: modern-bbr1", "name: bbr"),
    "BBRv3": ("name: modern-bbr", "name: bbr"),
}
KERNEL = "7.3"
DOWN = "  - {name: flow, from: right, to: left, start: [0 s, 0.2 s]}\n"
TWO = DOWN + "  - {name: second, from: right, to: left, start: [2 s, 2.2 s]}\n"
#: Two links before the line would delay bursts; a line alone has one queue each way.
LINE = """  topology: line
  forward: {{rate: {up}, delay: {delay}, queue: {{policy: droptail, limit: {up_queue} packets}}}}
  reverse: {{rate: {down}, delay: {delay}, queue: {queue}{more}}}
"""


def line(
    down: str, delay: str, limit: int, *, up: str = "", up_queue: int = 200, more: str = "", queue: str = ""
) -> str:
    """A line whose slow direction the data take, from right to left."""
    queue = queue or f"{{policy: droptail, limit: {limit} packets}}"
    return LINE.format(down=down, up=up or down, delay=delay, queue=queue, up_queue=up_queue, more=more)


@dataclass(frozen=True)
class Scenario:
    """What differs from the common file."""

    sender: str
    network: str
    workload: str = DOWN
    duration: str = "12 s"
    metric: str = "throughput"
    #: Sender of a second flow; empty: what `workload` says.
    rival: str = ""


MARKS = "{policy: red, limit: 200 packets, min_fraction: 0.1, max_fraction: 0.105, weight: 1, max_p: 1}"
TEN = line("10 Mbit/s", "20 ms", 40)
SHORT = (
    "  - {name: flow, from: right, to: left, kind: transfers, options: {mean: 100 kB, sizes: constant, "
    "arrivals: constant, distance: 1 s}, start: [0 s, 0.2 s]}\n"
)
#: CUBIC's, which BBR has too.
OF_CUBIC: Mapping[str, Scenario] = {
    "CUBIC, 10 Mbit/s, 40 ms": Scenario("CUBIC", TEN),
    "CUBIC, 2 Mbit/s, 120 ms": Scenario("CUBIC", line("2 Mbit/s", "60 ms", 30)),
    "CUBIC, 50 Mbit/s, 20 ms": Scenario("CUBIC", line("50 Mbit/s", "10 ms", 100), duration="8 s"),
    "CUBIC, 10 packets of buffer": Scenario("CUBIC", line("10 Mbit/s", "20 ms", 10)),
    "CUBIC, 400 packets of buffer": Scenario("CUBIC", line("10 Mbit/s", "20 ms", 400)),
    "CUBIC, 0.1 % lost": Scenario(
        "CUBIC", line("10 Mbit/s", "20 ms", 40, more=", errors: [{model: uniform, probability: 0.001}]")
    ),
    "CUBIC, 1 % lost": Scenario(
        "CUBIC", line("10 Mbit/s", "20 ms", 40, more=", errors: [{model: uniform, probability: 0.01}]")
    ),
    "CUBIC, 5 % lost": Scenario(
        "CUBIC",
        line("10 Mbit/s", "20 ms", 40, more=", errors: [{model: uniform, probability: 0.05}]"),
        duration="30 s",
    ),
    "CUBIC, bursts of loss": Scenario(
        "CUBIC",
        line("10 Mbit/s", "20 ms", 40, more=", errors: [{model: gilbert-elliott, p: 0.002, r: 0.3}]"),
        duration="20 s",
    ),
    "CUBIC, reordering": Scenario(
        "CUBIC",
        line("10 Mbit/s", "20 ms", 40, more=", errors: [{model: reorder, probability: 0.02, delay: 8 ms}]"),
    ),
    "CUBIC, 10/0.1 Mbit/s": Scenario("CUBIC", line("10 Mbit/s", "20 ms", 40, up="100 kbit/s", up_queue=20)),
    "CUBIC, 10/0.5 Mbit/s and an upload": Scenario(
        "CUBIC",
        line("10 Mbit/s", "20 ms", 40, up="500 kbit/s", up_queue=20),
        DOWN + "  - {name: upload, from: left, to: right, start: [1 s, 1.2 s]}\n",
    ),
    "CUBIC, two flows": Scenario("CUBIC", TEN, TWO),
    "CUBIC, transfers of 100 kB": Scenario("CUBIC", TEN, SHORT, metric="flow_completion_p50"),
    "CUBIC, transfers of 100 kB, 1 % lost": Scenario(
        "CUBIC",
        line("10 Mbit/s", "20 ms", 40, more=", errors: [{model: uniform, probability: 0.01}]"),
        SHORT,
        "30 s",
        "flow_completion_p50",
    ),
}
SCENARIOS: dict[str, Scenario] = {
    **OF_CUBIC,
    "Reno, 10 Mbit/s, 40 ms": Scenario("Reno", TEN),
    "Reno, 1 % lost": Scenario(
        "Reno", line("10 Mbit/s", "20 ms", 40, more=", errors: [{model: uniform, probability: 0.01}]")
    ),
    "Vegas, 10 Mbit/s, 40 ms": Scenario("Vegas", TEN),
    "Vegas, two flows": Scenario("Vegas", TEN, TWO),
    "DCTCP, marks from 20 packets on": Scenario("DCTCP", line("10 Mbit/s", "5 ms", 200, queue=MARKS)),
    **{name.replace("CUBIC", "BBR"): replace(scenario, sender="BBR") for name, scenario in OF_CUBIC.items()},
    # So many that BBR takes them for a policer's.
    "BBR, 20 % lost": Scenario(
        "BBR", line("10 Mbit/s", "20 ms", 40, more=", errors: [{model: uniform, probability: 0.2}]"), duration="30 s"
    ),
    # PROBE_RTT each ten seconds.
    "BBR, 40 s": Scenario("BBR", TEN, duration="40 s"),
    "BBR, beside CUBIC": Scenario("BBR", TEN, duration="30 s", rival="CUBIC"),
}
SCENARIOS |= {
    name.replace("BBR", "BBRv3"): replace(scenario, sender="BBRv3")
    for name, scenario in SCENARIOS.items()
    if scenario.sender == "BBR"
}
"""Every scenario by its name."""


def stack(sender: str, backend: str) -> str:
    """The stack of a sender, as a campaign has it."""
    return f"{{{SENDERS[sender][BACKENDS.index(backend)]}, receive_buffer: 4 MB}}"


def values_of(scenario: Scenario, backend: str, options: argparse.Namespace, folder: Path) -> tuple[Values, Values]:
    """The scenario's metric and the segments sent again by the first flow, of each valid run."""
    file = folder / "scenario.yaml"
    workload = scenario.workload
    if scenario.rival:
        second = stack(scenario.rival, backend)
        workload += f"  - {{name: second, from: right, to: left, start: [2 s, 2.2 s], stack: {second}}}\n"
    kernel = "" if backend == "sim" else f'kernel: "{options.kernel}"\n'
    file.write_text(
        f"name: senders\nbackend: {backend}\n{kernel}network:\n{scenario.network}"
        f"stack: {stack(scenario.sender, backend)}\nworkload:\n{workload}duration: {scenario.duration}\n"
        f"repetitions: {options.repetitions}\n"
        # By default hosts of the simulator alone take time for a segment, as much as the fastest line.
        "variation: {processing: none}\n"
    )
    of_run = measured(file, folder / backend)
    of_flow = {quantity.metric: values for quantity, values in of_run.items() if quantity.subject == "flow"}
    return of_flow.get(scenario.metric, {}), of_flow.get("retransmissions", {})


def main() -> None:
    """Prints a line for each scenario, with its verdict behind it."""
    parser = argparse.ArgumentParser(prog="./backchannel bench senders", description=__doc__)
    parser.add_argument("--sender", choices=SENDERS, action="append", help="the scenarios of a sender; repeatable")
    parser.add_argument("--only", choices=sorted(SCENARIOS), action="append", help="a scenario; repeatable")
    parser.add_argument("--repetitions", type=int, default=6, help="runs of each on either side (6)")
    parser.add_argument("--margin", type=float, default=MARGIN, help="greatest difference of what agrees (0.05)")
    parser.add_argument("--kernel", default=KERNEL, metavar="NAME", help=f"Linux on the other side ({KERNEL})")
    options = parser.parse_args()
    senders = options.sender or [sender for sender in SENDERS if sender != "BBRv3"]
    names = options.only or [name for name, scenario in SCENARIOS.items() if scenario.sender in senders]
    if options.kernel == KERNEL and any(SCENARIOS[name].sender == "BBRv3" for name in names):
        parser.error(
            f"Linux {KERNEL} has BBR's first version; --kernel names one with the third, which "
            "./backchannel kernel build --source TREE --name NAME builds"
        )
    print(f"{'scenario':38} {'modern (kbit/s or ms)':>24} {f'Linux {options.kernel}':>24} {'sent again':>16}")
    pairs: list[tuple[Values, Values]] = []
    for name in names:
        scenario = SCENARIOS[name]
        with tempfile.TemporaryDirectory() as folder:
            sides = [values_of(scenario, backend, options, Path(folder)) for backend in BACKENDS]
        (ours, ours_again), (linux, linux_again) = sides
        if not ours or not linux:
            raise SystemExit(f"{name}: no valid run")
        scale = 1e-3 if scenario.metric == "throughput" else 1e3
        columns = [shown([scale * value for value in values.values()]) for values in (ours, linux)]
        again = " / ".join(
            f"{mean(list(values.values())):.0f}" if values else "-" for values in (ours_again, linux_again)
        )
        print(f"{name:38} {columns[0]:>24} {columns[1]:>24} {again:>16}", flush=True)
        pairs.append((ours, linux))
    tell_verdicts([f"{name:38} Linux beside modern" for name in names], pairs, options.margin)


if __name__ == "__main__":
    main()
