"""No test reads or writes the results of the checkout."""

from __future__ import annotations

from pathlib import Path

from testbed import node_binary
from tests.conftest import backchannel


def test_tests_and_their_commands_work_where_no_results_are() -> None:
    assert not Path.cwd().is_relative_to(node_binary.ROOT)
    done = backchannel("results", status=2)
    assert "no results in results: run a campaign first" in done.stderr
