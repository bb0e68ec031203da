"""Hosts that are lent: reached over a host in between, asked for their interfaces, and gone at the end of a lease."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments import inventory, lab as labs
from experiments.engine.execution import Finish, Worker
from experiments.engine.options import Options
from experiments.engine.scheduling import run_campaign
from experiments.language.campaign import Run, load
from experiments.language.problems import CampaignError
from experiments.terminal import TerminalReporter
from testbed.errors import LeaseOver, TestbedError
from testbed.host_agents import HostAccess
from testbed.host_testbed import HostTestbed
from testbed.leases import OVERHEAD_S, HostLease
from testbed.tunnels import Jump, Login, SshOptions, jump_command, meaning, ssh_command
from tests.support.ansible_lab import write_yaml
from tests.support.labs import changed
from tests.unit.physical.test_sets import CAMPAIGN

ENDS = datetime(2026, 3, 1, 18, tzinfo=UTC)


def lent(folder: Path, **more: Any) -> Path:
    """The inventory of two hosts and a link box behind another host."""
    (folder / "pair.yaml").write_text(CAMPAIGN)
    hosts = {"left": {}, "right": {}, "box": {"vars": {"common_mtu": 0}}}
    for number, entry in enumerate(hosts.values(), start=11):
        entry["address"] = f"192.168.50.{number}"  # type: ignore[assignment]
    ssh = {"key": "key", "known_hosts": "known_hosts", "proxy_jump": "root@192.0.2.7:2222"}
    return write_yaml(folder / "hosts.yml", {
        "plugin": "backchannel", "campaign": "pair.yaml", "connection": "ssh", "ssh": ssh, "hosts": hosts,
        "links": {"line": {"box": "box"}}, **more,
    })  # fmt: skip


def test_a_host_in_between_is_reached_with_the_labs_keys() -> None:
    options = SshOptions("backchannel", Path("/k"), Path("/known"), jump=Jump.parse("ann@192.0.2.1:2200"))
    command = jump_command(options)
    assert command is not None
    words = command.split()
    assert words[0] == "ssh"
    assert words[-3:] == ["-p", "2200", "ann@192.0.2.1"]
    assert {"StrictHostKeyChecking=yes", "UserKnownHostsFile=/known", "BatchMode=yes", "/k"} <= set(words)
    assert f"ProxyCommand={command}" in ssh_command(options, "h", 22, Path("/c"), Path("/s"))
    other = SshOptions("u", Path("/k"), None, jump=Jump("j"), jump_key=Path("/other key"))
    assert str(jump_command(other)).endswith("-i '/other key' -o IdentitiesOnly=yes -p 22 j")
    assert jump_command(SshOptions("u", None, None)) is None


def test_a_failure_at_the_host_in_between_is_said_to_be_there() -> None:
    options = SshOptions("backchannel", Path("/k"), Path("/known"), jump=Jump("192.0.2.7", "ann", 2222))
    facts = Login("192.0.2.1", 22, "u", "/k", "x", "e")
    jump = Login.of_jump(options)
    text = meaning("ssh: connect to host 192.0.2.7 port 2222: Connection refused", facts, jump)
    assert text.startswith("at the host in between (proxy_jump), nothing answers SSH at 192.0.2.7 port 2222")
    denied = meaning("ann@192.0.2.7: Permission denied (publickey).", facts, jump)
    assert "it refuses the key /k for user ann (enter its public half there)" in denied
    assert meaning("u@192.0.2.1: Permission denied (publickey).", facts, jump) == "it refuses the key /k for user u (e)"


@pytest.mark.parametrize(
    ("text", "jump"),
    [
        ("h", Jump("h")), ("ann@h.test", Jump("h.test", "ann")), ("h:2200", Jump("h", "", 2200)),
        ("ann@[2001:db8::1]:22", Jump("2001:db8::1", "ann", 22)), ("a,b", None), ("h:0", None), ("h:70000", None),
        ("-oProxyCommand=x", None), ("", None),
    ],
)  # fmt: skip
def test_a_host_in_between_is_written_as_ssh_writes_it(tmp_path: Path, text: str, jump: Jump | None) -> None:
    path = changed(lent(tmp_path), lambda file: file["ssh"].update(proxy_jump=text))
    if jump is not None:
        assert inventory.read(path).ssh_options().jump == jump
        return
    with pytest.raises(CampaignError, match=r"hosts\.yml:\d+: ssh\.proxy_jump: .* is not a host to jump over"):
        inventory.read(path)


def test_a_run_begins_only_if_it_ends_before_the_lease() -> None:
    lease = HostLease(ENDS)
    end_s = ENDS.timestamp()
    lease.require(60, end_s - 60 - OVERHEAD_S)
    with pytest.raises(LeaseOver, match=r"ends in 79 s \(2026-03-01 18:00:00 UTC\), and a run needs 80 s; extend"):
        lease.require(60, end_s - 60 - OVERHEAD_S + 1)
    with pytest.raises(LeaseOver, match="ended 5 s ago"):
        lease.require(0, end_s + 5)
    assert lease.state(end_s - 7260) == "the lease of the hosts ends in 2 h 1 min (2026-03-01 18:00:00 UTC)"
    assert lease.state(end_s) == "the lease of the hosts has ended (2026-03-01 18:00:00 UTC)"


def test_hosts_are_not_even_asked_for_a_run_that_would_not_end(tmp_path: Path) -> None:
    (tmp_path / "pair.yaml").write_text(CAMPAIGN)
    scenario = load(tmp_path / "pair.yaml").runs[0].scenario

    def place(_: object) -> Any:
        raise AssertionError("placed")

    testbed = HostTestbed(place, HostAccess(), "x", None, HostLease(ENDS), lambda: ENDS.timestamp() - 10)
    with pytest.raises(LeaseOver):
        testbed.build(scenario)
    # Nor once they are connected: calibration takes time too.
    testbed._conductor = object()  # type: ignore[assignment]
    with pytest.raises(LeaseOver):
        testbed.run(scenario, tmp_path)


@pytest.mark.parametrize(
    ("value", "ends"),
    [
        ("2026-03-01T18:00:00Z", ENDS), ("2026-03-01T19:00:00+01:00", ENDS), ("2026-03-01T18:00:00", None),
        ("tomorrow", None), (7, None),
    ],
)  # fmt: skip
def test_a_lease_ends_at_an_instant(tmp_path: Path, value: object, ends: datetime | None) -> None:
    path = lent(tmp_path, lease_ends=value)
    if ends is not None:
        assert inventory.read(path).file.lease_ends == ends
        return
    with pytest.raises(CampaignError, match="lease_ends: .* is not a time with its offset from UTC; write it as '2026"):
        inventory.read(path)


def test_no_campaign_begins_after_the_lease(tmp_path: Path) -> None:
    ended = datetime.now(UTC) - timedelta(minutes=1)
    path = lent(tmp_path, lease_ends=ended.isoformat())
    plan = load(tmp_path / "pair.yaml", ["backend=physical"])
    with pytest.raises(TestbedError, match="the lease of the hosts has ended .*; extend it and its 'lease_ends'"):
        labs.in_lab(path, [plan], print)


def test_runs_that_would_not_end_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate = Worker.run

    def on_hosts(worker: Worker, run: Run, attempt: int, folder: Path) -> Finish:
        if run.duration_s > 1:
            HostLease(ENDS).require(run.duration_s, ENDS.timestamp() - OVERHEAD_S - 1)
        return simulate(worker, run, attempt, folder)

    monkeypatch.setattr(Worker, "run", on_hosts)
    text = CAMPAIGN.replace("duration: 4 s\nrepetitions: 8", "stack: newreno\nsweep: {duration: [1 s, 2 s, 3 s]}")
    (tmp_path / "pair.yaml").write_text(text)
    options = Options(tmp_path / "results", attempts=3)
    plan = load(tmp_path / "pair.yaml", ["backend=sim"])
    outcome = run_campaign(plan, options, TerminalReporter(Console(quiet=True)))
    assert (outcome.landed, outcome.lease_left_out, outcome.failed) == (1, 2, {})
    assert "the lease of the hosts ends in 21 s" in outcome.lease_over
    assert not outcome.complete
    monkeypatch.setattr(Worker, "run", simulate)
    again = run_campaign(plan, options, TerminalReporter(Console(quiet=True)))
    assert (again.landed, again.reused, again.complete) == (2, 1, True)
