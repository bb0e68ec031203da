"""Runs of ordinary users, and runs without the privileges that they need."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from testbed import capability, node_binary
from tests.sim.commands.test_launcher import LAUNCHER
from tests.system.test_container import CAMPAIGN as CONTAINED

EMULATED = ("--backend", "emulated")
#: An ordinary user who owns root's files, so that a checkout and an interpreter below /root can be read.
ORDINARY = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
#: The same where an ordinary user can make no user namespace.
FORBIDDEN = (
    "unshare", "--user", "--map-root-user", "sh", "-c",
    'echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all -- "$@"', "sh",
)  # fmt: skip
#: The same in a container that covers parts of /proc.
COVERED = (
    "unshare", "--mount", "sh", "-c",
    'mount --bind /dev/null /proc/interrupts && exec unshare --mount "$@"', "sh", *ORDINARY[1:],
)  # fmt: skip
CAMPAIGN = f"{CONTAINED}fidelity: {{rate: 20 %, delay: 200 ms, lateness: 500 ms, stall: 2 s, stalled: 50 %}}\n"
QUICKSTART = str(node_binary.ROOT / "experiments/quickstart.yaml")


@pytest.mark.emulated
@pytest.mark.shares_cpu
@pytest.mark.parametrize(
    ("restriction", "message"),
    [
        (["unshare", "--user"], "it needs root, or user namespaces of ordinary users"),
        ([*COVERED], "and the cell cannot mount its /proc: Operation not permitted"),
        (["setpriv", "--bounding-set=-all", "--inh-caps=-all"], "root lacks CAP_SYS_ADMIN for namespaces"),
    ],
)
def test_without_privileges_nothing_but_a_message_is_made(tmp_path: Path, restriction: list[str], message: str) -> None:
    results = tmp_path / "results"
    done = subprocess.run(
        [*restriction, str(LAUNCHER), "run", QUICKSTART, "--results", str(results), *EMULATED],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not results.exists()


def run_as_user(
    folder: Path, *restriction: str, campaign: str = CAMPAIGN, attempts: int = 10
) -> subprocess.CompletedProcess[str]:
    """The launcher's `run`, restricted; its results are in the folder `results`."""
    (folder / "ordinary.yaml").write_text(campaign)
    return subprocess.run(
        [*restriction, str(LAUNCHER), "run", "ordinary.yaml", *EMULATED, "--attempts", str(attempts)],
        capture_output=True, text=True, check=False, cwd=folder, timeout=600,
    )  # fmt: skip


@pytest.mark.emulated
@pytest.mark.parametrize(
    "restriction",
    [pytest.param(ORDINARY, id="user"),
     pytest.param(("unshare", "--user", "--map-root-user"), id="root inside",
                  marks=pytest.mark.slow("the same user, who is called root"))],
)  # fmt: skip
def test_an_ordinary_users_runs_name_what_they_lacked(tmp_path: Path, restriction: tuple[str, ...]) -> None:
    done = run_as_user(tmp_path, *restriction)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (f"backchannel: {capability.WITHOUT_ROOT}" in done.stderr) == (restriction is ORDINARY)
    assert "2 runs made" in done.stdout
    manifests = [json.loads(path.read_text()) for path in (tmp_path / "results").rglob("manifest.json")]
    assert len(manifests) == 2
    for manifest in manifests:
        assert manifest["report"]["driver"]["realtime"] is False
        assert manifest["report"]["lacked"] == capability.lacked(False, 0, "0 1000 1")
    assert list((tmp_path / "results").rglob("*.pcap.gz"))


@pytest.mark.emulated
@pytest.mark.shares_cpu
def test_a_socket_buffer_that_only_root_may_have_is_refused_and_not_made_smaller(tmp_path: Path) -> None:
    buffered = CAMPAIGN.replace("[reno, newreno]", "[{name: reno, receive_buffer: 100 MB}]")
    done = run_as_user(tmp_path, *ORDINARY, campaign=buffered, attempts=1)
    assert done.returncode == 1
    assert "cannot set the receive buffer to 100000000 bytes: without root, net.core.rmem_max allows" in done.stdout


@pytest.mark.emulated
@pytest.mark.shares_cpu
def test_the_setting_that_forbids_user_namespaces_is_named(tmp_path: Path) -> None:
    script = "import os, testbed.capability as c; os.geteuid = lambda: 1000; print(c.missing_for_emulation()[0])"
    done = subprocess.run(
        [*FORBIDDEN, sys.executable, "-c", script],
        capture_output=True, text=True, check=False, cwd=node_binary.ROOT,
    )  # fmt: skip
    assert (
        "user.max_user_namespaces is 0 here ('sudo sysctl user.max_user_namespaces=10000' allows them)" in done.stdout
    )


#: What `doctor` says of this backend alone, and all that it says: with two runs in virtual time.
OF_EMULATION = (
    sys.executable, "-c",
    "import json; from dataclasses import asdict; from experiments.commands import doctor\n"
    "print(json.dumps([asdict(doctor._emulated())]))",
)  # fmt: skip
WHOLE = (str(LAUNCHER), "doctor", "--json")


@pytest.mark.emulated
@pytest.mark.shares_cpu
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(OF_EMULATION, id="its part"),
        pytest.param(WHOLE, id="whole", marks=pytest.mark.slow("what is asserted is of the part that is tried alone")),
    ],
)
@pytest.mark.parametrize(
    ("restriction", "works", "text"),
    [
        (ORDINARY, True, "without the real-time class"),
        (("unshare", "--user"), False, "it needs root, or user namespaces"),
    ],
    ids=["allowed", "refused"],
)
def test_doctor_says_whether_an_ordinary_user_can_emulate(
    restriction: tuple[str, ...], works: bool, text: str, words: tuple[str, ...]
) -> None:
    done = subprocess.run([*restriction, *words], capture_output=True, text=True, check=False)
    (emulated,) = (finding for finding in json.loads(done.stdout) if finding["subject"] == "emulated")
    assert emulated["works"] is works
    assert text in " ".join([emulated["detail"], *emulated["missing"]])
