"""Every role on a host in namespaces: check mode, first run, second run with verification, removal."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from experiments import inventory
from testbed import node_binary, sources
from tests.support.ansible_lab import NGINX, in_lab, recorded, write_yaml
from tests.support.once import once

pytestmark = [pytest.mark.emulated, pytest.mark.shares_cpu]

ANSIBLE = node_binary.ROOT / "ansible"
#: Host of each kind of the role `interfaces`.
KINDS = {
    "endpoint": "m",
    "router": "b",
    "base_station": "b",
    "emulated_modem": "box1",
    "emulated_radio": "box2",
    "queue_policy": "r",
}
#: Host of each role, and of each kind in place of its role.
PLACES = {
    **KINDS,
    "common": "a",
    "capture": "a",
    "agent": "a",
    "worker": "box1",
    "results_site": "m",
}
#: Roles that need serial devices, radios and systemd: tests/vm/test_modems.py tests them in virtual machines.
IN_MACHINES = {"ppp", "slip", "wifi"}
#: State that a role must restore. Times, process ids and empty folders may differ.
SNAPSHOT = """
ip -o -4 address; ip -o link | sed 's/qdisc [a-z]*//; s/ state [A-Z]*//; s/,LOWER_UP//; s/M-DOWN//'; ip route
ip neighbour show nud permanent; cat /etc/passwd /etc/group /etc/fstab; mount | grep backchannel
find /etc/backchannel /etc/nginx /opt /var/lib/backchannel* /run/backchannel* /var/log/backchannel* \\
    /etc/sysctl.d -type f -o -type l
sysctl -a 2>/dev/null | grep -E 'arp_ignore|arp_announce|ip_forward |rp_filter|send_redirects|ipv4.tcp_|disable_ipv6'
for name in $(ls /sys/class/net); do ethtool -k $name; done | grep -E '(offload|checksumming): '
grep -l BACKCHANNEL_SERVICE /proc/[0-9]*/environ
pgrep -a nginx
true
"""


class RoleResults(NamedTuple):
    """A role's results by step, and the host before and after."""

    steps: dict[str, list[dict[str, Any]]]
    before: str
    after: str


def scheduler() -> dict[str, Any]:
    """Starts a Dask scheduler for the worker. It ends with the lab."""
    root = shlex.quote(str(node_binary.ROOT))
    words = f"{shlex.quote(sys.executable)} -m experiments scheduler --host 127.0.0.1 --port 8786"
    wait = "for i in $(seq 3000); do grep -q 'scheduler at' /tmp/scheduler && exit 0; sleep 0.2; done"
    return {
        "name": "scheduler",
        "ansible.builtin.shell": f"PYTHONPATH={root} setsid {words} >/tmp/scheduler 2>&1 </dev/null &\n"
        f"{wait}\ncat /tmp/scheduler; exit 1",
    }


def certificate() -> dict[str, Any]:
    """Creates a certificate for the proxy."""
    return {
        "name": "certificate",
        "ansible.builtin.command": "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=results.lab "
        "-keyout /etc/ssl/lab.key -out /etc/ssl/lab.crt",
    }


def scenario(role: str, host: str) -> list[dict[str, Any]]:
    """The plays of one role, or of one kind of the role `interfaces`."""

    def play(step: str, **more: Any) -> dict[str, Any]:
        return {"name": f"{role} {step}", "hosts": host, "gather_facts": False, **more}

    def snapshot(step: str) -> dict[str, Any]:
        return play(step, tasks=[{"name": step, "ansible.builtin.raw": SNAPSHOT, "changed_when": False}])

    name, variables = ("interfaces", {"interfaces_kind": role}) if role in KINDS else (role, {})
    used = {"role": f"backchannel.testbed.{name}", **variables}
    away = {**used, f"{name}_state": "absent"}
    return [
        *([play("prepare", tasks=[PREPARED[role]()])] if role in PREPARED else []),
        snapshot("before"),
        play("dry", roles=[used], check_mode=True, diff=True),
        snapshot("after the dry run"),
        play("first", roles=[used], diff=True),
        # This applies the role again.
        {
            "import_playbook": str(ANSIBLE / "roles" / name / "tests/main.yml"),
            "vars": {"role_hosts": host, **variables},
        },
        play("dry away", roles=[away], check_mode=True),
        play("away", roles=[away]),
        play("away again", roles=[away]),
        snapshot("after"),
    ]


#: Preparation of some roles.
PREPARED = {"worker": scheduler, "results_site": certificate}


def results_of_all(lab_files: Path) -> list[dict[str, Any]]:
    """Results of every role in one lab, hosts in parallel."""
    hosts = sorted(set(PLACES.values()))
    script = f"cd {shlex.quote(str(ANSIBLE))}\nexport BACKCHANNEL_CAMPAIGN={lab_files.with_name('everything.yaml')}\n"
    for host in hosts:
        plays = [play for role, place in PLACES.items() if place == host for play in scenario(role, host)]
        playbook = write_yaml(lab_files.with_name(f"{host}.yml"), plays)
        script += (
            f"BACKCHANNEL_RECORD={playbook.with_suffix('.record')} ANSIBLE_CONFIG=ansible.cfg "
            f'"$(dirname "{sys.executable}")"/ansible-playbook -i {lab_files} {playbook} &\n'
        )
    done = in_lab(lab_files, f"{script}wait", timeout_s=1200)
    results = [result for host in hosts for result in recorded(lab_files.with_name(f"{host}.yml"))]
    assert results, done.stdout + done.stderr
    assert not [result for result in results if result["failed"]], [result for result in results if result["failed"]]
    return results


@pytest.fixture(scope="module")
def results_by_role(
    lab_files: Path, emulation: None, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, RoleResults]:
    """Results of every role."""
    results = once(tmp_path_factory, "roles", lambda: results_of_all(lab_files))
    all_steps: dict[str, dict[str, list[dict[str, Any]]]] = {}
    role = ""
    for result in results:
        verifies = result["play"].startswith("Test of the role ")
        # The play of a verification names no kind, and follows other plays of its role on the same host.
        role, step = (role, "verify") if verifies else result["play"].split(" ", 1)
        all_steps.setdefault(role, {}).setdefault(step, []).append(result)
    results_ = {}
    for role in PLACES:
        steps = all_steps[role]
        snapshots = {step: steps[step][0]["stdout"] for step in ("before", "after the dry run", "after")}
        assert snapshots["before"] == snapshots["after the dry run"], f"the dry run of {role} changed the host"
        results_[role] = RoleResults(steps, snapshots["before"], snapshots["after"])
    return results_


def changes(results: list[dict[str, Any]]) -> list[str]:
    return [result["task"] for result in results if result["changed"]]


#: Roles that change a host in namespaces. `common` finds the machine's packages there, and no chrony.
CHANGING = sorted(set(PLACES) - {"common"})


def test_every_role_is_tested() -> None:
    tested = {*PLACES, *IN_MACHINES} - set(KINDS) | {"interfaces"}
    assert tested == {path.name for path in (ANSIBLE / "roles").iterdir()}
    assert set(KINDS) == set(inventory.role_options()["interfaces"]["interfaces_kind"]["choices"])


@pytest.mark.parametrize("role", CHANGING)
def test_check_mode_predicts_the_first_run(results_by_role: dict[str, RoleResults], role: str) -> None:
    steps = results_by_role[role].steps
    assert changes(steps["dry"]), "nothing was to be changed on a host that has nothing"
    assert changes(steps["dry"]) == changes(steps["first"])
    assert any(result["diff"] for result in steps["dry"])


@pytest.mark.parametrize("role", PLACES)
def test_a_second_run_changes_nothing(results_by_role: dict[str, RoleResults], role: str) -> None:
    assert changes(results_by_role[role].steps["verify"]) == []


@pytest.mark.parametrize("role", PLACES)
def test_the_verification_of_the_role_passes(results_by_role: dict[str, RoleResults], role: str) -> None:
    assert any(
        result["task"].endswith("Verify the answers") and not result["failed"]
        for result in results_by_role[role].steps["verify"]
    )


def test_a_worker_reports_its_sources(results_by_role: dict[str, RoleResults]) -> None:
    (answer,) = [
        result for result in results_by_role["worker"].steps["verify"] if result["task"].endswith("Ask the kernel")
    ]
    assert sources.digest() in answer["stdout"]


def test_the_site_runs_behind_its_proxy(results_by_role: dict[str, RoleResults]) -> None:
    if not NGINX:
        pytest.fail("there is no nginx: ./backchannel test installs it")
    answers = [
        result
        for result in results_by_role["results_site"].steps["verify"]
        if result["task"].endswith("Verify the answers of the proxy")
    ]
    assert answers
    assert not any(result["failed"] for result in answers)


@pytest.mark.parametrize("role", CHANGING)
def test_removal_restores_the_host(results_by_role: dict[str, RoleResults], role: str) -> None:
    steps = results_by_role[role].steps
    assert changes(steps["dry away"])
    assert changes(steps["away"])
    assert changes(steps["away again"]) == []
    assert results_by_role[role].after == results_by_role[role].before


def test_ansible_lint_reports_nothing() -> None:
    """The strictest profile, production, is configured in ansible/.ansible-lint."""
    program = Path(sys.executable).with_name("ansible-lint")
    done = subprocess.run(
        [program, "--offline", "--nocolor"], capture_output=True, text=True, check=False, cwd=ANSIBLE,
        env={**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "profile: production" in (ANSIBLE / ".ansible-lint").read_text()
