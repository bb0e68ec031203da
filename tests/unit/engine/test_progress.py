"""The engine's progress is objects; the terminal and the store show them."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from experiments.engine.progress import CellProgress, Progress, RunFailed, RunRetried, first_problem
from experiments.language.campaign import Plan, load
from experiments.terminal import TerminalReporter
from testbed import report
from testbed.node_binary import ROOT


@pytest.fixture(scope="module")
def plan() -> Plan:
    return load(ROOT / "experiments/quickstart.yaml")


def progress(plan: Plan, elapsed_s: float = 30.0) -> Progress:
    cells = (
        CellProgress("cell 1", plan.runs[0], report.Progress(report.Phase.RUNNING, 3.4)),
        CellProgress("analysis", plan.runs[1], report.Progress(report.Phase.ANALYSING)),
    )
    return Progress(60.0, 120.0, 3, 1, 12, elapsed_s, 2, cells, pid=7)


def test_rate_and_remaining_time_follow_from_what_is_finished(plan: Plan) -> None:
    result = progress(plan)
    assert (result.per_minute, result.left_s) == (8.0, 30.0)
    assert progress(plan, elapsed_s=1.0).left_s is None
    assert result.text == "4 of 12 runs, 1 without a valid result, 1 busy cell, 8 runs a minute, 30 s left"


def test_a_pace_has_two_digits(plan: Plan) -> None:
    texts = [progress(plan, elapsed_s).text for elapsed_s in (40.4, 0.964)]
    assert [text.split(", ")[3] for text in texts] == ["5.9 runs a minute", "249 runs a minute"]


def test_each_cell_has_one_line_of_a_narrow_terminal(plan: Plan) -> None:
    out = io.StringIO()
    with TerminalReporter(Console(file=out, width=40, force_terminal=True)).watch([plan], 12, 120.0) as show:
        show(progress(plan))
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue()).splitlines()
    cells = [line for line in lines if line.startswith(("  cell 1: running", "  analysis: analysing: "))]
    assert len(cells) >= 2
    assert all(len(line) <= 40 and line.endswith("…") for line in cells)
    assert not any(line.startswith("repetition") for line in lines)


def test_a_line_speaks_of_cells_only_where_some_are_busy(plan: Plan) -> None:
    assert "cell" not in Progress(60.0, 120.0, 3, 1, 12, 30.0, 2, (), pid=7).text


def test_the_store_gets_json_and_the_site_its_fields(plan: Plan) -> None:
    document = json.loads(json.dumps(progress(plan).row()))
    assert document["share"] == 0.5
    assert [cell["phase"] for cell in document["cells"]] == ["running 3.4", "analysing"]
    assert document["cells"][0]["run"] == plan.runs[0].id


def test_a_log_has_lines_for_failures_and_a_line_on_the_whole(plan: Plan) -> None:
    out = io.StringIO()
    reporter = TerminalReporter(Console(file=out, width=300))
    run = plan.runs[0]
    reporter.on_event(RunRetried(plan, run, 1, 5, "late; lost; slow"), is_batch=False)
    reporter.on_event(RunFailed(plan, run, "5 attempts", "late"), is_batch=True)
    with reporter.watch([plan], 12, 120.0) as show:
        show(progress(plan))
        show(progress(plan, elapsed_s=31.0))  # too soon for another line
    lines = out.getvalue().splitlines()
    assert lines[0].endswith("repetition 1: attempt 1 of 5 is not valid: late; and 2 more")
    assert lines[1].startswith("quickstart: ")
    assert lines[1].endswith("given up after 5 attempts: late")
    assert [line for line in lines if "4 of 12 runs" in line] == [lines[2]]


def test_the_engine_does_not_import_the_terminal() -> None:
    for file in (ROOT / "experiments/engine").glob("*.py"):
        assert "experiments.terminal" not in Path(file).read_text(), file


def test_one_problem_stands_for_several() -> None:
    assert first_problem("late") == "late"
    assert first_problem("late; lost") == "late; and 1 more"
