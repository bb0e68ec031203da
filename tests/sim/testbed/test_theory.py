"""Senders against the equations of their sources: losses on a line of 1 Gbit/s and 100 ms, and BBR's cycle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.sim.testbed.test_simulation import scenario, simulate

RTT_S, MSS = 0.1, 1448
OPTIONS = {"ack_every_segments": 1, "receive_buffer_bytes": 8_000_000, "slow_start": "standard"}


def every(packets: int) -> dict[str, Any]:
    """An error model that loses every n-th packet."""
    return {"name": "recorded", "options": {"trace": "0" * (packets - 1) + "1"}}


def window(folder: Path, stack: str, errors: dict[str, Any], seconds: float, **options: Any) -> float:
    """Mean window in segments after the first tenth of the run, from the bytes that arrive."""
    made = scenario(stack, duration_s=seconds, options=OPTIONS | options)
    for way in ("forward", "reverse"):
        made["links"][0][way] = {
            "rate_bps": 1_000_000_000,
            "delay_s": RTT_S / 2,
            "queue": {"name": "droptail", "options": {"limit_packets": 20000}},
        }
    made["links"][0]["forward"]["errors"] = [errors]
    bytes_ = []
    for until_s in (0.1 * seconds, seconds):
        report = simulate({**made, "duration_s": until_s}, folder / str(until_s))
        (flow,) = report["flows"].values()
        bytes_.append(flow["receive"]["bytes"])
    return float((bytes_[1] - bytes_[0]) / MSS / (0.9 * seconds / RTT_S))


@pytest.mark.parametrize("packets", [500, 2000])
def test_reno_has_the_window_of_mathis_equation(tmp_path: Path, packets: int) -> None:
    """W = sqrt(3/2) sqrt(n) (Mathis, Semke, Mahdavi, Ott 1997, equation 2), a loss every n packets."""
    found = window(tmp_path, "modern", every(packets), 200.0, congestion="newreno", sack_compression=False)
    assert found == pytest.approx((1.5 * packets) ** 0.5, rel=0.06)


def test_cubic_has_the_window_of_its_equation(tmp_path: Path) -> None:
    """RFC 9438, figure 5: (C (3 + beta) / (4 (1 - beta)))^(1/4) (RTT n)^(3/4), where it exceeds Reno's."""
    packets = 20_000
    found = window(tmp_path, "modern", every(packets), 200.0, cubic_growth="rfc9438")
    expected = (0.4 * 3.7 / (4 * 0.3)) ** 0.25 * (RTT_S * packets) ** 0.75
    assert found == pytest.approx(expected, rel=0.06)


@pytest.mark.parametrize("p", [0.005, 0.02, 0.05])
def test_newreno_has_the_window_of_the_equation_with_timeouts(tmp_path: Path, p: float) -> None:
    """Padhye, Firoiu, Towsley and Kurose 1998, equation 31, without selective acks, which the model does not know. The
    timeout is 200 ms longer than a round trip.
    """
    losses = {"name": "uniform", "options": {"probability": p}}
    plain = {"congestion": "newreno", "sack": False, "limited_transmit": False}
    found = window(tmp_path, "modern", losses, 400.0, **plain)
    timeout_s = RTT_S + 0.2
    often = min(1, 3 * (3 * p / 8) ** 0.5) * p * (1 + 32 * p**2)
    expected = RTT_S / (RTT_S * (2 * p / 3) ** 0.5 + timeout_s * often)
    assert found == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("rate_bps", [5_000_000, 10_000_000])
def test_bbr_probes_once_in_as_many_round_trips_as_segments_fill_the_line(tmp_path: Path, rate_bps: int) -> None:
    """draft-ietf-ccwg-bbr 5.3.3.8: in time for Reno, which needs as many round trips to recover. Starting to probe, and
    draining what that queued, take a few more; ProbeRTT makes some cycles longer.
    """
    made = scenario("modern-bbr", duration_s=30.0, options={"receive_buffer_bytes": 4_000_000})
    for way in ("forward", "reverse"):
        made["links"][0][way] = {
            "rate_bps": rate_bps,
            "delay_s": 0.02,
            "queue": {"name": "droptail", "options": {"limit_packets": 500}},
        }
    simulate(made, tmp_path)
    queue = lines_of(tmp_path / "telemetry/links.jsonl", direction="forward")
    rtts = lines_of(tmp_path / "telemetry/bulk.jsonl", event="ack")
    segments = rate_bps * 0.04 / 8 / MSS
    starts, is_low = [], True
    for row in queue:
        if row["packets"] > segments / 4 and is_low:
            starts.append(row["t_ns"])
        is_low = row["packets"] <= segments / 10 or (is_low and row["packets"] <= segments / 4)
    between = list(zip(starts[1:], starts[2:], strict=False))
    cycles = [round_trips([row for row in rtts if begin <= row["t_ns"] < end]) for begin, end in between]
    assert len(cycles) > 5
    assert segments < min(cycles) < segments + 5


def lines_of(path: Path, **fields: str) -> list[dict[str, Any]]:
    """Rows of a telemetry file with these values."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row for row in rows if fields.items() <= row.items()]


def round_trips(acks: list[dict[str, Any]]) -> float:
    """How many round trips the time between the first ack and the last is."""
    return float(
        sum((b["t_ns"] - a["t_ns"]) / 1e9 / b["rtt_s"] for a, b in zip(acks, acks[1:], strict=False) if b["rtt_s"])
    )
