"""Which invalid runs the tests repeat, and that they report each."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed import fidelity
from testbed.report import Problem, ProblemKind
from tests.conftest import ATTEMPTS, run_validly, two_hosts
from tests.support import quiet

LATE, RATE, STALLED, LOST = ProblemKind.LATE, ProblemKind.RATE, ProblemKind.STALLED, ProblemKind.LOST


class Network:
    """A cell whose runs have the given problems, one list a run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *attempts: list[ProblemKind]) -> None:
        self.attempts = iter(attempts)
        self.runs = 0
        monkeypatch.setattr(quiet, "wait", lambda _: None)
        monkeypatch.setattr(fidelity, "problems", self.problems)

    def run(self, *_: Any) -> Any:
        self.runs += 1
        return SimpleNamespace(as_json=lambda: {"run": self.runs})

    def problems(self, *_: Any) -> list[Problem]:
        return [Problem(kind, "", f"it was {kind}") for kind in next(self.attempts)]


def test_late_runs_are_repeated_and_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    network: Any = Network(monkeypatch, [LATE, RATE], [STALLED], [])
    with pytest.warns(
        UserWarning, match="valid on attempt 3; attempt 1: it was late, it was rate; attempt 2: it was st"
    ):
        assert run_validly(network, two_hosts(), tmp_path / "run") == {"run": 3}


def test_a_machine_that_stays_late_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    network: Any = Network(monkeypatch, *[[LATE]] * (ATTEMPTS + 1))
    with pytest.raises(pytest.fail.Exception, match=f"attempt {ATTEMPTS}: it was late"):
        run_validly(network, two_hosts(), tmp_path / "run")
    assert network.runs == ATTEMPTS


@pytest.mark.parametrize("problems", [[RATE], [LATE, LOST], [ProblemKind.CAPTURE, RATE]])
def test_others_fail_at_once(problems: list[ProblemKind], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    network: Any = Network(monkeypatch, problems, [])
    with pytest.raises(pytest.fail.Exception, match="attempt 1: it was"):
        run_validly(network, two_hosts(), tmp_path / "run")
    assert network.runs == 1
