"""Programs of a project on its base and on a change: identical programs raise no alarm, slower ones do."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import analysis
from analysis import comparison
from analysis.comparison import Comparison
from analysis.errors import AnalysisError
from analysis.question import Asked
from analysis.results import Results
from experiments.language.quantities import LONGEST_NAME
from experiments.line import Line, campaign_name
from testbed.node_binary import ROOT
from testbed.virtual_kernel.kernels import Kernel
from tests.support.command_line import backchannel

SERVER = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as listening:
    while True:
        connection, _ = listening.accept()
        with connection:
            connection.sendall(b"x" * int(sys.argv[3]))
"""
CLIENT = """
import json, socket, sys, time
begun, size = time.monotonic(), 0
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:
    while part := connection.recv(65536):
        size += len(part)
print(json.dumps({"bytes": size, "time": time.monotonic() - begun}))
"""
TIME = {"time": {"json": "time", "unit": "s"}}
RERUNS = 200


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project under test."""
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "client.py").write_text(CLIENT)
    monkeypatch.setenv("BACKCHANNEL_VIRTUAL_KERNEL_READS", str(tmp_path))
    return tmp_path


def words(project: Path, size_bytes: int) -> tuple[list[str], list[str]]:
    server = ["python3", str(project / "server.py"), "{server}", "{port}", str(size_bytes)]
    return server, ["python3", str(project / "client.py"), "{server}", "{port}"]


def measured(project: Path, name: str, size_bytes: int) -> Path:
    """Results of a download of that size over a cable modem."""
    folder = project / name
    Line("cable", {}, "download", folder).run(*words(project, size_bytes), seeds=2, metrics=TIME)
    return folder


def test_a_slower_exchange_fails_and_an_equal_one_does_not(kernel: Kernel, project: Path) -> None:
    base, slow = (measured(project, *asked) for asked in (("base", 30_000), ("slow", 90_000)))
    # The test of the script for CI measures an equal one twice.
    same = shutil.copytree(base, project / "same")
    equal = backchannel("regressions", base, same, "--junit", project / "equal.xml")
    assert (equal.returncode, "0 of" in equal.stdout) == (0, True), equal.stdout + equal.stderr
    cases = ET.parse(project / "equal.xml").findall(".//testcase")
    assert len(cases) > 20
    assert not ET.parse(project / "equal.xml").findall(".//failure")
    worse = backchannel(
        "regressions", base, slow, "--metric", "completion_time", "--junit", project / "worse.xml", status=1
    )
    assert "| download | completion_time of exchange |" in worse.stdout
    assert "**worse**" in worse.stdout
    (failure,) = ET.parse(project / "worse.xml").findall(".//failure")
    assert failure.get("message", "").startswith("worse: +")
    # A change after which the program does not work has no run that could be worse.
    broken = project / "broken"
    with contextlib.suppress(AnalysisError):
        Line("cable", {}, "download", broken).run(words(project, 30_000)[0], ["false"], seeds=1, metrics=TIME)
    lost = backchannel("regressions", base, broken, "--junit", project / "lost.xml")
    assert (lost.returncode, "**No valid run in head**: download." in lost.stdout) == (1, True), lost.stdout
    assert ET.parse(project / "lost.xml").find(".//failure") is not None
    # Nobody said which way of what a program prints is better.
    named = backchannel("regressions", base, slow, "--metric", "output.time")
    assert (named.returncode, "**different**" in named.stdout) == (1, True), named.stdout


def test_the_fixture_runs_programs_and_returns_metrics_and_captures(kernel: Kernel, project: Path) -> None:
    server, client = words(project, 20_000)
    (project / "test_mine.py").write_text(
        "def test_mine(line):\n"
        f"    server, client = {server}, {client}\n"
        f"    (run,) = line('cable').run(server, client, metrics={TIME})\n"
        "    assert 0.02 < run.metrics['output.time'] < 0.2\n"
        "    assert run.metrics['goodput'] > 0.9\n"
        "    assert '\"bytes\": 20000' in run.output and run.captures\n"
        "def test_wrong(line):\n"
        "    line('cable').run(['python3', '-c', 'print(1)'], ['true'])\n"
    )
    arguments = ["-q", "-p", "distribution.package.pytest", "--line-results", "kept", "test_mine.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=project, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "AnalysisError" in done.stdout
    with analysis.open(project / "kept") as store:
        assert store["test-mine-py-test-mine-cable"].run_ids


@pytest.mark.slow(reason="603 runs")
def test_200_identical_reruns_raise_no_alarm(kernel: Kernel, project: Path) -> None:
    """A variable that no program reads gives runs of other ids with the same seeds."""
    server, client = words(project, 20_000)
    numbers = [str(1000 + number) for number in range(RERUNS + 1)]
    command = {
        "client": client, "server": {"run": server}, "metrics": TIME,
        "environment": {"RERUN": numbers[0]},
    }  # fmt: skip
    campaign = {
        "name": "reruns", "backend": "virtual-kernel", "network": {"topology": "line", "profile": "cable"},
        "stack": "cubic", "duration": "10 s", "repetitions": 3, "seed": 1,
        "workload": [{"name": "exchange", "kind": "command", "from": "left", "to": "right", "command": command}],
        "sweep": {"workload.exchange.command.environment.RERUN": numbers},
    }  # fmt: skip
    (project / "reruns.yaml").write_text(json.dumps(campaign))
    backchannel("run", project / "reruns.yaml", "--results", project / "reruns", timeout_s=7200, status=0)
    asked = comparison.load("reruns", str(project / "reruns"))
    assert len(asked.points) == RERUNS + 1

    def against_the_first(number: int) -> Comparison:
        first, other = (Asked.of(Results(name, [{}], {0: asked.values[place]}), asked.question)
                        for name, place in (("base", 0), ("head", number)))  # fmt: skip
        return comparison.compare(first, other)

    compared = [against_the_first(number) for number in range(1, RERUNS + 1)]
    assert all(len(found.lines) > 20 for found in compared)
    assert [line for found in compared for line in found.lines if line.difference.value != 0.0] == []
    assert [line for found in compared for line in found.regressions] == []


def test_long_names_of_tests_give_names_of_campaigns_that_differ() -> None:
    longest = "a" * LONGEST_NAME
    assert campaign_name(longest) == longest
    names = {campaign_name(f"{longest}-{number}") for number in range(3)}
    assert len(names) == 3
    assert {len(name) for name in names} == {LONGEST_NAME}


def git(project: Path, *arguments: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *who, *arguments], cwd=project, check=True, capture_output=True)


def ci(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The script against the last commit of the project."""
    tools = project / ".git" / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "backchannel").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m experiments "$@"\n')
    (tools / "backchannel").chmod(0o755)
    environment = {
        **os.environ, "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTEST_ADDOPTS": "-p distribution.package.pytest",
    }  # fmt: skip
    words = [
        str(ROOT / "distribution" / "ci"), "HEAD", "--metric", "completion_time", "--junit", "out.xml", *arguments,
    ]  # fmt: skip
    return subprocess.run(words, cwd=project, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def committed(project: Path) -> Path:
    """The project with a test of a download, and one of a download that no change of `size` concerns."""
    (project / "test_mine.py").write_text(
        "from pathlib import Path\n"
        "HERE = Path(__file__).parent\n"
        "def measure(line, size):\n"
        "    server = ['python3', HERE / 'server.py', '{server}', '{port}', size]\n"
        "    line('cable').run(server, ['python3', HERE / 'client.py', '{server}', '{port}'], seeds=2)\n"
        "def test_mine(line):\n"
        "    measure(line, (HERE / 'size').read_text().strip())\n"
        "def test_other(line):\n"
        "    measure(line, '20000')\n"
    )
    git(project, "init", "-q")
    (project / "size").write_text("30000")
    git(project, "add", ".")
    git(project, "commit", "-qm", "base")
    return project


@pytest.mark.slow("a change that does nothing is one of both tests of test_the_script_for_ci_finds_what_a_change_did")
def test_the_script_for_ci_passes_a_change_that_does_nothing(kernel: Kernel, committed: Path) -> None:
    same = ci(committed, "--setup", "true")
    assert (same.returncode, same.stdout) == (0, "0 of 2 comparisons fail.\n"), same.stderr


def test_the_script_for_ci_finds_what_a_change_did(kernel: Kernel, committed: Path) -> None:
    project = committed
    slow = ci(project, "--setup", "echo 90000 >size.new; [ -d .git ] && mv size.new size; true")
    assert slow.returncode == 1, slow.stderr
    assert slow.stdout.count("**worse**") == 1
    assert "1 of 2 comparisons fail." in slow.stdout
    assert len(ET.parse(project / "out.xml").findall(".//failure")) == 1
    listed = subprocess.run(["git", "worktree", "list"], cwd=project, capture_output=True, text=True, check=True)
    assert len(listed.stdout.splitlines()) == 1
    assert ci(project, "--rule", "x").returncode == 2
    assert ci(project, "--run", "true", "--", "tests").returncode == 2


@pytest.mark.slow(reason="builds a project of Rust and one of Go")
@pytest.mark.parametrize(
    ("language", "server", "words"),
    [
        ("python", "server.py", []),
        ("rust", "src/bin/server.rs", ["--run", "cargo test --quiet"]),
        ("go", "server/main.go", ["--run", "go test -count=1 ./..."]),
    ],
)
def test_the_examples_for_ci_pass_and_a_longer_download_fails_them(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language: str, server: str, words: list[str]
) -> None:
    if language == "go" and shutil.which("go") is None:
        monkeypatch.setenv("PATH", f"/usr/local/go/bin:{os.environ['PATH']}")
    project = tmp_path / language
    shutil.copytree(ROOT / "docs/examples/ci" / language, project)
    (project / ".gitignore").write_text("/target\n/bin\nCargo.lock\n__pycache__\n")
    git(project, "init", "-q")
    git(project, "add", ".")
    git(project, "commit", "-qm", "base")
    same = ci(project, *words)
    assert (same.returncode, same.stdout) == (0, "0 of 1 comparisons fail.\n"), same.stderr
    source = (project / server).read_text()
    assert source.count("20_000") == 1
    (project / server).write_text(source.replace("20_000", "30_000"))
    slow = ci(project, *words)
    # The project's own test of the size, and the comparison.
    assert slow.returncode == 1, slow.stderr
    assert "30000" in slow.stderr
    assert "**worse**" in slow.stdout
