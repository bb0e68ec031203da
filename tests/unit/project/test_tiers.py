"""The summary of a test run by tier."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.tiers import Summary


class Terminal:
    """Keeps what is printed."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def section(self, title: str, sep: str) -> None:
        self.lines.append(title)

    def line(self, text: str) -> None:
        self.lines.append(text)


def report(nodeid: str, duration: float) -> Any:
    return SimpleNamespace(nodeid=nodeid, duration=duration)


def item(nodeid: str, *marks: str) -> Any:
    markers = dict.fromkeys(marks, pytest.mark.skip.mark)
    return SimpleNamespace(nodeid=nodeid, get_closest_marker=markers.get)


def test_each_tier_has_its_time_and_its_slowest_tests(tmp_path: Path) -> None:
    summary, terminal = Summary(tmp_path / "file"), Terminal()
    for nodeid, duration in (("sim/a", 1.0), ("sim/a", 2.0), ("sim/b", 4.0), ("sim/c", 0.1), ("unit/d", 0.2)):
        summary.pytest_runtest_logreport(report(f"tests/{nodeid}", duration))
    summary.pytest_terminal_summary(terminal)
    assert terminal.lines == [
        "sim: 3 tests, 7 s", "    4.0 s  tests/sim/b", "    3.0 s  tests/sim/a", "unit: 1 tests, 0 s",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("processes", "left_out"), [(True, "  sim: 1 slow tests\n"), (False, "  real: 1 slow tests\n")]
)
def test_slow_tests_are_counted_where_their_like_run(processes: bool, left_out: str, tmp_path: Path) -> None:
    summary = Summary(tmp_path / "file")
    config = SimpleNamespace(workerinput={}, workeroutput={}) if processes else SimpleNamespace()
    session: Any = SimpleNamespace(config=config)
    summary.pytest_sessionstart(session)
    items = [item("tests/real/a", "slow", "emulated"), item("tests/sim/b", "slow"), item("tests/sim/c")]
    summary.pytest_deselected(items)
    summary.pytest_sessionfinish(session)
    if processes:
        controller = Summary(tmp_path / "file")
        controller.pytest_testnodedown(SimpleNamespace(workeroutput=config.workeroutput))
        summary = controller
    summary.pytest_terminal_summary(Terminal())
    assert (tmp_path / "file").read_text() == left_out
