"""Senders against the equations of their sources, on a line of 1 Gbit/s and 100 ms that loses every n-th packet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.sim.testbed.test_simulation import scenario, simulate

RTT_S, MSS = 0.1, 1448
OPTIONS = {"ack_every_segments": 1, "receive_buffer_bytes": 8_000_000, "slow_start": "standard"}


def window(folder: Path, stack: str, every: int, seconds: float, **options: Any) -> float:
    """Mean window in segments after the first tenth of the run, from the bytes that arrive."""
    made = scenario(stack, duration_s=seconds, options=OPTIONS | options)
    errors = [{"name": "recorded", "options": {"trace": "0" * (every - 1) + "1"}}]
    for way in ("forward", "reverse"):
        made["links"][0][way] = {
            "rate_bps": 1_000_000_000,
            "delay_s": RTT_S / 2,
            "queue": {"name": "droptail", "options": {"limit_packets": 20000}},
        }
    made["links"][0]["forward"]["errors"] = errors
    bytes_ = []
    for until_s in (0.1 * seconds, seconds):
        report = simulate({**made, "duration_s": until_s}, folder / str(until_s))
        (flow,) = report["flows"].values()
        bytes_.append(flow["receive"]["bytes"])
    return float((bytes_[1] - bytes_[0]) / MSS / (0.9 * seconds / RTT_S))


@pytest.mark.parametrize("every", [500, 2000])
def test_reno_has_the_window_of_mathis_equation(tmp_path: Path, every: int) -> None:
    """W = sqrt(3/2) sqrt(n) (Mathis, Semke, Mahdavi, Ott 1997, equation 2), a loss every n packets."""
    found = window(tmp_path, "modern", every, 200.0, congestion="newreno")
    assert found == pytest.approx((1.5 * every) ** 0.5, rel=0.06)


def test_cubic_has_the_window_of_its_equation(tmp_path: Path) -> None:
    """RFC 9438, figure 5: (C (3 + beta) / (4 (1 - beta)))^(1/4) (RTT n)^(3/4), where it exceeds Reno's."""
    every = 20_000
    found = window(tmp_path, "modern", every, 200.0)
    expected = (0.4 * 3.7 / (4 * 0.3)) ** 0.25 * (RTT_S * every) ** 0.75
    assert found == pytest.approx(expected, rel=0.06)
