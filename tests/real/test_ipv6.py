"""Flows over IPv6 on real packets: the kernel's TCP, the research stack, workloads and programs."""

from __future__ import annotations

import gzip
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.captures import RunData
from experiments.engine.execution import analyse
from testbed.cell import Cell
from testbed.report import Report
from tests.conftest import typed

pytestmark = [pytest.mark.slow("a campaign with both versions of IP"), pytest.mark.emulated]

WIRE = {"rate_bps": 10_000_000, "delay_s": 0.002, "queue": {"name": "droptail", "options": {"limit_packets": 50}}}
FILTERED = {**WIRE, "rate_bps": 200_000, "queue": {"name": "ack-filtering", "options": {"limit_packets": 10}}}
#: Answers one connection over IPv6 with the address that it came from.
SERVER = """
import socket
listener = socket.create_server(("{server}", {port}), family=socket.AF_INET6)
while True:
    connection, peer = listener.accept()
    connection.sendall(peer[0].encode())
    connection.close()
"""
CLIENT = "import socket; print(socket.create_connection(('{server}', {port})).recv(100).decode())"


@pytest.fixture(scope="module")
def cell(emulation: None) -> Iterator[Cell]:
    with Cell("ipv6") as cell:
        yield cell


def scenario(stack: str, *flows: dict[str, Any]) -> dict[str, Any]:
    """a - r - b, with a slow way back for acks from b."""

    def link(name: str, ends: list[str], reverse: dict[str, Any]) -> dict[str, Any]:
        return {
            "name": name, "kind": "point-to-point", "ends": ends, "forward": WIRE, "reverse": reverse, "options": {},
        }  # fmt: skip

    host = {"kind": "host", "stack": {"name": stack, "options": {}}}
    workload = [{"kind": "bulk", "from": "a", "to": "b", "port": 5001 + at, **flow} for at, flow in enumerate(flows)]
    return {
        "version": 1, "seed": 3, "duration_s": 3.0,
        "nodes": [{"name": "a", **host}, {"name": "r", "kind": "router"}, {"name": "b", **host}],
        "links": [link("near", ["a", "r"], WIRE), link("far", ["r", "b"], FILTERED)],
        "workload": workload, "capture": {"snaplen": 128, "at": []},
    }  # fmt: skip


def frames(folder: Path, interface: str, which: str) -> int:
    words = ["tshark", "-r", str(folder / f"captures/{interface}.pcap"), "-o", "tcp.check_checksum:TRUE", "-Y", which]
    return len(subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines())


@pytest.mark.parametrize("stack", ["reno", "newreno"])
def test_flows_of_both_versions_share_a_path(cell: Cell, tmp_path: Path, stack: str) -> None:
    made = typed(scenario(stack, {"name": "new", "ip": 6}, {"name": "old"}))
    cell.build(made)
    report = cell.run(made, tmp_path)
    for name in ("new", "old"):
        received = report.flows[name].receive
        assert received.payload_ok
        assert received.bytes > 200_000, name
    for interface in ("a-eth0", "r-eth0", "r-eth1", "b-eth0"):
        assert frames(tmp_path, interface, "ipv6 && tcp.port == 5001") > 200
        assert frames(tmp_path, interface, "ip && tcp.port == 5002") > 200
        assert frames(tmp_path, interface, "!tcp || icmpv6") == 0, "nothing but the flows shares the path"
        assert frames(tmp_path, interface, "tcp.checksum.status == 0") == 0
    # Every packet has the MTU's room: 1440 and 1460 bytes behind the headers, 12 of them timestamps.
    assert frames(tmp_path, "b-eth0", "ipv6 && tcp.len == 1428") > 100
    assert frames(tmp_path, "b-eth0", "ip && tcp.len == 1448") > 100
    # The filter of the slow way back thins out the acks of both.
    purged = report.as_json()["driver"]["links"]["far"]["reverse"]["events"]["purged"]
    assert purged > 10
    for port in (5001, 5002):
        acks = f"tcp.srcport == {port} && tcp.len == 0"
        assert frames(tmp_path, "r-eth1", acks) < frames(tmp_path, "b-eth0", acks)
    # Captures give each flow its segments.
    rows = analyse(tmp_path, made, report).values
    for name in ("new", "old"):
        assert rows["throughput", name] > 500_000


def test_a_run_over_ipv4_leaves_nothing_of_ipv6(cell: Cell, tmp_path: Path) -> None:
    made = typed(scenario("reno", {"name": "new", "ip": 6}))
    cell.build(made)
    assert cell.run(made, tmp_path / "6").flows["new"].receive.bytes > 200_000
    plain = typed(scenario("reno", {"name": "old"}))
    assert cell.run(plain, tmp_path / "4").flows["old"].receive.bytes > 200_000
    assert frames(tmp_path / "4", "b-eth0", "ipv6") == 0
    assert frames(tmp_path / "4", "b-eth0", "ip") > 200


def test_workloads_and_programs_use_ipv6(cell: Cell, tmp_path: Path) -> None:
    command = {
        "client_at": "from", "client": ["python3", "-c", CLIENT],
        "server": {"run": ["python3", "-c", SERVER], "ready": "tcp", "within_s": 10}, "output_bytes": 10_000,
    }  # fmt: skip
    made = typed(
        scenario(
            "cubic",
            {"name": "probe", "kind": "probe", "ip": 6},
            {"name": "ask", "kind": "transactions", "ip": 6},
            {"name": "page", "kind": "fetch", "ip": 6, "bytes": 50_000},
            {"name": "own", "kind": "command", "ip": 6, "command": command},
        )
    )
    cell.build(made)
    report = cell.run(made, tmp_path)
    assert (tmp_path / "programs/own.client.out").read_text().strip() == "2001:db8:a01::1"
    assert frames(tmp_path, "a-eth0", "ip || icmpv6") == 0
    # A probe is 64 bytes long over either version.
    assert frames(tmp_path, "b-eth0", "udp && ipv6.plen == 24") > 20
    data = analysed(tmp_path, made, report)
    for name in ("probe", "ask", "page"):
        exchanges = gzip.decompress((tmp_path / f"applications/{name}.jsonl.gz").read_bytes()).splitlines()
        assert len(exchanges) > 0, name
    assert sorted(flow.name for flow in data.flows if flow.connections.height) == ["ask", "own", "page"]


def analysed(folder: Path, made: Any, report: Report) -> RunData:
    analyse(folder, made, report)
    return RunData.load(folder, made, report)
