"""Every role on a host of a lab in namespaces: dry, for the first time, again, held, and away."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from experiments.engine import machine
from testbed import node_binary
from tests.ansible.conftest import NGINX, in_lab, recorded, write_yaml

pytestmark = pytest.mark.emulated

ANSIBLE = node_binary.ROOT / "ansible"
#: Where each role is tried.
PLACES = {
    "common": "a",
    "endpoint": "m",
    "router": "b",
    "base_station": "b",
    "emulated_modem": "box1",
    "emulated_radio": "box2",
    "queue_policy": "r",
    "capture": "a",
    "agent": "a",
    "worker": "box1",
    "results_site": "m",
}
#: What must be the same before and after a role was there; times, process numbers and empty folders do not count.
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


class Tried(NamedTuple):
    """A role's results by step, and the host before and after."""

    steps: dict[str, list[dict[str, Any]]]
    before: str
    after: str


def scheduler() -> dict[str, Any]:
    """What a worker serves; it ends with the lab."""
    root = shlex.quote(str(node_binary.ROOT))
    words = f"{shlex.quote(sys.executable)} -m experiments scheduler --host 127.0.0.1 --port 8786"
    wait = "for i in $(seq 100); do grep -q 'scheduler at' /tmp/scheduler && exit 0; sleep 0.2; done"
    return {
        "name": "scheduler",
        "ansible.builtin.shell": f"PYTHONPATH={root} setsid {words} >/tmp/scheduler 2>&1 </dev/null &\n"
        f"{wait}\ncat /tmp/scheduler; exit 1",
    }


def certificate() -> dict[str, Any]:
    """What a proxy shows; of this lab's own making."""
    return {
        "name": "certificate",
        "ansible.builtin.command": "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=results.lab "
        "-keyout /etc/ssl/lab.key -out /etc/ssl/lab.crt",
    }


def scenario(role: str, host: str) -> list[dict[str, Any]]:
    """The plays of one role."""

    def play(step: str, **more: Any) -> dict[str, Any]:
        return {"name": f"{role} {step}", "hosts": host, "gather_facts": False, **more}

    def snapshot(step: str) -> dict[str, Any]:
        return play(step, tasks=[{"name": step, "ansible.builtin.raw": SNAPSHOT, "changed_when": False}])

    used = {"role": f"backchannel.testbed.{role}"}
    away = {**used, f"{role}_state": "absent"}
    return [
        *([play("prepare", tasks=[PREPARED[role]()])] if role in PREPARED else []),
        snapshot("before"),
        play("dry", roles=[used], check_mode=True, diff=True),
        snapshot("after the dry run"),
        play("first", roles=[used], diff=True),
        # This applies the role again.
        {"import_playbook": str(ANSIBLE / "roles" / role / "tests/main.yml"), "vars": {"role_hosts": host}},
        play("dry away", roles=[away], check_mode=True),
        play("away", roles=[away]),
        play("away again", roles=[away]),
        snapshot("after"),
    ]


#: What must be there before some roles.
PREPARED = {"worker": scheduler, "results_site": certificate}


@pytest.fixture(scope="module")
def tried(lab_files: Path, emulation: None) -> dict[str, Tried]:
    """Every role, tried in one lab; hosts in parallel."""
    hosts = sorted(set(PLACES.values()))
    script = f"cd {shlex.quote(str(ANSIBLE))}\nexport BACKCHANNEL_CAMPAIGN={lab_files.with_name('everything.yaml')}\n"
    for host in hosts:
        plays = [play for role, place in PLACES.items() if place == host for play in scenario(role, host)]
        playbook = write_yaml(lab_files.with_name(f"{host}.yml"), plays)
        script += (
            f"BACKCHANNEL_RECORD={playbook.with_suffix('.record')} ANSIBLE_CONFIG=ansible.cfg "
            f'"$(dirname "{sys.executable}")"/ansible-playbook -i {lab_files} {playbook} &\n'
        )
    done = in_lab(lab_files, f"{script}wait", timeout_s=600)
    results = [one for host in hosts for one in recorded(lab_files.with_name(f"{host}.yml"))]
    assert results, done.stdout + done.stderr
    assert not [one for one in results if one["failed"]], [one for one in results if one["failed"]]
    found = {}
    for role in PLACES:
        steps: dict[str, list[dict[str, Any]]] = {}
        for one in results:
            if one["play"].startswith(f"{role} "):
                steps.setdefault(one["play"].removeprefix(f"{role} "), []).append(one)
            elif one["play"] == f"Test of the role {role}":
                steps.setdefault("held", []).append(one)
        said = {step: steps[step][0]["stdout"] for step in ("before", "after the dry run", "after")}
        assert said["before"] == said["after the dry run"], f"the dry run of {role} changed the host"
        found[role] = Tried(steps, said["before"], said["after"])
    return found


def changes(results: list[dict[str, Any]]) -> list[str]:
    return [one["task"] for one in results if one["changed"]]


#: Roles that change a host in namespaces. `common` finds the machine's packages there, and no chrony.
CHANGING = sorted(set(PLACES) - {"common"})


def test_every_role_is_tried() -> None:
    assert sorted(PLACES) == sorted(path.name for path in (ANSIBLE / "roles").iterdir())


@pytest.mark.parametrize("role", CHANGING)
def test_a_dry_run_tells_what_the_first_run_then_does(tried: dict[str, Tried], role: str) -> None:
    steps = tried[role].steps
    assert changes(steps["dry"]), "nothing was to be changed on a host that has nothing"
    assert changes(steps["dry"]) == changes(steps["first"])
    assert any(one["diff"] for one in steps["dry"])


@pytest.mark.parametrize("role", PLACES)
def test_a_second_run_changes_nothing(tried: dict[str, Tried], role: str) -> None:
    assert changes(tried[role].steps["held"]) == []


@pytest.mark.parametrize("role", PLACES)
def test_what_a_role_promises_holds(tried: dict[str, Tried], role: str) -> None:
    assert any(one["task"].endswith("Verify the answers") and not one["failed"] for one in tried[role].steps["held"])


def test_a_worker_says_of_which_sources_it_was_made(tried: dict[str, Tried]) -> None:
    (asked,) = [one for one in tried["worker"].steps["held"] if one["task"].endswith("Ask the kernel")]
    assert machine.sources() in asked["stdout"]


def test_the_site_stands_behind_its_proxy(tried: dict[str, Tried]) -> None:
    if not NGINX:
        pytest.fail("there is no nginx: ./backchannel test installs it")
    held = [one for one in tried["results_site"].steps["held"] if one["task"].endswith("Hold its answers")]
    assert held
    assert not any(one["failed"] for one in held)


@pytest.mark.parametrize("role", CHANGING)
def test_a_host_without_the_role_is_as_it_was(tried: dict[str, Tried], role: str) -> None:
    steps = tried[role].steps
    assert changes(steps["dry away"])
    assert changes(steps["away"])
    assert changes(steps["away again"]) == []
    assert tried[role].after == tried[role].before


def test_ansible_lint_has_nothing_to_say() -> None:
    """In its strictest profile, which ansible/.ansible-lint names."""
    program = Path(sys.executable).with_name("ansible-lint")
    done = subprocess.run(
        [program, "--offline", "--nocolor"], capture_output=True, text=True, check=False, cwd=ANSIBLE,
        env={**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "profile: production" in (ANSIBLE / ".ansible-lint").read_text()
