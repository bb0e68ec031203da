"""Audits a run's links: compares the captures at both ends with the declared lines (`backchannel-node audit`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed import node_binary
from testbed.addressing import Route, as_json, make_plan
from testbed.report import Report
from testbed.scenario import Scenario


def audited(
    scenario: Scenario, report: Report, folder: Path, routes: Mapping[str, Sequence[Route]] | None = None, **more: Any
) -> Report:
    """The report with an audit of every link.

    Args:
        scenario: of the run.
        report: of the run, without an audit.
        folder: the run's files; its captures are not compressed yet.
        routes: of nodes, beyond those of the scenario.
        more: further fields of the request, for tests.

    Raises:
        TestbedError: a capture or the telemetry cannot be read.
    """
    if report.hosts is not None:
        unchecked = {"unchecked": {"all": "the ends of a link on real hosts have different clocks"}}
        audit = {link.name: {way: unchecked for way, _ in link.directions()} for link in scenario.links}
    else:
        run = {
            "scenario": scenario.for_node(),
            "nodes": as_json(make_plan(scenario.nodes, scenario.links), routes),
            "t0_epoch_ns": report.t0_epoch_ns,
            "duration_s": scenario.duration_s if report.duration_s is None else report.duration_s,
            **more,
        }
        audit = node_binary.call(
            "audit",
            "--captures",
            str(folder / "captures"),
            "--telemetry",
            str(folder / "telemetry/links.jsonl"),
            stdin=json.dumps(run),
        )
    return Report.read({**report.as_json(), "audit": audit})
