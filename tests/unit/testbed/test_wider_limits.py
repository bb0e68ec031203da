"""Results of runs that were accepted by wider limits than the default say so."""

from __future__ import annotations

from typing import Any

import pytest

from analysis.store import Store
from experiments.commands.shared import wider_limits
from tests.conftest import two_hosts, typed


@pytest.mark.parametrize(
    ("backend", "limits", "told"),
    [
        ("emulated", {"rate": 0.02, "stall_s": 0.01}, ["rate 2 % instead of 0.5 %"]),
        ("emulated", {"rate": 0.001}, []),
        ("sim", {"rate": 0.02}, []),
    ],
)
def test_wider_limits_are_named_with_results_of_real_packets(
    backend: str, limits: dict[str, Any], told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = typed({**two_hosts(), "fidelity": limits})
    monkeypatch.setattr(Store, "first_scenario", lambda store, campaign: made)
    store = Store.__new__(Store)
    sentences = wider_limits(store, "c", backend)
    assert [sentence.partition(": ")[2] for sentence in sentences] == told
