"""Connections of runs that were stored before their tables had the port that listened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis.captures import read_connections
from testbed.scenario import Scenario
from tests.conftest import two_hosts


def scenario(flow: dict[str, Any]) -> Scenario:
    made = two_hosts()
    made["workload"] = [{"name": "page", "from": "a", "to": "b", "port": 8000, **flow}]
    return Scenario.read(made)


COMMAND = {"kind": "command", "command": {"client_at": "to", "client": ["curl"], "output_bytes": 1000}}


@pytest.mark.parametrize(("flow", "ports"), [(COMMAND, [8000, 8000]), ({"kind": "bulk"}, [40_000, 8000])])
def test_the_port_that_listened_is_the_declared_one(flow: dict[str, Any], ports: list[int], tmp_path: Path) -> None:
    """The receiver's program opened the first connection, whose ends changed places; the sender's opened the other."""
    stored = pl.DataFrame({
        "client": ["10.1.0.1", "10.1.0.1"], "client_port": [8000, 40_001], "server": ["10.1.0.2", "10.1.0.2"],
        "server_port": [40_000, 8000], "opened_by_server": [True, False],
    })  # fmt: skip
    stored.write_parquet(tmp_path / "connections.parquet")
    assert read_connections(tmp_path, scenario(flow))["listening_port"].to_list() == ports


def test_tables_that_have_the_port_keep_it(tmp_path: Path) -> None:
    pl.DataFrame({"server_port": [1], "listening_port": [2]}).write_parquet(tmp_path / "connections.parquet")
    assert read_connections(tmp_path, scenario(COMMAND))["listening_port"].to_list() == [2]
