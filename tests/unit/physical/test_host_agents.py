"""The agents of hosts, without hosts: connecting, losing one, and being stopped at any moment."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

from agents.agent import Agent, Grants
from agents.client import AgentClient
from agents.errors import AgentUnreachable
from agents.service import serve
from experiments.engine.execution import Worker
from experiments.language.backends import Backend
from experiments.language.campaign import load
from testbed.errors import TestbedError
from testbed.host_agents import HostAccess, HostAgents
from testbed.tunnels import Tunnel
from tests.support.labs import CAMPAIGN
from tests.support.serving import serving


class LocalTunnel(Tunnel):
    """To an agent of this machine."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.socket = path
        self.closed = False
        self.lost = False

    def failure(self) -> str | None:
        return f"host {self.name} was lost: it does not answer at 192.0.2.1 any more" if self.lost else None

    def close(self) -> None:
        self.closed = True


class Hosts:
    """Agents on this machine, in place of hosts."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, running: ExitStack) -> None:
        self.agents: dict[str, Agent] = {}
        self.tunnels: dict[str, LocalTunnel] = {}
        for name in ("pc1", "pc2"):
            (folder / name).mkdir()
            self.agents[name] = Agent(folder / name, "/bin/false", Grants(None), folder / f"{name}.held")
            running.enter_context(serving(serve(folder / f"{name}.sock", self.agents[name])))

        def open_tunnel(_agents: HostAgents, _placement: object, _access: HostAccess, name: str) -> LocalTunnel:
            self.tunnels[name] = LocalTunnel(name, folder / f"{name}.sock")
            return self.tunnels[name]

        monkeypatch.setattr(HostAgents, "_open", open_tunnel)

    @property
    def holders(self) -> set[str]:
        return {agent.lease.holder for agent in self.agents.values()}

    def connect(self) -> HostAgents:
        placement = SimpleNamespace(members=lambda: list(self.agents))
        return HostAgents(cast(Any, placement), HostAccess(), "campaign small")


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    with ExitStack() as running:
        yield Hosts(tmp_path, monkeypatch, running)


def test_a_host_lost_while_its_clock_is_read_is_reported(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    def clock(client: AgentClient) -> dict[str, int]:
        hosts.tunnels["pc1"].lost = True
        raise AgentUnreachable(f"{client.node}: its agent does not answer (timed out)")

    monkeypatch.setattr(AgentClient, "clock", clock)
    with pytest.raises(TestbedError, match=r"^host pc1 was lost: it does not answer at 192\.0\.2\.1"):
        hosts.connect()
    assert hosts.holders == {""}


def test_cut_connections_leave_no_host_locked(hosts: Hosts) -> None:
    agents = hosts.connect()
    assert hosts.holders == {"campaign small"}
    agents.cut()
    assert hosts.holders == {""}
    assert all(tunnel.closed for tunnel in hosts.tunnels.values())
    with pytest.raises(TestbedError, match="the connections to the hosts were cut"):
        agents.check()
    # Then SSH's message that its connection ended is not the cause.
    hosts.tunnels["pc1"].lost = True
    assert str(agents.explain(AgentUnreachable("pc1: its agent does not answer"))) == "pc1: its agent does not answer"
    again = hosts.connect()
    agents.close()
    assert hosts.holders == {"campaign small"}
    again.close()
    assert hosts.holders == {""}


def test_cutting_connections_does_not_wait_long_for_a_silent_host(hosts: Hosts, tmp_path: Path) -> None:
    agents = hosts.connect()
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent"))
        silent.listen()
        agents._held.insert(0, AgentClient("pc3", tmp_path / "silent"))
        agents._release_s = 0.2
        began = time.monotonic()
        agents.cut()
    # A request's own patience is 30 s.
    assert time.monotonic() - began < 20
    assert hosts.holders == {""}
    agents.close()


@pytest.mark.parametrize("during", ["build", "calibrate"])
def test_a_stopped_worker_starts_nothing_more(tmp_path: Path, during: str) -> None:
    """While hosts are being connected, there are no connections to cut yet."""
    file = tmp_path / "small.yaml"
    file.write_text(CAMPAIGN)
    run = replace(load(file).runs[0], backend=Backend.PHYSICAL)
    # Its `kill` stops nothing.
    testbed = mock.Mock(**{"build.return_value": True, "calibrate.return_value": []})
    worker = Worker("cell", lambda progress: None, lambda _name, _on_progress: testbed)

    def stopped(*_: object) -> object:
        worker.kill()
        return mock.DEFAULT

    getattr(testbed, during).side_effect = stopped
    with pytest.raises(TestbedError, match="the campaign was stopped"):
        worker.run(run, 1, tmp_path)
    calls = [name for name, *_ in testbed.method_calls if name not in ("kill", "keep_log")]
    assert calls[-2:] == [during, "close"]
