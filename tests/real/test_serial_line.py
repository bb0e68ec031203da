"""The kernel's TCP over serial lines with compressed headers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.cell import Cell
from tests.conftest import LATE_IS_FINE, run_validly, two_hosts, typed
from tests.sim.testbed.test_serial_line import compress, reverse_of, together

pytestmark = pytest.mark.slow("minutes of captures")


@pytest.mark.emulated
def test_captures_of_the_kernels_tcp_cross_the_line(tmp_path: Path) -> None:
    made = two_hosts(rate_bps=4_000_000, delay_s=0.015, duration_s=4.0)
    made["links"][0]["forward"] = made["links"][0]["forward"] | {
        "errors": [{"name": "uniform", "options": {"probability": 0.01}}]
    }
    for timestamps in (False, True):
        for node in made["nodes"]:
            node["stack"] = {"name": "cubic", "options": {"timestamps": timestamps}}
        with Cell("serial") as cell:
            cell.build(typed(made))
            cell.run(typed(made), tmp_path / str(timestamps))
        for capture in sorted((tmp_path / str(timestamps) / "captures").glob("*.pcap")):
            report = compress(capture, tmp_path / "line.pcap")
            compressed, uncompressed = together(report, "compressed"), together(report, "uncompressed")
            assert compressed + uncompressed > 500
            assert compressed > uncompressed or timestamps


@pytest.mark.emulated
@pytest.mark.parametrize("errors", [[], [{"name": "uniform", "options": {"probability": 0.02}}]])
def test_the_kernels_acks_cross_a_compressing_modem_line(errors: list[dict[str, Any]], tmp_path: Path) -> None:
    """A modem line in real time, between kernels: what the far end puts together again is what they take for acks."""
    made = two_hosts(rate_bps=1_000_000, duration_s=15.0) | {"fidelity": LATE_IS_FINE}
    made["links"][0]["reverse"] = {
        "rate_bps": 28_800, "delay_s": 0.02, "queue": {"name": "droptail", "options": {"limit_packets": 10}},
        "options": {"header_compression": "rfc1144", "framing": "ppp", "accm": 0}, "errors": errors,
    }  # fmt: skip
    made["workload"][0]["bytes"] = 500_000
    for node in made["nodes"]:
        node["stack"] = {"name": "reno", "options": {"timestamps": False, "sack": False}}
    with Cell("modem") as cell:
        cell.build(typed(made))
        report = run_validly(cell, made, tmp_path / "run")
    line, flow = reverse_of(report), report["flows"]["bulk"]["receive"]
    headers = line["headers"]
    assert sum(headers[kind] for kind in ("compressed", "uncompressed", "unmodified")) == line["transmitted_packets"]
    assert headers["compressed"] > 100 or errors
    assert line["transmitted_wire_bytes"] < line["transmitted_bytes"] + 8 * headers["uncompressed"]
    assert headers["wrong"] == 0
    assert headers["tossed"] == line["events"].get("tossed", 0)
    assert (headers["tossed"] > 0) == bool(errors)
    assert (flow["bytes"], flow["payload_ok"]) == (500_000, True)
