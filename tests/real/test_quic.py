"""QUIC on real packets: both ends on interfaces, as the research stack's TCP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis import qlog
from testbed.cell import Cell
from tests.conftest import typed
from tests.real.test_research import check_both_ways, scenario
from tests.sim.testbed.test_simulation import scenario as stacked
from tests.support.traces.readers import tshark_fields

QUIC: dict[str, Any] = {"name": "quic", "options": {}}


@pytest.fixture(scope="module")
def cell(emulation: None) -> Iterator[Cell]:
    with Cell("quic") as cell:
        yield cell


def test_bytes_arrive_in_both_ways(cell: Cell, tmp_path: Path) -> None:
    made = scenario(QUIC, QUIC)
    cell.build(typed(made))
    report = cell.run(typed(made), tmp_path).as_json()
    check_both_ways(report)
    assert not (tmp_path / "qlog").exists(), "nothing is captured, so nothing is logged"


@pytest.mark.parametrize(
    "options",
    [pytest.param({}, id="plain", marks=pytest.mark.slow("as with TLS, without its keys")),
     pytest.param({"session": "tls"}, id="tls")],
)  # fmt: skip
def test_logs_of_both_ends_are_kept_with_captures(options: dict[str, Any], cell: Cell, tmp_path: Path) -> None:
    made = stacked("quic", options=options)
    made["capture"] = {"snaplen": 65_535}
    made["workload"][0]["bytes"] = 100_000
    cell.build(typed(made))
    report = cell.run(typed(made), tmp_path)
    (name,) = report.flows
    assert report.flows[name].receive.bytes == 100_000
    keys = sorted(path.name for path in (tmp_path / "qlog").glob(f"*{qlog.KEYS}"))
    qlog.join_keys(tmp_path)
    assert len(keys) == len(options) == len(list(tmp_path.glob(qlog.ALL_KEYS))), "the client alone writes them"
    ends = {path.name.split("-")[-3]: path for path in (tmp_path / "qlog").iterdir()}
    assert sorted(ends) == ["receiver", "sender"]
    data = qlog.in_order(qlog.read([ends["receiver"]]).data)
    assert int(data["bytes"].sum()) == 100_000
    assert int(qlog.read([ends["sender"]]).acks["packets"].sum()) > 60
    if options:
        (capture,) = (tmp_path / "captures").glob("a-*.pcap")
        columns = ("quic.stream.offset", "quic.decryption_failed")
        rows = tshark_fields(capture, columns, "-o", f"tls.keylog_file:{tmp_path / qlog.ALL_KEYS}")
        assert not any(row[1] for row in rows)
        assert 98_000 < max(int(offset) for row in rows for offset in row[0].split(",") if offset) < 100_000
