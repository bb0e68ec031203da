"""`./backchannel calibrate`: measures links in a cell of their own and holds them against what they declare."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from experiments.engine import machine
from experiments.engine.execution import lines_key
from experiments.language.campaign import Plan
from testbed import cpu_hold
from testbed.capability import require_emulation
from testbed.cell import Cell, topology_key
from testbed.report import Measurement
from testbed.scenario import DirectionSpec, LinkSpec, Named, Node, Scenario
from testbed.units import show

#: Lines at the rates that the calibration gate promises: name, bit/s, s.
STANDARD = (("dialup", 28_800, 0.05), ("uplink", 1_000_000, 0.02), ("ethernet", 10_000_000, 0.005))


def calibrate(plan: Plan | None) -> list[Measurement]:
    """Measures every link of a plan's distinct networks; without a plan, a chain of the standard rates.

    Raises:
        Unavailable: this machine cannot emulate.
        TestbedError: the testbed failed.
    """
    require_emulation()
    scenarios = [_standard()] if plan is None else _distinct(plan)
    measured = []
    with cpu_hold.held(wanted=machine.cpu_seconds()["steal"] > 0), Cell("calibration") as cell:
        for scenario in scenarios:
            cell.build(scenario)
            measured += cell.calibrate(scenario)
    return measured


def _distinct(plan: Plan) -> list[Scenario]:
    distinct: dict[tuple[str, str], Scenario] = {}
    for run in plan.runs:
        scenario = run.scenario
        distinct.setdefault((topology_key(scenario), lines_key(scenario)), scenario)
    return list(distinct.values())


def _standard() -> Scenario:
    names = ["a", "b", "c", "d"]
    nodes = tuple(Node(name=name, kind="host" if name in "ad" else "router") for name in names)
    links = []
    for (name, rate_bps, delay_s), left, right in zip(STANDARD, names, names[1:], strict=False):
        direction = DirectionSpec(rate_bps=rate_bps, delay_s=delay_s, queue=Named(name="droptail", options={}))
        links.append(
            LinkSpec(name=name, kind="point-to-point", ends=(left, right), forward=direction, reverse=direction)
        )
    return Scenario(version=1, seed=1, duration_s=1.0, nodes=nodes, links=tuple(links), workload=())


def table(measured: Sequence[Measurement]) -> Table:
    """The measurements for people."""
    shown = Table(box=None, pad_edge=False)
    for name in ("link", "rate", "off by", "delay", "measured", "lost", "verdict"):
        shown.add_column(name, justify="left" if name in ("link", "verdict") else "right", no_wrap=name != "verdict")
    for one in measured:
        declared, rate, delay = one.declared_rate_bps, one.measured_rate_bps, one.measured_delay_s
        error = f"{(rate / declared - 1) * 100:+.3f} %" if declared and rate else "–"
        shown.add_row(
            f"{one.link} {one.direction}", show(declared, "rate"), error,
            f"{one.declared_delay_s * 1e3:.2f} ms", "–" if delay is None else f"{delay * 1e3:.2f} ms",
            f"{one.sent - one.received}/{one.sent}", "; ".join(one.problems) or "good",
        )  # fmt: skip
    return shown
