"""Campaigns whose PostgreSQL server is restarted, or is used by two commands at once."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from analysis.store.artefacts import VERSION
from tests.support.faults.commands import PATIENCE_S
from tests.support.faults.kills import simulated
from tests.support.postgresql import Server, on_loopback
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow("ends a server during a campaign"), pytest.mark.emulated]

RUNS = 6


@dataclass(frozen=True)
class Lab:
    """A server and the files of its runs."""

    folder: Path
    server: Server

    def start(self) -> subprocess.Popen[str]:
        """A runner of the campaign."""
        words = ["run", str(self.folder / "faults.yaml"), "--results", self.server.url, "--jobs", "1"]
        return subprocess.Popen(
            [sys.executable, "-m", "experiments", *words, "--artefacts", f"file://{self.folder}/artefacts"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "BACKCHANNEL_LOCAL": str(self.folder / "local")},
        )  # fmt: skip

    def landed(self) -> int:
        """Valid runs; 0 before the store exists."""
        try:
            with psycopg.connect(self.server.url) as connection:
                row = connection.execute("SELECT count(*) FROM run WHERE state = 'valid'").fetchone()
        except psycopg.Error:
            return 0
        return int(row[0]) if row else 0

    def check_complete(self) -> None:
        """Every run is there once, with metrics and with files as their rows say."""
        with psycopg.connect(self.server.url) as connection:
            runs = {row[0] for row in connection.execute("SELECT id FROM run WHERE state = 'valid'")}
            measured = {row[0] for row in connection.execute("SELECT DISTINCT run_id FROM metric")}
            files = connection.execute(
                "SELECT run_id, landed, path, sha256 FROM file JOIN run ON run.id = run_id"
            ).fetchall()
        assert len(runs) == RUNS
        assert runs == measured
        top = self.folder / "artefacts/runs"
        paths = {top / run[:2] / run / f"{VERSION}{landed}" / path: digest for run, landed, path, digest in files}
        assert {path for path in top.rglob("*") if path.is_file()} == set(paths)
        for path, digest in paths.items():
            assert hashlib.sha256(path.read_bytes()).hexdigest() == digest


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    (tmp_path / "faults.yaml").write_text(simulated())
    with on_loopback(tmp_path / "postgresql.log") as server:
        yield Lab(tmp_path, server)


def ended(command: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = command.communicate(timeout=PATIENCE_S)
    return command.returncode, output


def test_a_server_that_restarts_in_mid_campaign_loses_nothing(lab: Lab) -> None:
    command = lab.start()
    before = wait_until(lab.landed, "a first run", PATIENCE_S)
    lab.server.stop()
    lab.server.start()
    status, output = ended(command)
    assert before < RUNS
    assert "Traceback" not in output
    assert status == 0 or (status == 1 and "the results store failed" in output and "can be repeated" in output), output
    assert lab.landed() >= before
    status, output = ended(lab.start())
    assert status == 0, output
    lab.check_complete()


def test_two_runners_of_one_campaign_land_each_run_once(lab: Lab) -> None:
    commands = [lab.start(), lab.start()]
    for command in commands:
        status, output = ended(command)
        assert status == 0, output
    lab.check_complete()
