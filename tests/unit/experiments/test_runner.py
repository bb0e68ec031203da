"""The runner of requests: how long the site sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from analysis.store import Store, StoreFailed, requests
from experiments.runner import Runner
from tests.support.waiting import wait_until


def test_a_store_that_fails_for_a_while_does_not_make_a_runner_look_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    real = requests.show_runner

    def fails_at_first(store: Store, runner_id: str, *more: Any) -> None:
        shown.append(runner_id)
        if len(shown) == 2:
            raise StoreFailed("the results store failed: database or disk is full")
        real(store, runner_id, *more)

    monkeypatch.setattr(requests, "show_runner", fails_at_first)
    monkeypatch.setattr(requests, "SEEN_EVERY_S", 0.01)
    runner = Runner(tmp_path / "results", None, 1, Console(quiet=True))
    with Store.open(tmp_path / "results") as store, runner._there(store, []):
        wait_until(lambda: len(shown) >= 4, "a sign of life after the failure", 10.0)
