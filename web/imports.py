"""Importing captures: a file comes in, is read by `./backchannel import` in a bounded process, and becomes a run.

The file's own name is only shown. It is stored under a random one, within limits of size and number, and goes when it
was read.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flask import (
    Blueprint,
    Response,
    abort,
    current_app,
    flash,
    jsonify,
    redirect,
    render_template,
    request,
    url_for,
)
from werkzeug.datastructures import FileStorage

from analysis.store import Store
from experiments.exits import BAD_INPUT
from experiments.exits import MESSAGE_PREFIX as PREFIX

blueprint = Blueprint("imports", __name__)

#: Of one upload (all of its files), of files in it, and of imports that are kept in mind.
MOST_BYTES, MOST_FILES, MOST_KEPT = 1 << 30, 6, 50
#: An upload and its form around it.
MOST_BODY = MOST_BYTES + (1 << 20)
#: Uploads that may lie here at a time, read or waiting.
MOST_WAITING = 8
#: Readers at a time, and what one of them may take.
AT_ONCE = 2
LIMIT_S, LIMIT_MEMORY, LIMIT_FILE = 600, 8 << 30, 8 << 30


@dataclass
class Import:
    """One upload on its way."""

    id: str
    #: Names that the visitor's files had.
    names: list[str]
    bytes: int
    started: float = field(default_factory=time.time)
    #: waiting, reading, done, failed.
    state: str = "waiting"
    #: The last thing that the reader said; why it failed.
    said: str = ""
    run_ids: list[str] = field(default_factory=list)
    #: The reader's process, and when it began.
    reader: int = 0
    began: float = 0.0

    def as_json(self, incoming: Path) -> dict[str, Any]:
        """For pages and scripts; `incoming` is where runs are put together."""
        told = {
            "id": self.id, "names": self.names, "bytes": self.bytes, "state": self.state, "said": self.said,
            "runs": self.run_ids,
        }  # fmt: skip
        if self.state != "reading" or not self.reader:
            return told
        phase, written = _so_far(incoming, self.reader)
        return {**told, "phase": phase, "written_bytes": written, "elapsed_s": round(time.time() - self.began, 1)}


def _so_far(incoming: Path, reader: int) -> tuple[str, int]:
    """What a reader is at and the bytes it has written so far, as the folder tells that it puts the run together in."""
    folder = next(incoming.glob(f"*-{reader}"), None)
    # Files come and go meanwhile.
    sizes: dict[Path, int] = {}
    for path in folder.rglob("*") if folder is not None else ():
        with contextlib.suppress(OSError):
            if path.is_file():
                sizes[path] = path.stat().st_size
    tables = {path: size for path, size in sizes.items() if path.parent == folder}
    if any(path.name == "summary.json" for path in tables):
        return "measuring", sum(tables.values())
    if tables:
        return "classifying segments", sum(tables.values())
    return ("keeping the captures" if sizes else "looking at the captures"), sum(sizes.values())


class Desk:
    """The imports of one application."""

    def __init__(self, store: Store, results: str) -> None:
        #: Its folder is of this machine, for what comes in; `results` names it to the reader.
        self._store = store
        self._folder = store.folder
        self._results = results
        self._known: OrderedDict[str, Import] = OrderedDict()
        self._lock = threading.Lock()
        self._room = threading.Semaphore(AT_ONCE)
        #: A locked descriptor of each upload's folder: what nobody holds was left by a site that died.
        self._held: dict[Path, int] = {}
        self._sweep()

    def told(self, one: Import) -> dict[str, Any]:
        """An upload, with how far its reader is."""
        return one.as_json(self._folder / "incoming")

    def known(self) -> list[Import]:
        """The latest first."""
        with self._lock:
            return list(reversed(self._known.values()))

    def find(self, import_id: str) -> Import | None:
        """One by its id."""
        with self._lock:
            return self._known.get(import_id)

    def folder(self) -> Path:
        """A new folder of a random name for an upload's files."""
        made = self._folder / "uploads" / secrets.token_hex(8)
        with self._lock:
            if len(self._held) >= MOST_WAITING:
                abort(503, f"{MOST_WAITING} captures wait to be read already; send this one when some are through.")
            with _alone(made.parent):
                made.mkdir(mode=0o700)
                self._held[made] = _hold(made)
        return made

    def release(self, folder: Path) -> None:
        """Does away with an upload's files."""
        shutil.rmtree(folder, ignore_errors=True)
        with self._lock:
            os.close(self._held.pop(folder))

    def _sweep(self) -> None:
        uploads = self._folder / "uploads"
        with _alone(uploads):
            for folder in uploads.iterdir():
                try:
                    os.close(_hold(folder))
                except OSError:
                    continue  # Another site's, which lives.
                shutil.rmtree(folder, ignore_errors=True)

    def begin(self, one: Import, folder: Path) -> None:
        """Has a folder of captures read, without waiting for it."""
        with self._lock:
            self._known[one.id] = one
            while len(self._known) > MOST_KEPT:
                self._known.popitem(last=False)
        threading.Thread(target=self._work, args=(one, folder), name=f"import {one.id}", daemon=True).start()

    def _work(self, one: Import, folder: Path) -> None:
        state = "failed"
        try:
            with self._room:
                one.state = "reading"
                one.run_ids = _read(self._results, sorted(folder.iterdir()), one)
                state = "done"
        except ImportFailed as error:
            one.said = str(error)
        except OSError as error:
            one.said = f"it cannot be read here: {error.strerror}"
        finally:
            # Whoever is told that it has ended finds no upload left.
            self.release(folder)
            # Nor what a reader that was killed had half made.
            self._store.sweep_incoming()
            one.state = state


def _hold(folder: Path) -> int:
    """Locks a folder for as long as the descriptor is open and this process lives.

    Raises:
        OSError: another holds it.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@contextlib.contextmanager
def _alone(uploads: Path) -> Iterator[None]:
    """No other site makes or sweeps folders of uploads meanwhile."""
    uploads.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(uploads, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class ImportFailed(Exception):
    """The reader's own sentence."""


def _read(results: str, files: list[Path], one: Import) -> list[str]:
    """Runs `./backchannel import` with limits on time, memory and written bytes; gives the runs it made.

    Raises:
        ImportFailed: it could not read the file, or met a limit.
    """
    label = ", ".join(one.names)
    words = [
        sys.executable,
        "-m",
        "experiments",
        "import",
        *map(str, files),
        "--results",
        results,
        "--label",
        label,
        "--json",
    ]
    try:
        child = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
            preexec_fn=_limit, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise ImportFailed(f"the reader cannot be started: {error.strerror}") from None
    one.reader, one.began = child.pid, time.time()
    try:
        said, trouble = child.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        # Its whole session: what it started goes with it.
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        raise _too_long() from None
    if child.returncode == -signal.SIGXCPU:
        raise _too_long()
    if child.returncode != 0:
        last = _reason(child.returncode, trouble)
        # Of the file only its own name is known to the one who sent it, and nothing of this machine.
        for path, name in zip(files, one.names, strict=True):
            last = last.replace(str(path), name)
        raise ImportFailed(last.replace(results, "the results folder"))
    try:
        return [str(json.loads(said)["run"])]
    except (ValueError, KeyError, TypeError):
        raise ImportFailed("the reader gave no answer that can be understood") from None


def _too_long() -> ImportFailed:
    return ImportFailed(f"reading it took longer than {LIMIT_S} s; ./backchannel import has no such limit")


def _reason(status: int, trouble: str) -> str:
    """The reader's own sentence; of one that met a limit, its last words are those of some library."""
    lines = trouble.strip().splitlines()
    own = [line for line in lines if line.startswith(PREFIX)] or (lines if status == BAD_INPUT else [])
    if own:
        return own[-1].removeprefix(PREFIX)
    return (
        f"reading it broke off: {LIMIT_MEMORY / 1e9:.3g} GB of memory, {LIMIT_FILE / 1e9:.3g} GB of written files and "
        f"{LIMIT_S} s are what it may take here; ./backchannel import has no such limits"
    )


def _limit() -> None:
    # A signal that names the limit comes first; at the second it ends whatever it has become.
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S + 1))
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_MEMORY, LIMIT_MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_FILE, LIMIT_FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@blueprint.get("/import")
def show() -> str:
    """The page."""
    return render_template("upload.html", known=_desk().known(), most_bytes=MOST_BYTES, most_files=MOST_FILES)


@blueprint.post("/import")
def act() -> Any:
    """Takes an upload in; to a script on the page it answers with JSON."""
    one = _take()
    if request.headers.get("Accept", "").startswith("application/json"):
        return jsonify(_desk().told(one)), 202
    flash(f"Reading {', '.join(one.names)}.")
    return redirect(url_for("imports.one", import_id=one.id))


@blueprint.get("/import/<import_id>")
def one(import_id: str) -> Any:
    """What became of an upload; once it is a run, that run's page."""
    found = _find(import_id)
    if found.state == "done" and len(found.run_ids) == 1:
        return redirect(url_for("runs.show", run_id=found.run_ids[0]))
    return render_template("imported.html", one=found)


@blueprint.get("/api/imports")
def all_as_json() -> Response:
    """The latest uploads."""
    return jsonify([_desk().told(one) for one in _desk().known()])


@blueprint.get("/api/imports/<import_id>")
def as_json(import_id: str) -> Response:
    """One upload; while it is read, what the reader is at, the bytes it has written so far, and since when."""
    return jsonify(_desk().told(_find(import_id)))


@blueprint.post("/api/imports")
def enter() -> Any:
    """Takes captures in (multipart, field `capture`)."""
    return jsonify(_desk().told(_take())), 202


def _take() -> Import:
    if (request.content_length or 0) > MOST_BYTES:
        abort(413, f"An upload has at most {MOST_BYTES >> 20} MiB; ./backchannel import takes any size.")
    files = [one for one in request.files.getlist("capture") if one.filename]
    if not files:
        abort(400, "Choose a capture file first.")
    if len(files) > MOST_FILES:
        abort(400, f"At most {MOST_FILES} captures of one transfer can come together.")
    desk = _desk()
    folder = desk.folder()
    try:
        names, total = _save(files, folder)
    except BaseException:
        desk.release(folder)
        raise
    found = Import(secrets.token_hex(6), names, total)
    desk.begin(found, folder)
    return found


def _save(files: Sequence[FileStorage], folder: Path) -> tuple[list[str], int]:
    """Puts an upload's files into its folder; gives their names for people, and their bytes."""
    names, total = [], 0
    for number, file in enumerate(files):
        # The suffix helps readers that go by it; nothing else of the name is used.
        suffix = "".join(Path(file.filename or "").suffixes[-2:]).lower()
        kept = suffix if suffix.replace(".", "").isalnum() and len(suffix) <= 12 else ""
        path = folder / f"{number}{kept}"
        file.save(path)
        path.chmod(0o600)
        total += path.stat().st_size
        names.append(
            "".join(c for c in file.filename or "" if c.isprintable() and c not in "/\\")[:80].lstrip("-") or "capture"
        )
    return names, total


def _find(import_id: str) -> Import:
    found = _desk().find(import_id)
    if found is None:
        abort(404, f"There is no import {import_id}; the site forgets them when it is started anew.")
    return found


def _desk() -> Desk:
    desk: Desk = current_app.extensions["desk"]
    return desk
