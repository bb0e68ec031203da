"""The launcher, and what it says where something is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from testbed import node_binary

LAUNCHER = node_binary.ROOT / "backchannel"


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A checkout that nothing was set up in, in a folder with a space, and a PATH with the plainest tools only."""
    root = tmp_path / "a checkout"
    root.mkdir()
    shutil.copy(LAUNCHER, root)
    shutil.copy(node_binary.ROOT / "requirements.txt", root)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in (
        "sh",
        "env",
        "dirname",
        "readlink",
        "id",
        "mkdir",
        "cmp",
        "find",
        "head",
        "rm",
        "cp",
        "touch",
        "sed",
        "tail",
    ):
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    return root


def call(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(root.parent / "bin"), "HOME": str(root)}
    shell = str(root.parent / "bin" / "sh")
    return subprocess.run(
        [shell, str(root / "backchannel"), *words],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd="/",
    )


def test_an_unsupported_system_is_told_in_one_sentence(bare: Path) -> None:
    done = call(bare, "run", "x.yaml")
    assert done.returncode == 3
    assert done.stderr.startswith("backchannel: this system has no apt-get")
    assert len(done.stderr.splitlines()) == 1
    assert not (bare / ".venv").exists()


def test_no_root_and_no_sudo_is_told_with_what_is_missing(bare: Path) -> None:
    tools = bare.parent / "bin"
    for name, text in (("apt-get", "exit 1"), ("apt-cache", "exit 1"), ("id", "echo 1000")):
        (tools / name).unlink(missing_ok=True)
        (tools / name).write_text(f"#!{tools}/sh\n{text}\n")
        (tools / name).chmod(0o755)
    done = call(bare, "run", "x.yaml")
    assert done.returncode == 3
    assert "needs root or sudo" in done.stderr
    assert "mininet" in done.stderr


def test_no_network_is_told_in_one_sentence(bare: Path) -> None:
    tools = bare.parent / "bin"
    for name in ("apt-get", "apt-cache"):
        (tools / name).write_text(f"#!{tools}/sh\nexit 1\n")
        (tools / name).chmod(0o755)
    if os.geteuid() != 0:
        (tools / "sudo").write_text(f'#!{tools}/sh\nexec "$@"\n')
        (tools / "sudo").chmod(0o755)
    done = call(bare, "run", "x.yaml")
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == "backchannel: cannot refresh the package lists: is there a network?"


def test_it_works_from_any_directory_and_through_a_link(tmp_path: Path) -> None:
    link = tmp_path / "bc"
    link.symlink_to(LAUNCHER)
    done = subprocess.run([str(link), "list", "policies"], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "ack-filtering" in done.stdout


def test_completion_completes() -> None:
    environment = {
        **os.environ,
        "COMP_WORDS": "backchannel cal",
        "COMP_CWORD": "1",
        "_BACKCHANNEL_COMPLETE": "complete_bash",
    }
    done = subprocess.run([str(LAUNCHER)], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == ["calibrate"]


@pytest.mark.emulated
@pytest.mark.parametrize(
    ("without", "said"),
    [
        (["unshare", "--user"], "it needs root"),
        (["setpriv", "--bounding-set=-all", "--inh-caps=-all"], "the kernel refused namespaces"),
    ],
)
def test_without_rights_one_message_says_what_to_do_and_nothing_is_made(
    tmp_path: Path, without: list[str], said: str
) -> None:
    results = tmp_path / "results"
    done = subprocess.run(
        [*without, str(LAUNCHER), "run", "experiments/quickstart.yaml", "--results", str(results)],
        capture_output=True, text=True, check=False, cwd=node_binary.ROOT,
    )  # fmt: skip
    assert done.returncode == 3
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not results.exists()


def test_the_version_is_a_release_and_a_commit() -> None:
    words = [sys.executable, "-m", "experiments", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=node_binary.ROOT)
    assert re.fullmatch(r"backchannel \d+\.\d+\.\d+(, commit [0-9a-f]{10,})?\n", done.stdout)


def test_every_command_is_told_in_a_line_of_its_own() -> None:
    words = [sys.executable, "-m", "experiments", "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=node_binary.ROOT)
    lines = done.stdout.split("Commands:\n")[1].split("\n\n")[0].splitlines()
    assert len(lines) >= 21
    assert not [line for line in lines if line.endswith("...")]
