"""`./backchannel calibrate`: measures links in a cell and compares them with their declared values."""

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

#: Standard lines: name, rate in bit/s, delay in s.
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
    """The measurements as a table."""
    shown = Table(box=None, pad_edge=False)
    for name in ("link", "rate", "off by", "delay", "measured", "lost", "verdict"):
        shown.add_column(name, justify="left" if name in ("link", "verdict") else "right", no_wrap=name != "verdict")
    for line in measured:
        declared, rate, delay = line.declared_rate_bps, line.measured_rate_bps, line.measured_delay_s
        error = f"{(rate / declared - 1) * 100:+.3f} %" if declared and rate else "–"
        shown.add_row(
            f"{line.link} {line.direction}",
            show(declared, "rate"),
            error,
            f"{line.declared_delay_s * 1e3:.2f} ms",
            "–" if delay is None else f"{delay * 1e3:.2f} ms",
            f"{line.sent - line.received}/{line.sent}",
            "; ".join(line.problems) or "good",
        )
    return shown
