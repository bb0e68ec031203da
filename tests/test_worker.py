"""A scheduler and its worker as processes, as people and services start them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from testbed import node_binary


@contextmanager
def serving(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A command that serves; it does not outlive its test."""
    process = subprocess.Popen(
        [sys.executable, "-m", "experiments", *words], text=True, cwd=node_binary.ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_worker_ends_with_its_scheduler_and_says_so() -> None:
    """Whoever started it can then start it again; without a scheduler it would be there and serve nobody."""
    with serving("scheduler", "--port", "0") as scheduler:
        assert scheduler.stdout is not None
        address = scheduler.stdout.readline().split()[2].rstrip(";")
        with serving("worker", address, "--host", "127.0.0.1") as worker:
            assert worker.stdout is not None
            assert worker.stdout.readline().endswith(f"serves {address}\n")
            scheduler.kill()
            _, told = worker.communicate(timeout=60)
    assert worker.returncode == 1, told
    assert told.splitlines()[-1] == (
        f"backchannel: the Dask scheduler {address} is gone, and this worker with it: start the worker again when "
        "there is one"
    )


def test_a_worker_that_is_told_to_end_has_done_nothing_wrong() -> None:
    with serving("scheduler", "--port", "0") as scheduler:
        assert scheduler.stdout is not None
        address = scheduler.stdout.readline().split()[2].rstrip(";")
        with serving("worker", address, "--host", "127.0.0.1") as worker:
            assert worker.stdout is not None
            assert worker.stdout.readline().endswith(f"serves {address}\n")
            worker.terminate()
            _, told = worker.communicate(timeout=60)
    assert (worker.returncode, "is gone" in told) == (0, False), told
