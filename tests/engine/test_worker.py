"""A scheduler and its worker as processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from testbed import node_binary


@contextmanager
def serving(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A serving command, ended with its test."""
    process = subprocess.Popen(
        [sys.executable, "-m", "experiments", *words], text=True, cwd=node_binary.ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


class Serving(NamedTuple):
    scheduler: subprocess.Popen[str]
    address: str
    worker: subprocess.Popen[str]


@pytest.fixture
def pair() -> Iterator[Serving]:
    """A scheduler, its address, and a worker that serves it."""
    with serving("scheduler", "--port", "0") as scheduler:
        assert scheduler.stdout is not None
        address = scheduler.stdout.readline().split()[2].rstrip(";")
        with serving("worker", address, "--host", "127.0.0.1") as worker:
            assert worker.stdout is not None
            assert worker.stdout.readline().endswith(f"serves {address}\n")
            yield Serving(scheduler, address, worker)


def test_a_worker_ends_with_its_scheduler(pair: Serving) -> None:
    """A service manager then restarts it. Without a scheduler it would serve nobody."""
    scheduler, address, worker = pair
    scheduler.kill()
    _, errors = worker.communicate(timeout=60)
    assert worker.returncode == 1, errors
    assert errors.splitlines()[-1] == (
        f"backchannel: the worker ended because the Dask scheduler {address} is gone; restart it with the scheduler"
    )


def test_an_interrupted_worker_exits_with_status_0(pair: Serving) -> None:
    worker = pair.worker
    worker.terminate()
    _, errors = worker.communicate(timeout=60)
    assert (worker.returncode, "is gone" in errors) == (0, False), errors
