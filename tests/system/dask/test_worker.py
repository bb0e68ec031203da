"""A scheduler and its worker as processes."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from tests.support.waiting import HANGS_S, wait_until


@contextmanager
def serving(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A serving command, ended with its test."""
    process = subprocess.Popen(
        [sys.executable, "-m", "experiments", *words], text=True,
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


@contextmanager
def pair(of_scheduler: Sequence[str] = (), of_worker: Sequence[str] = ()) -> Iterator[Serving]:
    """A scheduler, its address, and a worker that serves it."""
    with serving("dask", "scheduler", "--port", "0", *of_scheduler) as scheduler:
        assert scheduler.stdout is not None
        address = scheduler.stdout.readline().split()[2].rstrip(";")
        with serving("dask", "worker", address, *of_worker) as worker:
            assert worker.stdout is not None
            assert worker.stdout.readline().endswith(f"serves {address}\n")
            yield Serving(scheduler, address, worker)


def listening(process: subprocess.Popen[str]) -> dict[int, str]:
    """Address by TCP port of what a process and those below it listen on."""
    below = subprocess.run(["pgrep", "--parent", str(process.pid)], capture_output=True, text=True, check=False).stdout
    shown = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout
    places = {}
    for line in shown.splitlines():
        if any(f"pid={pid}," in line for pid in [str(process.pid), *below.split()]):
            address, _, port = line.split()[3].rpartition(":")
            places[int(port)] = address
    return places


def answer(port: int, path: str) -> int:
    try:
        return int(urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=HANGS_S).status)
    except urllib.error.HTTPError as error:
        return error.code


def test_dask_has_no_pages_and_listens_where_it_is_told_and_an_interrupted_worker_exits_with_status_0() -> None:
    with pair(of_worker=["--host", "127.0.0.1"]) as (scheduler, address, worker):
        places = listening(scheduler)
        assert set(places.values()) == {"127.0.0.1"}
        own = int(address.rpartition(":")[2])
        (http,) = places.keys() - {own}
        assert answer(http, "health") == 404
        wait_until(lambda: len(listening(worker)) >= 3, "the worker below its nanny")
        assert set(listening(worker).values()) == {"127.0.0.1"}
        worker.terminate()
        _, errors = worker.communicate(timeout=HANGS_S)
        assert (worker.returncode, "is gone" in errors) == (0, False), errors


def test_dasks_pages_have_the_port_that_is_asked_for_and_a_worker_ends_with_its_scheduler() -> None:
    """A service manager then restarts it. Without a scheduler it would serve nobody."""
    with pair(of_scheduler=["--http-port", "0"]) as (scheduler, address, worker):
        assert scheduler.stdout is not None
        port = re.search(r"http://127.0.0.1:(\d+)/", scheduler.stdout.readline())
        assert port is not None
        assert answer(int(port[1]), "health") == 200
        # The interface towards its scheduler.
        assert set(listening(worker).values()) == {"127.0.0.1"}
        scheduler.kill()
        _, errors = worker.communicate(timeout=HANGS_S)
        assert worker.returncode == 1, errors
        assert errors.splitlines()[-1] == (
            f"backchannel: the worker ended because the Dask scheduler {address} is gone; restart it with the scheduler"
        )
