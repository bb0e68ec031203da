"""A lab with several disjoint sets of hosts: where runs are made, what their ids say, and a host that is lost."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agents.messages import Health
from analysis.store import Store
from experiments import inventory, lab as labs
from experiments.engine import core, scheduling
from experiments.engine.execution import Finish, Worker, _require_installation
from experiments.engine.executors import LocalExecutor, Post
from experiments.engine.options import Options
from experiments.engine.pool import CellPool
from experiments.engine.scheduling import run_campaign
from experiments.language.campaign import Plan, Run, load
from experiments.terminal import TerminalReporter
from testbed import placement
from testbed.errors import HostLost, TestbedError
from testbed.installation import Installation, difference, installation
from testbed.report import Report
from tests.support.ansible_lab import write_yaml
from tests.support.labs import changed, refusal
from tests.support.waiting import HANGS_S

CAMPAIGN = """
name: pair
network:
  nodes: [{name: left, kind: host}, {name: right, kind: host}]
  links:
    - {name: line, ends: [left, right], forward: {rate: 1 Mbit/s, delay: 5 ms}, reverse: {rate: 128 kbit/s}}
workload:
  - {name: bulk, from: left, to: right}
duration: 4 s
repetitions: 8
"""


def pair(folder: Path, names: tuple[str, ...] = ("red", "blue"), **more: Any) -> Path:
    """The inventory of a lab with several sets of two hosts and a link box."""
    (folder / "pair.yaml").write_text(CAMPAIGN)
    sets = {}
    for number, name in enumerate(names):
        roles = {"l": {"plays": "left"}, "r": {"plays": "right"}, "box": {}}
        hosts = {
            f"{name}-{place}": {"address": f"192.168.50.{10 * number + offset}", **role}
            for offset, (place, role) in enumerate(roles.items(), start=11)
        }
        sets[name] = {"hosts": hosts, "links": {"line": {"box": f"{name}-box"}}}
    return write_yaml(folder / "hosts.yml", {
        "plugin": "backchannel", "campaign": "pair.yaml", "connection": "ssh",
        "ssh": {"key": "key", "known_hosts": "known_hosts", "connect_timeout": "3 s"}, "sets": sets, **more,
    })  # fmt: skip


def placements(path: Path) -> dict[str, placement.Placement]:
    scenario = load(path.with_name("pair.yaml")).runs[0].scenario
    return inventory.placements(inventory.read(path), scenario.nodes, scenario.links)


def health(kernel: str = "6.1.0", nic: str = "e1000e 8086:15b8", processors: str = "4 x Example") -> Health:
    names = dict.fromkeys(("left-eth0", "right-eth0", "l0e0", "l0e1"), nic)
    return Health(1, kernel, False, (), 0, (), "", names, dict.fromkeys(names, 1500), processors)


def described(path: Path, answers: Mapping[str, Health] | None = None) -> dict[str, Installation]:
    """Each set, as its hosts' answers describe it."""
    found = {}
    for name, placed in placements(path).items():
        answer = (answers or {}).get(name, health())
        found[name] = installation(placed, dict.fromkeys(placed.members(), answer))
    return found


def test_each_set_plays_the_whole_topology(tmp_path: Path) -> None:
    found = placements(pair(tmp_path))
    assert {name: one.host_of for name, one in found.items()} == {
        "red": {"left": "red-l", "right": "red-r"}, "blue": {"left": "blue-l", "right": "blue-r"},
    }  # fmt: skip
    assert [one.boxes() for one in found.values()] == [["red-box"], ["blue-box"]]


def blue(file: Any) -> Any:
    return file["sets"]["blue"]["hosts"]


def outside(**fields: object) -> dict[str, object]:
    """A host of no set."""
    return {"pc9": {"address": "192.168.50.99", **fields}}


MISTAKES = {
    "a shared host": (
        lambda file: blue(file).update({"red-l": blue(file).pop("blue-l")}),
        "sets red and blue both have host red-l; one must not",
    ),
    "a shared machine": (
        lambda file: blue(file)["blue-l"].update(address="192.168.50.11"),
        "hosts red-l of set red and blue-l of set blue have the address '192.168.50.11'; each machine is one host",
    ),
    "an incomplete set": (lambda file: blue(file).pop("blue-l"), "set blue: no host plays node 'left'"),
    "a shared box": (
        lambda file: (
            file.update(hosts=outside(also=["worker"])),
            file["sets"]["red"]["links"]["line"].update(box="pc9"),
        ),
        "set red uses host pc9, which is in no set; move it into this set",
    ),
    "a player outside": (
        lambda file: file.update(hosts=outside(plays="left")),
        "hosts.pc9: with 'sets', a host outside of them has 'also' and plays nothing; move it to a set",
    ),
    "neither": (lambda file: file.pop("sets"), "hosts: this field is missing; add it with the lab's hosts, or 'sets'"),
    "a host's variable": (
        lambda file: blue(file)["blue-l"].update(vars={"common_clocks": "none"}),
        "sets.blue.hosts.blue-l.vars.common_clocks: unknown variable of role common 'common_clocks'",
    ),
    "a connection for Ansible alone": (
        lambda file: file.update(vars={"ansible_user": "ann"}),
        "vars.ansible_user: a campaign's own connections would not follow it; set 'ssh.user' instead",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_error_is_one_sentence_with_the_set(tmp_path: Path, mistake: str) -> None:
    change, message = MISTAKES[mistake]
    assert message in refusal(placements, changed(pair(tmp_path), change))


def plan_of(path: Path, one: Installation) -> Plan:
    return load(path.with_name("pair.yaml"), ["backend=physical"]).in_lab(lambda _: one.identity())


def test_like_sets_can_make_each_others_runs_and_unlike_ones_cannot(tmp_path: Path) -> None:
    path = pair(tmp_path)
    like = described(path)
    ids = {name: plan_of(path, one).run_ids for name, one in like.items()}
    assert ids["red"] == ids["blue"]
    assert difference(like["red"], like["blue"]) is None
    run = plan_of(path, like["red"]).runs[0]
    _require_installation(run, Report(t0_epoch_ns=0, installation=like["blue"].as_json()))
    for other, words in (
        (health(kernel="6.6.0"), "kernel of 'left': 6.1.0 in set red, 6.6.0 in set blue"),
        (health(processors="2 x Example"), "processors of 'left': 4 x Example in set red, 2 x Example in set blue"),
        (health(nic="igb 8086:1533"), "link 'line': box over left: e1000e 8086:15b8"),
    ):
        unlike = described(path, {"blue": other})
        assert words in str(difference(unlike["red"], unlike["blue"]))
        assert not set(plan_of(path, unlike["blue"]).run_ids) & set(ids["red"])
        with pytest.raises(TestbedError, match="a host of the lab has changed since the campaign began"):
            _require_installation(run, Report(t0_epoch_ns=0, installation=unlike["blue"].as_json()))


def test_a_wire_in_one_set_and_a_box_in_the_other_are_unlike(tmp_path: Path) -> None:
    path = changed(pair(tmp_path), lambda file: file["sets"]["blue"]["links"].update(line={"real": "wire"}))
    found = described(path)
    assert "has no match in set blue" in str(difference(found["red"], found["blue"]))
    assert found["red"].identity() != found["blue"].identity()


def test_a_set_that_joins_later_uses_the_results_of_the_others(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    alone, both = pair(tmp_path / "one", ("green",)), pair(tmp_path / "two")
    assert plan_of(alone, described(alone)["green"]).run_ids == plan_of(both, described(both)["red"]).run_ids


def simulated(folder: Path) -> Plan:
    """The campaign in the simulator, with losses that make its runs differ."""
    text = CAMPAIGN.replace("5 ms}, reverse", "5 ms, errors: [{model: uniform, probability: 0.01}]}, reverse")
    (folder / "pair.yaml").write_text(text.replace("duration: 4 s", "duration: 1 s\nstack: newreno"))
    return load(folder / "pair.yaml", ["backend=sim"])


class Sets:
    """Sets of hosts that simulate: the runs of each, and how many there were at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lost: Mapping[str, int]) -> None:
        self.lost = dict(lost)
        self.made: dict[str, list[str]] = {}
        self.most = self.now = 0
        lock, simulate = threading.Lock(), Worker.run

        def on_hosts(worker: Worker, run: Run, attempt: int, folder: Path) -> Finish:
            name = str(worker._cells("", lambda _: None))
            if self.lost.get(name, 0) > 0:
                self.lost[name] -= 1
                raise HostLost(f"host {name}-l was lost: it does not answer")
            with lock:
                self.now += 1
                self.most = max(self.most, self.now)
                self.made.setdefault(name, []).append(run.id)
            # Long enough for the other set to begin.
            time.sleep(0.3)
            with lock:
                self.now -= 1
            return simulate(worker, run, attempt, folder)

        def named(name: str) -> Any:
            return lambda _, __: name

        def executor(store: Store, post: Post) -> LocalExecutor:
            return LocalExecutor(store, post, {name: named(name) for name in ("red", "blue")})

        monkeypatch.setattr(Worker, "run", on_hosts)
        monkeypatch.setattr(scheduling, "LocalExecutor", executor)


def test_sets_run_at_once_and_a_lost_host_parks_its_own_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sets = Sets(monkeypatch, {"red": 2})
    monkeypatch.setattr(core, "PARKED_S", 0.4)
    console = Console(record=True, width=200)
    options = Options(tmp_path / "results", attempts=1)
    outcome = run_campaign(simulated(tmp_path), options, TerminalReporter(console))
    assert (outcome.landed, outcome.failed) == (8, {})
    assert sets.most > 1
    # The other set went on meanwhile, and the lost one came back.
    assert set(sets.made) == {"red", "blue"}
    assert sets.lost["red"] == 0
    (line,) = [line for line in console.export_text().splitlines() if "was lost" in line]
    assert line.endswith(
        "host red-l was lost: it does not answer; set red waits for the host, other sets make its runs"
    )


def test_sets_connect_at_once_on_a_machine_with_one_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    nothing: Any = None
    executor = LocalExecutor(nothing, nothing, {"red": nothing, "blue": nothing})
    both = threading.Barrier(2, timeout=HANGS_S)

    def connect(pool: CellPool) -> int:
        with pool.building:
            return both.wait()

    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(connect, executor._pools.values())) == [0, 1]
    executor.close()


def test_one_set_that_stays_lost_does_not_end_the_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sets = Sets(monkeypatch, {"red": 1000})
    monkeypatch.setattr(core, "PARKED_S", 0.05)
    monkeypatch.setattr(core, "MOST_PARKED_S", 0.1)
    options = Options(tmp_path / "results", attempts=1)
    plan = simulated(tmp_path)
    outcome = run_campaign(plan, options, TerminalReporter(Console(quiet=True)))
    assert outcome.landed == 8
    assert set(sets.made) == {"blue"}
    sets.lost["blue"] = 1000
    with pytest.raises(TestbedError, match="gave up after"):
        run_campaign(plan, Options(tmp_path / "other", attempts=1), TerminalReporter(Console(quiet=True)))


def test_unlike_sets_are_rejected_and_a_silent_one_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pair(tmp_path)
    answers: dict[str, Installation | None] = dict(described(path))

    class Testbed:
        def __init__(self, name: str) -> None:
            self.name = name

        def build(self, _: object) -> bool:
            if answers[self.name] is None:
                raise HostLost(f"host {self.name}-l: it does not answer")
            return True

        def installation(self) -> Installation:
            found = answers[self.name]
            assert found is not None
            return found

        def close(self) -> None:
            pass

    monkeypatch.setattr(labs._Access, "testbed", lambda _, name, *__: Testbed(name))
    plan, warnings = load(tmp_path / "pair.yaml", ["backend=physical"]), list[str]()
    [whole] = labs.in_lab(path, [plan], warnings.append)
    assert warnings == []
    answers["red"] = None
    assert labs.in_lab(path, [plan], warnings.append)[0].run_ids == whole.run_ids
    assert warnings == ["set red does not take part until it answers: host red-l: it does not answer"]
    answers["red"] = described(path, {"red": health(kernel="6.6.0")})["red"]
    with pytest.raises(TestbedError, match=r"the sets of hosts are not alike: kernel of 'left': 6\.6\.0 in set red"):
        labs.in_lab(path, [plan], warnings.append)
    answers.update(red=None, blue=None)
    with pytest.raises(HostLost, match="host red-l: it does not answer"):
        labs.in_lab(path, [plan], warnings.append)
