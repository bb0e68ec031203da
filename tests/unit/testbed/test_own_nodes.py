"""Which state of a crate really runs: a node that is not the one of a run's id is refused, wherever it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agents.agent import Agent, Grants
from agents.errors import AgentError
from experiments.engine.execution import Worker
from experiments.engine.screen import Simulator
from experiments.language.backends import Backend
from experiments.language.campaign import Run, load
from testbed import node_binary, own_nodes
from testbed.cellmain import CellServer
from testbed.errors import TestbedError, Unavailable
from testbed.host_agents import HostAccess
from testbed.host_testbed import HostTestbed
from testbed.own_crates import Crate
from testbed.scenario import CrateUsed, Scenario, ScenarioDocument
from tests.support.campaign_texts import one_line

NEW, OLD = "a" * 64, "b" * 64
MINE = CrateUsed(name="mine", version="0.1.0", sha256=NEW)
STALE = f"another version of the crate 'mine' ({OLD[:12]}) than is asked for ({NEW[:12]})"


def node(folder: Path, crates: Mapping[str, str]) -> Path:
    """A program that lists crates, as a node does."""
    folder.mkdir()
    listed = [{"name": name, "version": "0.1.0", "sha256": sha256, "adds": []} for name, sha256 in crates.items()]
    program = folder / "node"
    program.write_text(f"#!/bin/sh\n[ \"$1\" = registry ] && echo '{json.dumps({'crates': listed})}'\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The node of this process has a state of the crate from before an edit."""
    program = node(tmp_path / "stale", {"mine": OLD})
    monkeypatch.setenv(node_binary.VARIABLE, str(program))
    return program


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A simulated run that needs the crate."""
    (tmp_path / "own.yaml").write_text(one_line("own", "repetitions: 1", "rate: 1 Mbit/s, delay: 10 ms", "1 s"))
    document = load(tmp_path / "own.yaml").runs[0].document.document
    return Run("r00", 0, 0, Backend.SIM, ScenarioDocument({**document, "crates": [MINE.as_json()]}))


def agents(crates: Mapping[str, str]) -> Any:
    return {"router": SimpleNamespace(crates=lambda: crates)}


@pytest.mark.usefixtures("run", "stale")
def test_a_run_is_refused_by_the_node_of_another_state(run: Run, tmp_path: Path) -> None:
    assert own_nodes.lack([MINE]) == f"the node binary has {STALE}"
    with pytest.raises(TestbedError) as error:
        Worker("worker", lambda progress: None).run(run, 1, tmp_path)
    assert STALE in str(error.value)


def test_a_run_of_a_search_is_refused_by_a_node_without_the_crate(run: Run) -> None:
    with Simulator() as simulator, pytest.raises(TestbedError, match="has no crate 'mine'"):
        simulator.run(run, None)


def test_an_agent_says_what_its_own_program_has(tmp_path: Path) -> None:
    """The runner's node is another one."""
    program = node(tmp_path / "copied", {"mine": OLD, "other": NEW})
    agent = Agent(tmp_path, str(program), Grants(None), tmp_path / "held")
    assert agent.crates() == {"mine": OLD, "other": NEW}
    with pytest.raises(AgentError, match="/bin/false does not start"):
        Agent(tmp_path, "/bin/false", Grants(None), tmp_path / "held").crates()


def test_a_cell_that_was_started_before_an_edit_is_refused(run: Run, tmp_path: Path) -> None:
    cell = CellServer(lambda progress: None)
    ran: list[Scenario] = []
    # The last thing that a cell asks of a run's report is what its process lacked.
    report = SimpleNamespace(driver=SimpleNamespace(realtime=True))

    def run_it(scenario: Scenario, *_: object) -> SimpleNamespace:
        ran.append(scenario)
        return report

    cell._conductor = cast(Any, SimpleNamespace(run=run_it))
    cell._network = cast(Any, SimpleNamespace(agents=agents({"mine": OLD})))
    with pytest.raises(TestbedError) as error:
        cell.run(run.scenario, tmp_path)
    assert f"router: the node binary has {STALE}" in str(error.value)
    assert not ran
    emulator = SimpleNamespace(locked_bytes=lambda: 1)
    cell._network = cast(Any, SimpleNamespace(agents=agents({"mine": NEW}), emulator=emulator))
    cell.run(run.scenario, tmp_path)
    assert ran == [run.scenario]


def test_a_host_with_yesterdays_program_is_refused_unmeasured(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a link box, whose agent plays no node, and for the second campaign on connected hosts."""
    box = SimpleNamespace(crates=lambda: {"mine": OLD})
    connected = SimpleNamespace(clients={"box": box}, read_clocks=None, close=lambda: None)
    for name in ("HostAgents", "HostClocks", "HostNetwork", "Conductor"):
        monkeypatch.setattr(f"testbed.host_testbed.{name}", lambda *_: connected)
    testbed = HostTestbed(cast(Any, lambda _: SimpleNamespace(host_of={})), HostAccess(), "own")
    for _ in range(2):
        with pytest.raises(TestbedError) as error:
            testbed.build(run.scenario)
        assert f"box: the node binary has {STALE}. './backchannel testbed site" in str(error.value)
    box.crates = lambda: {"mine": NEW}
    testbed.build(run.scenario)


def test_a_worker_without_sources_takes_the_copied_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = '[package]\nname = "mine"\nversion = "0.1.0"\n[dependencies]\nbackchannel-node = { path = "x" }\n'
    crate = Crate({"Cargo.toml": manifest, "src/lib.rs": ""})
    monkeypatch.setattr(own_nodes, "ROOT", tmp_path)
    monkeypatch.setattr(own_nodes, "_in_use", {})
    monkeypatch.setenv(node_binary.VARIABLE, str(node(tmp_path / "old", {"mine": OLD})))
    with pytest.raises(Unavailable, match="has no Rust sources"):
        own_nodes.use([crate])
    copied = str(node(tmp_path / "new", {"mine": crate.sha256}))
    monkeypatch.setenv(node_binary.VARIABLE, copied)
    own_nodes.use([crate])
    assert own_nodes.in_use() == (crate,)
    assert node_binary.path() == copied
