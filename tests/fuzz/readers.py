"""Targets in Python that `./backchannel bench fuzz` feeds with mutated bytes, as tests/fuzz/src does for Rust.

    python -m tests.fuzz.readers TARGET --program FUZZ --corpus FOLDER --seed S --seconds N --at FILE

Inputs come from the program. A target fails by an exception.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import flask
from waitress import wasyncore

from analysis.captures import RunData
from analysis.errors import AnalysisError
from analysis.exports import crate_reader, unpack
from analysis.figures.registry import Asked, draw
from analysis.handle import OpenResults
from analysis.metrics import measure
from analysis.store import StoreError
from experiments import bundles, found_logs
from experiments.language.problems import ImportProblem
from testbed.errors import TestbedError
from tests.support import bundles as changed
from tests.support.waiting import HANGS_S
from web.app import create_app
from web.serve import server as make_server

Run = Callable[[bytes], None]
#: Of the site that is fed with requests; the corpus has it.
TOKEN = "the token of the target"  # noqa: S105 (of a test)
HEAD = re.compile(rb"HTTP/1\.[01] (\d{3}) ")


class Broken(AssertionError):
    """A target did what it must not do."""


@contextmanager
def bundle(corpus: Path) -> Iterator[Run]:
    """Imports of bundles. Inputs that begin as a zip are bundles; others choose changes of a right one's document."""
    right = corpus / "bundle" / "tiny.crate.zip"
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        results = opened.enter_context(OpenResults.open(folder / "results", create=True))
        store, path = results.store, folder / "input.zip"

        def unpacked(path: Path, folder: Path) -> dict[str, tuple[int, str]]:
            # In this process, which is faster, and whose exceptions are seen.
            return unpack.unpack(path, folder, 1 << 26)

        opened.enter_context(mock.patch.object(crate_reader, "_unpacked", unpacked))

        def run(data: bytes) -> None:
            if data.startswith(b"PK"):
                path.write_bytes(data)
            else:
                choices = random.Random(zlib.crc32(data))  # noqa: S311 (repeatable)
                with contextlib.suppress(RecursionError):
                    changed.rewritten(right, path, changed.edited(lambda document: changed.mutate(document, choices)))
            try:
                told = bundles.read(store, path)
            except AnalysisError as error:
                if "\n" in str(error):
                    raise Broken(f"a message of several lines: {error}") from None
            else:
                _use(results, told.id)
                store.set_aside(told.id, "deleted")
                store.purge(told.id)
            left = [*store.run_ids(""), *(row.id for row in store.campaigns()), *(store.folder / "incoming").iterdir()]
            if left:
                raise Broken(f"left behind: {left}")

        yield run


def _use(results: OpenResults, campaign_id: str) -> None:
    """Reads an imported campaign as pages and commands do; only errors that are sentences are expected."""
    with contextlib.suppress(AnalysisError, StoreError, TestbedError):
        campaign = results[campaign_id]
        for frame in (campaign.runs, campaign.values, campaign.means):
            frame()
        campaign.question  # noqa: B018 (is found when it is read)
        for run_id in campaign.run_ids:
            run = results.run(run_id)
            run.row.documents.manifest  # noqa: B018 (is typed when it is read)
            run.row.documents.scenario  # noqa: B018


@contextmanager
def headers(_: Path) -> Iterator[Run]:
    """Requests to the site: an answer that is not a failure of the server, and then the end of the connection."""
    with tempfile.TemporaryDirectory() as folder:
        app, address, failed = create_app(Path(folder) / "results", token=TOKEN), f"{folder}/socket", list[Exception]()

        def note(_: Any, exception: Exception) -> None:
            failed.append(exception)

        flask.got_request_exception.connect(note, app)
        sockets: dict[int, Any] = {}
        server = make_server(app, map=sockets, unix_socket=address)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()

        def run(data: bytes) -> None:
            with contextlib.closing(socket.socket(socket.AF_UNIX)) as connection:
                connection.settimeout(HANGS_S)
                connection.connect(address)
                # The server may refuse before all is there.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    connection.sendall(data)
                    connection.shutdown(socket.SHUT_WR)
                said = b""
                with contextlib.suppress(ConnectionResetError):
                    while part := connection.recv(1 << 16):
                        said += part
            if failed:
                raise failed.pop()
            for status in HEAD.findall(said):
                if status == b"500":
                    raise Broken(f"status 500: {said[:300]!r}")

        yield run
        server.task_dispatcher.shutdown()
        with contextlib.suppress(OSError):
            server.trigger.pull_trigger(lambda: wasyncore.close_all(sockets))
        thread.join()


@contextmanager
def qlog(_: Path) -> Iterator[Run]:
    """Imports of qlog files, with the measures and figures of what they contain."""
    with tempfile.TemporaryDirectory() as kept:
        path, run_folder = Path(kept) / "input.sqlog", Path(kept) / "run"

        def run(data: bytes) -> None:
            path.write_bytes(data)
            run_folder.mkdir()
            try:
                found = found_logs.read(run_folder, ["input"], [path], {"input": ""})
                view = RunData.load(run_folder, found.scenario, found.report)
                measure(view)
                asked = Asked.of(view, None, None, None)
                for figure in ("sequence", "received", "cwnd", "rtt", "throughput"):
                    with contextlib.suppress(AnalysisError):
                        draw(view, figure, [found.scenario.workload[0].name], asked)
            except (AnalysisError, ImportProblem) as error:
                if "\n" in str(error):
                    raise Broken(f"a message of several lines: {error}") from None
            finally:
                shutil.rmtree(run_folder)

        yield run


TARGETS: dict[str, Callable[[Path], contextlib.AbstractContextManager[Run]]] = {
    "bundle": bundle, "headers": headers, "qlog": qlog,
}  # fmt: skip


def inputs(program: Path, target: str, corpus: Path, seed: int) -> Iterator[bytes]:
    """Mutated inputs without end."""
    words = [str(program), target, "--stream", "--corpus", str(corpus), "--seed", str(seed)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        while length := process.stdout.read(8):
            yield process.stdout.read(int.from_bytes(length, "little"))
    finally:
        process.kill()
        process.communicate()


def main() -> int:
    """Tries inputs until the time is over, and prints their number."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target", choices=sorted(TARGETS))
    for name, kind in (("program", Path), ("corpus", Path), ("seed", int), ("seconds", int), ("at", Path)):
        parser.add_argument(f"--{name}", type=kind, required=True)
    asked = parser.parse_args()
    end, tried = time.monotonic() + asked.seconds, 0
    with TARGETS[asked.target](asked.corpus) as run, asked.at.open("r+b") as at:
        for path in sorted((asked.corpus / asked.target).iterdir()):
            run(path.read_bytes())
        for data in inputs(asked.program, asked.target, asked.corpus, asked.seed):
            if time.monotonic() > end:
                break
            at.seek(0)
            at.write(tried.to_bytes(8, "little"))
            at.flush()
            run(data)
            tried += 1
    print(tried)
    return 0


if __name__ == "__main__":
    sys.exit(main())
