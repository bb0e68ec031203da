"""A run without the privileges that it needs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from testbed import node_binary
from tests.sim.commands.test_launcher import LAUNCHER

EMULATED = ("--backend", "emulated")
QUICKSTART = str(node_binary.ROOT / "experiments/quickstart.yaml")


@pytest.mark.emulated
@pytest.mark.shares_cpu
@pytest.mark.parametrize(
    ("restriction", "message"),
    [
        (["unshare", "--user"], "it needs root"),
        (["setpriv", "--bounding-set=-all", "--inh-caps=-all"], "root lacks CAP_SYS_ADMIN for namespaces"),
    ],
)
def test_without_privileges_one_message_is_given_and_nothing_is_created(
    tmp_path: Path, restriction: list[str], message: str
) -> None:
    results = tmp_path / "results"
    done = subprocess.run(
        [*restriction, str(LAUNCHER), "run", QUICKSTART, "--results", str(results), *EMULATED],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not results.exists()
