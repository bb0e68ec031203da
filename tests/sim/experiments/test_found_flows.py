"""Flows found in captures: connections with one listening port are one flow, whichever end sends."""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pytest

from analysis.captures import RunData
from experiments import found_flows
from experiments.sessions import record
from testbed import node_binary, pcap
from testbed.report import InterfaceReport, Report
from testbed.scenario import Node, Scenario

SYN, ACK = 0x02, 0x10
SEGMENT_BYTES = 1000


@dataclass
class Capture:
    """Connections of a client with a server, one after the other, in a pcap file of raw IP."""

    client: str = "10.0.0.1"
    server: str = "10.0.0.2"
    frames: list[pcap.Record] = field(default_factory=list)

    def connection(self, client_port: int, port: int, *, download: bool, segments: int, handshake: bool = True) -> None:
        """The client opens it; then one end sends segments, 1 ms apart, and the other acknowledges each."""
        client, server = (self.client, client_port), (self.server, port)
        if handshake:
            self._add(client, server, SYN, 0, 0)
            self._add(server, client, SYN | ACK, 0, 1)
            self._add(client, server, ACK, 1, 1)
        sender, receiver = (server, client) if download else (client, server)
        for number in range(segments):
            self._add(sender, receiver, ACK, 1 + number * SEGMENT_BYTES, 1, bytes(SEGMENT_BYTES))
            self._add(receiver, sender, ACK, 1, 1 + (number + 1) * SEGMENT_BYTES)

    def datagram(self, client_port: int, port: int) -> None:
        self._frame(self.client, self.server, 17, struct.pack(">HHHH", client_port, port, 108, 0) + bytes(100))

    def _add(
        self, source: tuple[str, int], target: tuple[str, int], flags: int, seq: int, ack: int, data: bytes = b""
    ) -> None:
        header = struct.pack(">HHIIBBHHH", source[1], target[1], 100 + seq, 100 + ack, 5 << 4, flags, 65535, 0, 0)
        self._frame(source[0], target[0], 6, header + data)

    def _frame(self, source: str, target: str, protocol: int, payload: bytes) -> None:
        ends = ipaddress.ip_address(source).packed + ipaddress.ip_address(target).packed
        if len(ends) == 8:
            packet = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(payload), len(self.frames), 0, 64, protocol, 0)
        else:
            packet = struct.pack(">IHBB", 6 << 28, len(payload), protocol, 64)
        packet += ends + payload
        self.frames.append(pcap.Record(10**18 + len(self.frames) * 1_000_000, packet, len(packet)))

    def tables(self, folder: Path) -> Path:
        """What the trace reader makes of it, at both ends of the line, as the flows of a session want it."""
        path = folder / "captured.pcap"
        path.write_bytes(pcap.written(pcap.Header(pcap.RAW), self.frames))
        node_binary.call("trace", "--datagrams", "--out", str(folder), f"left-eth0={path}", f"right-eth0={path}")
        found_flows.assign_sender(folder)
        return folder


def found(folder: Path) -> list[tuple[str, str, int, int]]:
    """Sender, receiver, port and bytes of the flows in tables."""
    rows = found_flows.flows(pl.read_parquet(folder / "connections.parquet"))
    return [(row["client"], row["server"], row["listening_port"], row["bytes"]) for row in rows.to_dicts()]


@pytest.mark.parametrize("ends", [("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2")])
def test_connections_with_one_listening_port_are_one_flow_each_way(ends: tuple[str, str], tmp_path: Path) -> None:
    capture = Capture(*ends)
    for number in range(3):
        capture.connection(40_000 + number, 443, download=True, segments=10)
        capture.connection(50_000 + number, 443, download=False, segments=5)
    capture.connection(41_000, 80, download=True, segments=2)
    assert found(capture.tables(tmp_path)) == [
        (ends[1], ends[0], 443, 3 * 10 * SEGMENT_BYTES),
        (ends[0], ends[1], 443, 3 * 5 * SEGMENT_BYTES),
        (ends[1], ends[0], 80, 2 * SEGMENT_BYTES),
    ]


def test_a_listening_port_above_the_clients_is_known_by_the_handshake(tmp_path: Path) -> None:
    capture = Capture()
    for number in range(2):
        capture.connection(1000 + number, 5000, download=True, segments=3)
    assert found(capture.tables(tmp_path)) == [("10.0.0.2", "10.0.0.1", 5000, 2 * 3 * SEGMENT_BYTES)]


@pytest.mark.parametrize("download", [True, False])
def test_without_a_handshake_the_lower_port_listens(download: bool, tmp_path: Path) -> None:
    capture = Capture()
    for number in range(2):
        capture.connection(40_000 + number, 443, download=download, segments=3, handshake=False)
    sender, receiver = ("10.0.0.2", "10.0.0.1") if download else ("10.0.0.1", "10.0.0.2")
    assert found(capture.tables(tmp_path)) == [(sender, receiver, 443, 2 * 3 * SEGMENT_BYTES)]


def test_datagrams_are_no_flow(tmp_path: Path) -> None:
    capture = Capture()
    capture.connection(40_000, 443, download=True, segments=3)
    for _ in range(5):
        capture.datagram(41_000, 443)
    assert found(capture.tables(tmp_path)) == [("10.0.0.2", "10.0.0.1", 443, 3 * SEGMENT_BYTES)]


def test_a_flow_of_a_session_has_all_its_downloads(tmp_path: Path) -> None:
    capture = Capture()
    for number in range(3):
        capture.connection(40_000 + number, 443, download=True, segments=10)
    capture.connection(50_000, 443, download=False, segments=4)
    folder = capture.tables(tmp_path)
    ends = [
        InterfaceReport(node=node, interface=f"{node}-eth0", link="line", end=end, address=address)
        for end, (node, address) in enumerate((("left", "10.0.0.1"), ("right", "10.0.0.2")))
    ]
    report = Report(t0_epoch_ns=10**18, interfaces=tuple(ends))
    report, flows, left_out, packets_left_out = record._flows(
        {end.address: end.node for end in ends}.get, report, folder
    )
    assert [flow.name for flow in flows] == ["right-left:443", "left-right:443"]
    assert (left_out, packets_left_out) == (0, 0)
    nodes = tuple(Node(name=end.node, kind="host") for end in ends)
    scenario = Scenario(version=1, seed=0, duration_s=1.0, nodes=nodes, links=(), workload=tuple(flows))
    downloads, upload = RunData.load(folder, scenario, report).flows
    assert [flow.arrivals["bytes"].sum() for flow in (downloads, upload)] == [30 * SEGMENT_BYTES, 4 * SEGMENT_BYTES]
    assert [sorted(flow.connections["stream"].unique()) for flow in (downloads, upload)] == [[0, 1, 2], [0]]
