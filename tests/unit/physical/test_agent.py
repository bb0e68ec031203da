"""The agent of a shared host: one holder at a time, and only granted interfaces and links."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agents import kernel, rpc
from agents.agent import Agent, Grants
from agents.client import AgentClient
from agents.errors import AgentError, AgentUnreachable
from agents.lease import Lease
from agents.messages import CaptureCounts, CaptureRequest, InterfaceAddress, Neighbour, Shaped, ShapingCounters
from agents.service import serve
from testbed import node_binary
from tests.support.serving import serving
from tests.support.waiting import HANGS_S, wait_until


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Path]:
    """A running agent that may use one interface; its socket."""
    grants, folder = tmp_path / "agent.d", tmp_path / "run"
    grants.mkdir()
    folder.mkdir()
    (grants / "endpoint.json").write_text(json.dumps({"interfaces": ["eth7"], "links": {}}))
    socket = tmp_path / "agent.sock"
    agent = Agent(folder, "/bin/false", Grants(grants), tmp_path / "agent.held")
    with serving(serve(socket, agent)):
        yield socket


def test_a_second_controller_is_rejected_with_the_holders_name(host: Path) -> None:
    first, second = AgentClient("pc1", host), AgentClient("pc1", host)
    first.hold("campaign one, of ann on desk, process 7", 30)
    assert host.with_name("agent.held").read_text() == "campaign one, of ann on desk, process 7\n"
    with pytest.raises(AgentError, match=r"pc1: this node is held by campaign one, of ann on desk, process 7 \(wait"):
        second.hold("campaign two", 30)
    with pytest.raises(AgentError, match="held by campaign one"):
        second.reset()
    with pytest.raises(AgentError, match="held by campaign one"):
        second.fetch("anything", host.with_name("out"))
    assert second.health().holder == "campaign one, of ann on desk, process 7"
    again = AgentClient("pc1", host)
    again.hold("campaign one, of ann on desk, process 7", 30)
    with pytest.raises(AgentError, match="held by campaign one"):
        first.reset()
    again.release()
    assert not host.with_name("agent.held").exists()
    second.hold("campaign two", 30)


def test_release_restores_the_host(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The research stack may have its addresses, and a lost holder cannot return them."""
    entered: list[list[str]] = []
    monkeypatch.setattr(kernel, "ip_batch", lambda lines: entered.append(list(lines)))
    route = "route replace 10.3.0.0/16 via 10.1.0.2 dev eth7"
    first = AgentClient("pc1", host)
    first.hold("campaign one", 30)
    first.network([InterfaceAddress("eth7", "10.1.0.1/24")], [route], give=False)
    (host.parent / "run" / "left.json").touch()
    first.release()
    assert entered == [["address flush dev eth7"], ["address replace 10.1.0.1/24 dev eth7", route]]
    assert not list((host.parent / "run").iterdir())
    # What another thread still asks for must not begin on a host that is free.
    with pytest.raises(AgentError, match="the lock on this node has expired"):
        first.start_traffic("late", "load-send", {})
    first.hold("campaign one", 30)
    first.network([InterfaceAddress("eth7", "10.1.0.1/24")], [route], give=False)
    first.network([InterfaceAddress("eth7", "10.1.0.1/24")], [route], give=True)
    first.release()
    assert len(entered) == 4


def test_messages_arrive_as_they_were_sent(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[CaptureRequest] = []
    counts = [CaptureCounts("eth7", "eth7.pcap", captured=5, received=6, dropped=1)]
    shaped = Shaped(root=ShapingCounters(9, 900, 6, early=1, purged=2, marked=3), delayed=ShapingCounters(8, 800, 2))
    samples: list[object] = []

    def sample_shaping(_: Agent, lines: object, at_monotonic_ns: int) -> None:
        samples.append((lines, at_monotonic_ns))

    def stop_traffic(_: Agent, name: str) -> object:
        return {"name": name}

    monkeypatch.setattr(Agent, "sample_shaping", sample_shaping)
    monkeypatch.setattr(Agent, "stop_traffic", stop_traffic)
    monkeypatch.setattr(Agent, "start_captures", lambda _, requests, snaplen: started.extend(requests))
    monkeypatch.setattr(Agent, "stop_captures", lambda _: counts)
    monkeypatch.setattr(Agent, "shaped", lambda _, interface: shaped)
    client = AgentClient("pc1", host)
    client.start_captures([CaptureRequest("eth7", "eth7.pcap", 1e6)], 128)
    assert started == [CaptureRequest("eth7", "eth7.pcap", 1e6)]
    assert client.stop_captures() == counts
    assert client.shaped("eth7") == shaped
    client.sample_shaping({"eth7": ("line", "forward", "reverse")}, 7)
    assert samples == [({"eth7": ("line", "forward", "reverse")}, 7)]
    assert client.stop_traffic("bulk", lambda report: report) == {"name": "bulk"}
    assert client.clock().realtime_ns > client.clock().monotonic_ns > 0


def test_agent_and_emulator_accept_traces_of_the_same_length(host: Path) -> None:
    with pytest.raises(AgentError, match="this host may not emulate link 'line'"):
        AgentClient("pc1", host).configure_link("line", {"trace": "x" * (3 << 20)}, 1, [])
    server = (node_binary.ROOT / "testbed/emulator/src/server.rs").read_text()
    (mebibytes,) = re.findall(r"const MAX_REQUEST: usize = (\d+) << 20;", server)
    assert int(mebibytes) << 20 == rpc.LONGEST_BYTES


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b'{"ok": true, "bytes": 99}\nhalf', r"invalid answer to 'health': expected an object|the message was cut off"),
        (b'{"ok": tr', "the message was cut off"),
        (b"", "it closed the connection"),
        (b"<html>\n", "its answer cannot be read: <html>"),
        (b"7\n", "its answer cannot be read: 7"),
        (b'{"ok": true, "result": {"pid": "x"}}\n', "invalid answer to 'health': pid: expected an integer|has no file"),
    ],
)
def test_an_incomplete_answer_is_reported_as_a_lost_agent(tmp_path: Path, answer: bytes, message: str) -> None:
    """For requests and for files."""

    def lost() -> None:
        for _ in range(2):
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "sock"))
        listening.listen()
        thread = threading.Thread(target=lost)
        thread.start()
        with pytest.raises(AgentUnreachable, match=rf"^pc1: its agent does not answer \((.* )?({message})"):
            AgentClient("pc1", tmp_path / "sock").health()
        with pytest.raises(AgentUnreachable, match=rf"^pc1: its agent does not answer \((.* )?({message})"):
            AgentClient("pc1", tmp_path / "sock").fetch("server.pcap", tmp_path / "server.pcap")
        thread.join()


def send_file(host: Path, file: Path, while_sending: Callable[[], None]) -> bytes:
    """Everything that an agent sends for one file of 32 MB, which changes after the first bytes were read."""
    with file.open("wb") as sparse:
        sparse.truncate(32 << 20)
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(HANGS_S)
        client.connect(str(host))
        client.sendall(json.dumps({"op": "fetch", "name": file.name}).encode() + b"\n")
        answer = client.recv(200)
        while_sending()
        while chunk := client.recv(1 << 20):
            answer += chunk
    return answer


def test_a_file_that_cannot_be_read_to_its_end_ends_the_connection(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A further answer would be read as a part of the file."""
    file = host.parent / "run" / "server.pcap"
    cut_off = send_file(host, file, lambda: os.truncate(file, 0))
    assert cut_off.startswith(b'{"ok": true, "bytes": 33554432}\n')
    assert cut_off.count(b'"ok"') == 1
    file.write_bytes(b"x" * 1000)
    real_open = Path.open

    class Broken(io.FileIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

    def open_file(path: Path, mode: str = "r", *others: Any, **options: Any) -> Any:
        return Broken(str(path)) if path == file else real_open(path, mode, *others, **options)

    monkeypatch.setattr(Path, "open", open_file)
    agent = AgentClient("pc1", host)
    with pytest.raises(AgentUnreachable, match=r"pc1: its agent does not answer \(the message was cut off\)"):
        agent.fetch("server.pcap", host.with_name("out"))
    assert agent.health().holder == ""


def test_a_file_that_grows_is_sent_as_long_as_it_was(host: Path) -> None:
    file, agent = host.parent / "run" / "links.jsonl", AgentClient("pc1", host)
    for content in ("", "one\n", "x" * 3_000_000):
        file.write_text(content)
        agent.fetch("links.jsonl", host.with_name("out"))
        assert host.with_name("out").read_text() == content
        assert agent.health().pid
    with pytest.raises(AgentError, match=r"pc1: unknown file 'nothing'"):
        agent.fetch("nothing", host.with_name("out"))


def test_a_connection_that_the_agent_closed_is_opened_again(tmp_path: Path) -> None:
    """As after a restart of the agent on the same socket."""
    agent = AgentClient("pc1", tmp_path / "sock")
    for _ in range(2):
        served = Agent(tmp_path, "/bin/false", Grants(None), tmp_path / "agent.held")
        with serving(serve(tmp_path / "sock", served)):
            assert agent.health().holder == ""
            with agent._lock:
                (connection,) = agent._idle
            connection._socket.shutdown(socket.SHUT_RDWR)
            assert agent.health().holder == ""


class SetClock:
    """A clock that the test sets. It counts how often it was read."""

    def __init__(self) -> None:
        self.now_s, self.readings = 0.0, 0

    def monotonic(self) -> float:
        self.readings += 1
        return self.now_s

    def sleep(self, duration_s: float) -> None:
        time.sleep(min(duration_s, 0.001))


def test_a_lease_ends_when_its_controller_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, ended = SetClock(), threading.Event()
    monkeypatch.setattr("agents.lease.time", clock)
    lease = Lease(tmp_path / "held", ended.set)
    token = lease.take("somebody", 30.0)
    for clock.now_s in (20.0, 40.0, 60.0):
        lease.check(token, needed=True)
    clock.now_s, read = 89.0, clock.readings
    wait_until(lambda: clock.readings > read + 1, "a look at the clock")
    assert not ended.is_set()
    clock.now_s = 90.0
    assert ended.wait(HANGS_S)
    assert lease.holder == ""
    with pytest.raises(AgentError, match="has expired"):
        lease.check(token, needed=True)
    lease.take("another", 5)


def test_nobody_gets_a_node_before_what_an_expired_holder_had_started_has_ended(tmp_path: Path) -> None:
    begun, may_end = threading.Event(), threading.Event()
    order: list[str] = []

    def end_everything() -> None:
        begun.set()
        assert may_end.wait(60)
        order.append("all ended")

    lease = Lease(tmp_path / "held", end_everything)
    lease.take("somebody", 0.01)
    assert begun.wait(60)

    def take() -> None:
        lease.take("another", 60)
        order.append("taken")

    other = threading.Thread(target=take, daemon=True)
    other.start()
    other.join(0.2)
    may_end.set()
    other.join(60)
    assert order == ["all ended", "taken"]


@pytest.mark.parametrize(("holder", "lease_s"), [("", 5), ("somebody", 0), ("somebody", 1e9)])
def test_a_lock_needs_a_holder_and_a_lease(tmp_path: Path, holder: str, lease_s: float) -> None:
    with pytest.raises(AgentError, match="a lock needs a holder"):
        Lease(tmp_path / "held", lambda: None).take(holder, lease_s)


def test_an_agent_touches_no_interface_that_was_not_granted(host: Path) -> None:
    agent, mac = AgentClient("pc1", host), "02:bc:00:01:00:01"
    line = ("line", "forward", "reverse")
    tried: list[tuple[Callable[[], object], str]] = [
        (
            lambda: agent.start_captures([CaptureRequest("lo", "lo.pcap")], 128),
            "experiment's interface; granted are: eth7",
        ),
        (lambda: agent.network([InterfaceAddress("lo", "10.1.0.1/24")], [], give=True), "'lo' is not the experiment's"),
        (lambda: agent.neighbours([Neighbour("10.1.0.2", mac, "lo")]), "'lo' is not the experiment's"),
        (lambda: agent.sample_shaping({"lo": line}, 0), "'lo' is not the experiment's"),
        (lambda: agent.sample_shaping({"eth7": line}, 0), "'eth7' is not shaped"),
        (lambda: agent.neighbours([Neighbour("10.1.0.2", "x dev lo", "eth7")]), "'x dev lo' is not a hardware address"),
        (lambda: agent.neighbours([Neighbour("10.1.0.2/8", mac, "eth7")]), "10.1.0.2/8"),
        (lambda: agent.configure_link("line", {}, 1, []), "this host may not emulate link 'line'; granted are: none"),
    ]
    for attempt, message in tried:
        with pytest.raises(AgentError, match=message):
            attempt()


def test_addresses_of_the_experiment_are_accepted() -> None:
    given = kernel.address_lines([InterfaceAddress("eth7", "10.1.0.1/24")], give=True)
    assert given == ["address replace 10.1.0.1/24 dev eth7"]
    with pytest.raises(ValueError, match="does not appear to be an IPv4 or IPv6 interface"):
        kernel.address_lines([InterfaceAddress("eth7", "10.1.0.1/24 dev lo")], give=True)


def test_an_unreadable_grant_stops_the_agent_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "router.json").write_text("{")
    with pytest.raises(AgentError, match=r"router\.json cannot be read"):
        Grants(tmp_path)
