"""Every role on a host in namespaces: check mode, first run, second run with verification, removal."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Set
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from experiments import inventory
from testbed import node_binary, sources
from tests.support.ansible_lab import ANSIBLE, NGINX, in_lab, recorded, write_yaml
from tests.support.once import once

pytestmark = [pytest.mark.emulated, pytest.mark.shares_cpu]

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
#: Hosts of each playbook. The start of a playbook takes 2 s of CPU.
PLAYBOOKS = {"nodes": ("a", "b", "r", "box2"), "services": ("box1", "m")}
#: Kinds that do nothing of their own: a base station is a router with another interface, an endpoint does less than a
#: router, and a radio's links are bare as a modem's are.
OTHER_KINDS = {"endpoint", "base_station", "emulated_radio"}
#: Roles that call apt, which takes 3 s of CPU although no package is missing here.
INSTALLING = {"common", "worker", "results_site"}
#: A worker is the whole release and a service, as the site is. tests/system/dask tests its program.
#: `common` does nothing but call apt.
FIRST = set(PLACES) - OTHER_KINDS - {"worker", "common"}
#: The lab of `--all` has the others, and runs apt wherever a role does.
SECOND = OTHER_KINDS | INSTALLING
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


def scenario(role: str, host: str, apt: bool) -> list[dict[str, Any]]:
    """The plays of one role, or of one kind of the role `interfaces`."""
    # As the playbook's check has it.
    checked: dict[str, Any] = {}
    if role in INSTALLING and not apt:
        checked = {f"{role}_fitness": {"missing_packages": []}}

    def play(step: str, **more: Any) -> dict[str, Any]:
        return {"name": f"{role} {step}", "hosts": host, "gather_facts": False, "vars": checked, **more}

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
            "vars": {"role_hosts": host, **variables, **checked},
        },
        play("dry away", roles=[away], check_mode=True),
        play("away", roles=[away]),
        play("away again", roles=[away]),
        snapshot("after"),
    ]


#: Preparation of some roles.
PREPARED = {"worker": scheduler, "results_site": certificate}


def results_of(roles: Set[str], apt: bool, lab_files: Path, folder: Path) -> list[dict[str, Any]]:
    """Results of these roles in one lab. Its two playbooks run in parallel."""
    script = f"cd {shlex.quote(str(ANSIBLE))}\nexport BACKCHANNEL_CAMPAIGN={lab_files.with_name('everything.yaml')}\n"
    for name, hosts in PLAYBOOKS.items():
        of_hosts = [(role, host) for host in hosts for role in PLACES if role in roles and PLACES[role] == host]
        playbook = write_yaml(folder / f"{name}.yml", [play for pair in of_hosts for play in scenario(*pair, apt)])
        script += (
            f"BACKCHANNEL_RECORD={playbook.with_suffix('.record')} ANSIBLE_CONFIG=ansible.cfg "
            f'"$(dirname "{sys.executable}")"/ansible-playbook -i {lab_files} {playbook} &\n'
        )
    done = in_lab(lab_files, f"{script}wait", timeout_s=1200)
    results = [result for name in PLAYBOOKS for result in recorded(folder / f"{name}.yml")]
    assert results, done.stdout + done.stderr
    assert not [result for result in results if result["failed"]], [result for result in results if result["failed"]]
    return results


def results_by_role(results: list[dict[str, Any]]) -> dict[str, RoleResults]:
    """Results of each role, which must have changed nothing in its dry run."""
    all_steps: dict[str, dict[str, list[dict[str, Any]]]] = {}
    role = ""
    for result in results:
        verifies = result["play"].startswith("Test of the role ")
        # The play of a verification names no kind, and follows other plays of its role on the same host.
        role, step = (role, "verify") if verifies else result["play"].split(" ", 1)
        all_steps.setdefault(role, {}).setdefault(step, []).append(result)
    results_ = {}
    for role, steps in all_steps.items():
        snapshots = {step: steps[step][0]["stdout"] for step in ("before", "after the dry run", "after")}
        assert snapshots["before"] == snapshots["after the dry run"], f"the dry run of {role} changed the host"
        results_[role] = RoleResults(steps, snapshots["before"], snapshots["after"])
    return results_


@pytest.fixture(scope="module")
def first(lab_files: Path, emulation: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, RoleResults]:
    """Results of the default tier's roles."""
    folder = tmp_path_factory.mktemp("first")
    return results_by_role(once(tmp_path_factory, "roles", lambda: results_of(FIRST, False, lab_files, folder)))


@pytest.fixture(scope="module")
def second(lab_files: Path, emulation: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, RoleResults]:
    """Results of the other kinds, and of roles with all their calls of apt."""
    folder = tmp_path_factory.mktemp("second")
    return results_by_role(once(tmp_path_factory, "others", lambda: results_of(SECOND, True, lab_files, folder)))


@pytest.fixture
def tried(request: pytest.FixtureRequest, lab: str, role: str) -> RoleResults:
    """A role's results in a lab."""
    found: dict[str, RoleResults] = request.getfixturevalue(lab)
    return found[role]


def in_labs(roles: Set[str]) -> pytest.MarkDecorator:
    """Parameters of a test: these roles, each in the labs that have it."""
    slow = pytest.mark.slow("roles and kinds that are parts of others, and apt with nothing to do")
    labs = [pytest.param("first", role) for role in sorted(FIRST & roles)]
    labs += [pytest.param("second", role, marks=slow) for role in sorted(SECOND & roles)]
    return pytest.mark.parametrize(("lab", "role"), labs)


def changes(results: list[dict[str, Any]]) -> list[str]:
    return [result["task"] for result in results if result["changed"]]


#: Roles that change a host in namespaces. `common` finds the machine's packages there, and no chrony.
CHANGING = set(PLACES) - {"common"}


def test_every_role_is_tested() -> None:
    tested = {*PLACES, *IN_MACHINES} - set(KINDS) | {"interfaces"}
    assert tested == {path.name for path in (ANSIBLE / "roles").iterdir()}
    assert set(PLACES) == FIRST | SECOND
    assert set(KINDS) == set(inventory.role_options()["interfaces"]["interfaces_kind"]["choices"])


@in_labs(CHANGING)
def test_check_mode_predicts_the_first_run(tried: RoleResults) -> None:
    steps = tried.steps
    assert changes(steps["dry"]), "nothing was to be changed on a host that has nothing"
    assert changes(steps["dry"]) == changes(steps["first"])
    assert any(result["diff"] for result in steps["dry"])


@in_labs(set(PLACES))
def test_a_second_run_changes_nothing(tried: RoleResults) -> None:
    assert changes(tried.steps["verify"]) == []


@in_labs(set(PLACES))
def test_the_verification_of_the_role_passes(tried: RoleResults) -> None:
    assert any(
        result["task"].endswith("Verify the answers") and not result["failed"] for result in tried.steps["verify"]
    )


@pytest.mark.slow("a worker's role; tests/system/dask tests that other sources are rejected")
def test_a_worker_reports_its_sources(second: dict[str, RoleResults]) -> None:
    (answer,) = [result for result in second["worker"].steps["verify"] if result["task"].endswith("Ask the kernel")]
    assert sources.digest() in answer["stdout"]


def test_the_site_runs_behind_its_proxy(first: dict[str, RoleResults]) -> None:
    if not NGINX:
        pytest.fail("there is no nginx: ./backchannel test installs it")
    answers = [
        result
        for result in first["results_site"].steps["verify"]
        if result["task"].endswith("Verify the answers of the proxy")
    ]
    assert answers
    assert not any(result["failed"] for result in answers)


@in_labs(CHANGING)
def test_removal_restores_the_host(tried: RoleResults) -> None:
    steps = tried.steps
    assert changes(steps["dry away"])
    assert changes(steps["away"])
    assert changes(steps["away again"]) == []
    assert tried.after == tried.before


def test_ansible_lint_reports_nothing() -> None:
    """The strictest profile, production, is configured in ansible/.ansible-lint."""
    program = Path(sys.executable).with_name("ansible-lint")
    done = subprocess.run(
        [program, "--offline", "--nocolor"], capture_output=True, text=True, check=False, cwd=ANSIBLE,
        env={**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "profile: production" in (ANSIBLE / ".ansible-lint").read_text()
