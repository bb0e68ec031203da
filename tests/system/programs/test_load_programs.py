"""The programs of a workload (`backchannel-node load`), of which one end is the test itself, over loopback."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from agents import traffic
from agents.traffic import BEGIN
from testbed import flows, node_binary
from testbed.addressing import make_plan
from tests.conftest import two_hosts, typed
from tests.support.waiting import HANGS_S, end, pause

#: Packets that reach a stopped program.
PACKETS = 20
#: Number of a packet, at the head of its payload.
NUMBER_BYTES = 8


def started(program: flows.Program, folder: Path, **options: Any) -> subprocess.Popen[str]:
    words = traffic.command(node_binary.path(), program.program, {**program.options, **options}, folder)
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)


def programs(zero_ns: int) -> tuple[flows.Program, flows.Program]:
    """Sender and receiver of a flow of packets that are returned."""
    made = two_hosts(rate_bps=1_000_000, delay_s=0.01, duration_s=60.0)
    probe = {"interval_s": 0.01}
    made["workload"] = [
        {"name": "udp", "kind": "probe", "from": "a", "to": "b", "start_s": 0.0, "port": 5001, "options": probe}
    ]
    scenario = typed(made)
    plan, flow = make_plan(scenario.nodes, scenario.links), scenario.flow("udp")
    return flows.sender(scenario, plan, flow, zero_ns), flows.receiver(scenario, plan, flow)


def stop_and_end(process: subprocess.Popen[str], while_stopped: Any) -> None:
    """Ends a process that cannot run before packets and its signal are both there."""
    pause(process)
    while_stopped()
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    assert process.wait(HANGS_S) == 0


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def peer() -> Any:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("127.0.0.1", 0))
        own.settimeout(HANGS_S)
        yield own


def test_a_sender_records_the_answers_that_came_with_its_signal(peer: socket.socket, tmp_path: Path) -> None:
    sender, _ = programs(time.monotonic_ns())
    to = "{}:{}".format(*peer.getsockname())
    process = started(sender, tmp_path, to=to)
    try:
        packets = [peer.recvfrom(2000) for _ in range(PACKETS)]
        stop_and_end(process, lambda: [peer.sendto(packet, address) for packet, address in packets])
    finally:
        end(process)
    returned = {line["seq"] for line in lines(tmp_path / "udp.sent.jsonl") if line["returned_ns"] is not None}
    assert returned == set(range(PACKETS))


def test_a_receiver_records_the_packets_that_came_with_its_signal(peer: socket.socket, tmp_path: Path) -> None:
    _, receiver = programs(0)
    # A port that is free now.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        address = other.getsockname()
    process = started(receiver, tmp_path, listen="{}:{}".format(*address))
    try:
        assert process.stderr is not None
        assert "ready" in process.stderr.readline()
        (tmp_path / BEGIN).write_text(str(time.monotonic_ns()))
        packets = [number.to_bytes(NUMBER_BYTES, "big") for number in range(PACKETS)]
        stop_and_end(process, lambda: [peer.sendto(packet, address) for packet in packets])
    finally:
        end(process)
    assert [line["key"] for line in lines(tmp_path / "udp.arrived.jsonl")] == list(range(PACKETS))
