"""Addresses of scenarios that tests and benchmarks write as JSON."""

from __future__ import annotations

from typing import Any

from testbed.addressing import Plan, make_plan
from testbed.scenario import Scenario


def planned(scenario: dict[str, Any]) -> Plan:
    """The addresses and routes of a scenario."""
    typed = Scenario.read(scenario)
    return make_plan(typed.nodes, typed.links)
