"""Values that a campaign reads from the output of its programs (core::command::OutputMetric).

They are what a program states, not what captures show, so their names are `output.NAME`.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import regex

from analysis.results import OUTPUT, MetricValue
from testbed import commands
from testbed.report import CommandReport
from testbed.scenario import Flow, OutputMetric, Scenario

#: Time limit of a search, in s: that of a pattern with repetitions in repetitions doubles with each character.
MOST_MATCHING_S = 5.0


@dataclass(frozen=True)
class Outputs:
    """What was found in the output of a run's programs."""

    rows: list[MetricValue] = field(default_factory=list)
    #: Why values are missing, as sentences.
    problems: list[str] = field(default_factory=list)


def read(folder: Path, scenario: Scenario) -> Outputs:
    """The values of all flows. A flow whose output was not kept has none, and no problem."""
    found = Outputs()
    for flow in scenario.workload:
        for name, spec in {} if flow.command is None else flow.command.metrics.items():
            role, ending = commands.STREAMS[spec.of]
            path = folder / commands.FOLDER / commands.output_file(flow.name, role, ending)
            if not path.is_file():
                continue
            try:
                value = value_in(path.read_text(errors="replace"), spec) * float(spec.scale)
            except ValueError as error:
                found.problems.append(f"flow {flow.name}: {OUTPUT}{name}: {error} (in {path.name})")
            else:
                found.rows.append(MetricValue(f"{OUTPUT}{name}", flow.name, value, spec.unit))
    return found


def program_report(folder: Path | None, flow: Flow) -> CommandReport | None:
    """How the programs of a flow ran; None if it has none, or nothing was kept."""
    path = None if folder is None or flow.command is None else folder / commands.FOLDER / f"{flow.name}.json"
    return None if path is None or not path.is_file() else CommandReport.read(json.loads(path.read_text()))


def value_in(text: str, spec: OutputMetric) -> float:
    """The number that a metric names, in the program's own unit.

    Raises:
        ValueError: there is none; the message says why.
    """
    value = _at_path(text, spec.json) if spec.json is not None else _of_pattern(text, spec.pattern or "")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"'{str(value)[:40]}' is not a number") from None
    if not math.isfinite(number):
        raise ValueError(f"{number} is not a finite number")
    return number


def _of_pattern(text: str, pattern: str) -> Any:
    try:
        matches = regex.finditer(pattern, text, regex.MULTILINE, timeout=MOST_MATCHING_S)
        found = [match[1] for match in matches if match[1] is not None]
    except TimeoutError:
        raise ValueError(
            f"'{pattern}' was sought for {MOST_MATCHING_S:g} s without an end; write it without repetitions in "
            "repetitions"
        ) from None
    if not found:
        raise ValueError(f"nothing in the output matches '{pattern}'")
    return found[-1]


def _at_path(text: str, path: str) -> Any:
    here = _json(text)
    for depth, step in enumerate(path.split(".")):
        where = ".".join(path.split(".")[:depth]) or "the output"
        if isinstance(here, dict) and step in here:
            here = here[step]
        elif isinstance(here, list) and step.isdecimal() and int(step) < len(here):
            here = here[int(step)]
        else:
            has = ", ".join(list(here)[:12]) if isinstance(here, dict) else f"a {type(here).__name__}"
            raise ValueError(f"{where} has no '{step}'; it has: {has or 'nothing'}")
    # True is an int for Python.
    return str(here) if isinstance(here, bool) else here


def _json(text: str) -> Any:
    """The output as a whole, or its last line: programs report progress before their result."""
    lines = text.strip().splitlines()
    for candidate in (text, lines[-1] if lines else ""):
        try:
            return json.loads(candidate)
        except (ValueError, RecursionError):
            continue
    raise ValueError("the output is not JSON, and neither is its last line")
