"""What the site's tests share: a store full of simulated runs, a client, a served site, and a browser."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from playwright.sync_api import Browser, Page, expect, sync_playwright
from waitress import wasyncore

from analysis.store.documents import SessionChange
from experiments.sessions import control
from experiments.sessions.changes import parse_changes
from experiments.sessions.control import ControlServer
from experiments.sessions.state import EnteredNode, SessionControl, SessionState
from testbed import resource_limits
from testbed.local_folders import private_folder
from tests.support.campaign_texts import TWO_WAYS, asymmetric_path
from tests.support.simulated import Simulated, ran
from web import check
from web.app import create_app
from web.serve import server as make_server

#: Bound of a wait that ends by itself. The defaults, of 5 s and 30 s, were too short on a busy machine.
PATIENCE_MS = 120_000
expect.set_options(timeout=PATIENCE_MS)

#: Two axes, one of them of quantities; the slow line makes losses and timeouts.
SWEEP = f"""
name: sweep
title: A sweep of rates
description: What the return line must carry.
backend: sim
stack: newreno
{asymmetric_path()}{TWO_WAYS}duration: 8 s
sweep:
  network.reverse.queue.policy: [droptail, acks-first]
  network.reverse.rate: [9.6 kbit/s, 28.8 kbit/s, 128 kbit/s]
repetitions: 2
seed: 7
"""


def captured(results: Path, path: Path) -> Path:
    """A client's capture of one of these runs, unpacked to a path, as somebody might have it."""
    packed = next((results / "runs").rglob("client-eth0.pcap.gz"))
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return path


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    return ran(tmp_path_factory.mktemp("site"), "sweep.yaml", SWEEP)


#: A short queue that a download fills again and again: drops, and segments that are sent again.
DROPPING = """
name: dropping
backend: sim
network:
  topology: asymmetric-path
  forward: {rate: 2 Mbit/s, delay: 40 ms, queue: {policy: droptail, limit: 12 packets}}
  reverse: {rate: 1 Mbit/s, delay: 40 ms, queue: {policy: droptail, limit: 50 packets}}
stack: newreno
workload:
  - {name: forward, from: server, to: client}
  - {name: beside, from: server, to: client, start: 1 s}
duration: 12 s
seed: 3
"""
#: The same with counters in place of captures.
COUNTED = DROPPING.replace("name: dropping", "name: counted") + (
    "capture: {at: [none], telemetry: false, counters: {every: 0.5 s, at: [bottleneck]}}\n"
)


@pytest.fixture(scope="session")
def dropping(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    """A run whose line drops packets."""
    return ran(tmp_path_factory.mktemp("dropping"), "dropping.yaml", DROPPING)


@pytest.fixture(scope="session")
def client(simulated: Simulated) -> FlaskClient:
    return create_app(simulated.results).test_client()


@pytest.fixture
def checked_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The site checks texts in this process, for tests of what it says of them.

    The process of a check, whose imports take a second of CPU, is in test_safety, in the first tests of test_requests
    and of test_own_code, and in a browser.
    """

    def run(words: list[str], *, input: str, **_: Any) -> subprocess.CompletedProcess[str]:  # noqa: A002 (of run)
        said = io.StringIO()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", io.StringIO(input))
            patch.setattr(sys, "stdout", said)
            # They would hold for all tests after this one.
            patch.setattr(resource_limits, "lower", lambda *_: None)
            check.main()
        return subprocess.CompletedProcess(words, 0, said.getvalue(), "")

    own = SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(check, "subprocess", own)


DIRECTION = {"submitted_packets": 9, "delivered_packets": 8, "transmitted_bytes": 700, "queue_packets": 3,
             "queue_bytes": 300, "events": {"dropped_full": 2, "lost": 1}}  # fmt: skip


class FakeSession:
    """A session's end of the socket: answers as a session does, and keeps what it was asked."""

    def __init__(self, name: str) -> None:
        self.name = name
        #: Names of requests, and the changes that they asked for.
        self.asked: list[tuple[str, Sequence[str]]] = []
        self.changes: list[dict[str, Any]] = []
        self.passed_s = 5.0

    def change(self, link: str | None, words: Sequence[str]) -> tuple[SessionChange, ...]:
        self.asked.append(("change", words))
        return tuple(
            SessionChange.read({"at_s": 2.0, "link": link, "direction": way, "fields": fields})
            for way, fields in parse_changes(words).items()
        )

    def node(self, name: str | None) -> EnteredNode:
        raise NotImplementedError

    def status(self) -> SessionState:
        self.asked.append(("status", ()))
        # At each look it has gone on by a second, and by 1000 bytes in each direction.
        self.passed_s += 1.0
        direction = DIRECTION | {"transmitted_bytes": int(1000 * self.passed_s)}
        errors = [{"name": "uniform", "options": {"probability": 0.02}}]
        declared = {"rate_bps": 28_800, "delay_s": 0.05, "policy": "droptail", "errors": errors}
        return SessionState.read({
            "name": self.name, "label": "dialup-28.8", "host": "right", "started": 0.0,
            "changes": self.changes, "declared": {"line": {"forward": declared, "reverse": declared}},
            "passed_s": self.passed_s, "recorded_bytes": 5,
            "links": {"line": {"forward": direction, "reverse": direction}},
        })  # fmt: skip


@pytest.fixture
def session(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSession]:
    """A running session named after this process. This process sees no session of others on this machine."""
    sockets = private_folder(tmp_path_factory.mktemp("sessions") / "own")
    monkeypatch.setattr(control, "folder", lambda: sockets)
    recorded = FakeSession(f"test{os.getpid()}")
    server = ControlServer(recorded.name, SessionControl, recorded)
    yield recorded
    server.close()


@contextmanager
def served(app: Flask) -> Iterator[str]:
    """The site as `serve` serves it, on a free port; gives its address. On a busy machine pages are late, and waited
    for.
    """
    app.wsgi_app.within_s = 120.0  # type: ignore[attr-defined]
    sockets: dict[int, Any] = {}
    server = make_server(app, map=sockets, host="127.0.0.1", port=0)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.effective_port}"
    finally:
        # Streams end first, then the threads that answer. The server's own thread closes its sockets, because it
        # selects on them.
        app.extensions["watcher"].close()
        server.task_dispatcher.shutdown()
        # A thread that another one wakes in between has closed the trigger before it is pulled.
        with suppress(OSError):
            server.trigger.pull_trigger(lambda: wasyncore.close_all(sockets))
        thread.join()


@pytest.fixture(scope="session")
def address(simulated: Simulated) -> Iterator[str]:
    with served(create_app(simulated.results)) as result:
        yield result


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium-headless-shell", args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def serve() -> Iterator[Callable[[Path], str]]:
    """Serves a results folder until the test is over, and gives its address."""
    with ExitStack() as sites:
        yield lambda results: sites.enter_context(served(create_app(results)))


#: Widths of a desktop and of a phone, and tests that are done on both.
DESKTOP_PX, PHONE_PX = 1280, 390
on_both = pytest.mark.parametrize("page", [DESKTOP_PX, PHONE_PX], indirect=True)
#: The same, of which the default tier has the width at which more can break.
desktop_first = pytest.mark.parametrize(
    "page", [DESKTOP_PX, pytest.param(PHONE_PX, marks=pytest.mark.slow("the same on a phone"))], indirect=True
)
phone_first = pytest.mark.parametrize(
    "page", [pytest.param(DESKTOP_PX, marks=pytest.mark.slow("the same on a desktop")), PHONE_PX], indirect=True
)


@pytest.fixture
def new_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens pages with options of the browser's context; they are closed after the test."""
    with ExitStack() as contexts:

        def opened(**options: Any) -> Page:
            context = contexts.enter_context(browser.new_context(**options))
            context.set_default_timeout(PATIENCE_MS)
            return context.new_page()

        yield opened


@pytest.fixture
def page(new_page: Callable[..., Page], serve: Callable[[Path], str], request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page on which any message of the console, and any error, fails the test; its parameter is the width in px.

    It asks for `serve` so that it is closed before the site: live, it would call a site that is gone, and say so.
    """
    said: list[str] = []
    page = new_page(viewport={"width": getattr(request, "param", DESKTOP_PX), "height": 900})
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    yield page
    page.close()
    assert said == []
