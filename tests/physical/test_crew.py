"""A crew of hosts, without hosts: connecting, losing one, and being stopped at any moment."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agents.client import AgentClient
from agents.errors import AgentError
from agents.service import Agent, Grants, Server
from experiments.engine.execution import Worker
from experiments.language.campaign import load
from testbed import emulated
from testbed.emulated import EmulatedTestbed
from testbed.errors import TestbedError
from testbed.physical import Crew, PhysicalTestbed, Reach
from testbed.tunnels import Way
from tests.physical.conftest import CAMPAIGN


class Near(Way):
    """A way to an agent of this machine."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.socket = path
        self.closed = False
        self.lost = False

    def trouble(self) -> str | None:
        return f"host {self.name} was lost: it does not answer at 192.0.2.1 any more" if self.lost else None

    def close(self) -> None:
        self.closed = True


class Hosts:
    """Agents, and crews of them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, running: ExitStack) -> None:
        self.agents: dict[str, Agent] = {}
        self.ways: dict[str, Near] = {}
        for name in ("pc1", "pc2"):
            (folder / name).mkdir()
            self.agents[name] = Agent(folder / name, "/bin/false", Grants(None), folder / f"{name}.held")
            server = running.enter_context(Server(folder / f"{name}.sock", self.agents[name]))
            threading.Thread(target=server.serve_forever, daemon=True).start()
            running.callback(server.shutdown)

        def way(_crew: Crew, _placement: object, _reach: Reach, name: str) -> Near:
            self.ways[name] = Near(name, folder / f"{name}.sock")
            return self.ways[name]

        monkeypatch.setattr(Crew, "_open", way)

    @property
    def holders(self) -> set[str]:
        return {agent.hold.holder for agent in self.agents.values()}

    def crew(self) -> Crew:
        return Crew(cast(Any, SimpleNamespace(members=lambda: list(self.agents))), Reach(), "campaign small")


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    with ExitStack() as running:
        yield Hosts(tmp_path, monkeypatch, running)


def test_a_host_that_is_lost_while_its_clock_is_read_is_told_with_the_reason(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def clock(client: AgentClient) -> dict[str, int]:
        hosts.ways["pc1"].lost = True
        raise AgentError(f"{client.node}: its agent does not answer (timed out)")

    monkeypatch.setattr(AgentClient, "clock", clock)
    with pytest.raises(TestbedError, match=r"^host pc1 was lost: it does not answer at 192\.0\.2\.1"):
        hosts.crew()
    assert hosts.holders == {""}


def test_a_crew_that_is_cut_leaves_no_host_held(hosts: Hosts) -> None:
    crew = hosts.crew()
    assert hosts.holders == {"campaign small"}
    crew.cut()
    assert hosts.holders == {""}
    assert all(way.closed for way in hosts.ways.values())
    with pytest.raises(TestbedError, match="the connections to the hosts were cut"):
        crew.check()
    # SSH's last words, that its connection ended, are no reason then.
    hosts.ways["pc1"].lost = True
    assert crew.why("pc1: its agent does not answer") == "pc1: its agent does not answer"
    again = hosts.crew()
    crew.close()
    assert hosts.holders == {"campaign small"}
    again.close()
    assert hosts.holders == {""}


def test_a_silent_host_is_not_waited_for_for_long(hosts: Hosts, tmp_path: Path) -> None:
    crew = hosts.crew()
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent"))
        silent.listen()
        crew._held.insert(0, AgentClient("pc3", tmp_path / "silent"))
        crew._parting_s = 0.2
        began = time.monotonic()
        crew.cut()
    # A request's own patience is 30 s.
    assert time.monotonic() - began < 20
    assert hosts.holders == {""}
    crew.close()


def bare(crew: object, agents: dict[str, Any] | None = None) -> PhysicalTestbed:
    """A testbed without a lab."""
    testbed = object.__new__(PhysicalTestbed)
    testbed._crew = cast(Any, crew)
    testbed._agents = agents or {}
    return testbed


def test_a_run_under_way_ends_when_the_crew_is_cut(hosts: Hosts) -> None:
    crew = hosts.crew()
    phases: list[str] = []

    def progress(phase: str) -> None:
        phases.append(phase)
        crew.cut()

    scenario = {"duration_s": 60, "workload": [{"name": "bulk", "to": "b"}]}
    with pytest.raises(TestbedError, match="were cut"):
        bare(crew)._sleep_until(time.monotonic_ns(), scenario, progress)
    assert len(phases) == 1
    crew.close()


def test_a_run_whose_flows_all_have_a_size_ends_with_the_last_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated, "AFTER_THE_LAST_S", 0.0)
    answers = [{"bulk-receive"}, set[str]()]
    agent = SimpleNamespace(running_traffic=lambda: answers.pop(0))
    testbed = bare(SimpleNamespace(check=lambda: None), {"b": agent})
    scenario = {"duration_s": 60, "workload": [{"name": "bulk", "to": "b", "bytes": 1000}]}
    began = time.monotonic()
    testbed._sleep_until(time.monotonic_ns() - 1, scenario, lambda phase: None)
    assert time.monotonic() - began < 30
    assert not answers


def test_a_host_that_is_lost_during_calibration_is_told_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> None:
        raise TestbedError("pc1: its agent does not answer (timed out)")

    monkeypatch.setattr(EmulatedTestbed, "calibrate", lost)
    with pytest.raises(TestbedError, match="^host pc1 was lost$"):
        bare(SimpleNamespace(why=lambda error: "host pc1 was lost")).calibrate([], 1)


class Deaf:
    """A testbed that does not hear of its end; it notes what it is asked."""

    def __init__(self, during: str, then: Callable[[], None]) -> None:
        self.asked: list[str] = []
        self._during = during
        self._then = then

    def _note(self, what: str) -> None:
        self.asked.append(what)
        if what == self._during:
            self._then()

    def build(self, _scenario: dict[str, Any]) -> bool:
        self._note("build")
        return True

    def calibrate(self, _scenario: dict[str, Any]) -> list[dict[str, Any]]:
        self._note("calibrate")
        return []

    def run(self, _scenario: dict[str, Any], _out: Path) -> dict[str, Any]:
        self._note("run")
        return {}

    def keep_log(self, _to: Path) -> None:
        pass

    def close(self) -> None:
        self._note("close")

    def kill(self) -> None:
        pass


@pytest.mark.parametrize("during", ["build", "calibrate"])
def test_what_is_stopped_goes_on_with_nothing(tmp_path: Path, during: str) -> None:
    """While hosts are being connected to there is nothing that could be cut."""
    file = tmp_path / "small.yaml"
    file.write_text(CAMPAIGN)
    run = replace(load(file).runs[0], backend="physical")
    deaf = Deaf(during, lambda: worker.kill())
    worker = Worker("cell", lambda phase: None, lambda _name, _on_phase: deaf)
    with pytest.raises(TestbedError, match="the campaign was stopped"):
        worker.run(run, 1, tmp_path)
    assert deaf.asked[-2:] == [during, "close"]
