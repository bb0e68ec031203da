"""The summary that pytest prints for `tests/run`: the time of each tier, its slowest tests, and the slow ones left out.

A tier is a folder of `tests`. The environment variable BACKCHANNEL_TEST_SUMMARY asks for the summary. It names a file,
to which the numbers of tests that were left out are appended.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

#: Slowest tests that are shown of each tier.
SHOWN = 10
#: Shorter ones are not shown.
SHORT_S = 0.5


def tier(nodeid: str) -> str:
    """The tier of a test: `tests/real/test_cell.py::test_x` is of `real`."""
    return nodeid.split("/")[1]


def exclusive(item: pytest.Item) -> bool:
    """Whether nothing else may run beside a test."""
    return item.get_closest_marker("emulated") is not None and item.get_closest_marker("shares_cpu") is None


class Summary:
    """Durations of tests by tier, and numbers of slow tests that were left out by tier."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._took_s: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._left_out: Counter[str] = Counter()
        self._serial = True

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds a phase of a test."""
        self._took_s[tier(report.nodeid)][report.nodeid] += report.duration  # type: ignore[assignment]

    @pytest.hookimpl
    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Counts slow tests; each is deselected where its like run, and where they do not."""
        for item in items:
            if item.get_closest_marker("slow") and exclusive(item) is self._serial:
                self._left_out[tier(item.nodeid)] += 1

    @pytest.hookimpl
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """A process of several takes the tests that share the CPU."""
        self._serial = not hasattr(session.config, "workerinput")

    @pytest.hookimpl
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hands the numbers to the process that prints."""
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["left_out"] = dict(self._left_out)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Takes the numbers of a process. All of them collect the same tests."""
        self._left_out = Counter(getattr(node, "workeroutput", {}).get("left_out", self._left_out))

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Prints."""
        for name, took_s in sorted(self._took_s.items()):
            terminalreporter.section(f"{name}: {len(took_s)} tests, {sum(took_s.values()):.0f} s", sep="-")
            for nodeid, time_s in took_s.most_common(SHOWN):
                if time_s >= SHORT_S:
                    terminalreporter.line(f"{time_s:7.1f} s  {nodeid}")
        with self._file.open("a") as file:
            file.writelines(f"  {name}: {number} slow tests\n" for name, number in sorted(self._left_out.items()))


def pytest_configure(config: pytest.Config) -> None:
    """Registers the summary."""
    file = os.environ.get("BACKCHANNEL_TEST_SUMMARY")
    if file:
        config.pluginmanager.register(Summary(Path(file)))
