"""The environment of a program on a session's host."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from experiments.sessions import program
from testbed import node_binary

#: Variables that a process of ours has and its caller had not.
ADDED = """
import os, runpy, sys
before = set(os.environ)
try:
    runpy.run_module("experiments", run_name="__main__")
except SystemExit:
    pass
print(*sorted(set(os.environ) - before), file=sys.stderr)
"""


def test_a_program_gets_no_variable_that_the_launcher_set(monkeypatch: pytest.MonkeyPatch) -> None:
    caller = {name: os.environ[name] for name in ("PATH", "HOME")} | {"PYTHONPATH": str(node_binary.ROOT)}
    words = [sys.executable, "-c", ADDED, "--version"]
    started = subprocess.run(words, env=caller, capture_output=True, text=True, check=True)
    added = started.stderr.split()
    assert added
    for name in added:
        monkeypatch.setenv(name, {"PYDANTIC_DISABLE_PLUGINS": "__all__"}.get(name, "1"))
    assert not {*added} & {*program.environment("label", "host")}
    # What the caller set is the caller's.
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "4")
    assert program.environment("label", "host")["OPENBLAS_NUM_THREADS"] == "4"
