"""Importing captures: a file comes in, is read by `./backchannel import` in a bounded process, and becomes a run.

The file's own name is only shown. It is stored under a random one, within limits of size and number, and goes when it
was read.
"""

from __future__ import annotations

import json
import os
import resource
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flask import (
    Blueprint,
    Response,
    abort,
    current_app,
    flash,
    g,
    jsonify,
    redirect,
    render_template,
    request,
    url_for,
)

from experiments.cli import BAD_INPUT, PREFIX

blueprint = Blueprint("imports", __name__)

#: Of one upload (all of its files), of files in it, and of imports that are kept in mind.
MOST_BYTES, MOST_FILES, MOST_KEPT = 1 << 30, 6, 50
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

    def as_json(self) -> dict[str, Any]:
        """For pages and scripts."""
        return {
            "id": self.id, "names": self.names, "bytes": self.bytes, "state": self.state, "said": self.said,
            "runs": self.run_ids,
        }  # fmt: skip


class Desk:
    """The imports of one application."""

    def __init__(self, folder: Path, results: str) -> None:
        #: Of this machine, for what comes in; and the store that it is read into.
        self._folder = folder
        self._results = results
        self._known: OrderedDict[str, Import] = OrderedDict()
        self._lock = threading.Lock()
        self._room = threading.Semaphore(AT_ONCE)

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
        made.mkdir(parents=True, mode=0o700)
        return made

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
            for path in folder.iterdir():
                path.unlink(missing_ok=True)
            folder.rmdir()
            one.state = state


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
        return jsonify(one.as_json()), 202
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
    return jsonify([one.as_json() for one in _desk().known()])


@blueprint.get("/api/imports/<import_id>")
def as_json(import_id: str) -> Response:
    """One upload."""
    return jsonify(_find(import_id).as_json())


@blueprint.post("/api/imports")
def enter() -> Any:
    """Takes captures in (multipart, field `capture`)."""
    return jsonify(_take().as_json()), 202


def _take() -> Import:
    if (request.content_length or 0) > MOST_BYTES:
        abort(413, f"An upload has at most {MOST_BYTES >> 20} MiB; ./backchannel import takes any size.")
    request.max_content_length = MOST_BYTES
    files = [one for one in request.files.getlist("capture") if one.filename]
    if not files:
        abort(400, "Choose a capture file first.")
    if len(files) > MOST_FILES:
        abort(400, f"At most {MOST_FILES} captures of one transfer can come together.")
    desk = _desk()
    folder, names, total = desk.folder(), [], 0
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
    found = Import(secrets.token_hex(6), names, total)
    desk.begin(found, folder)
    return found


def _find(import_id: str) -> Import:
    found = _desk().find(import_id)
    if found is None:
        abort(404, f"There is no import {import_id}; the site forgets them when it is started anew.")
    return found


def _desk() -> Desk:
    desk: Desk | None = current_app.extensions.get("desk")
    if desk is None:
        desk = current_app.extensions["desk"] = Desk(g.store.folder, str(current_app.config["RESULTS"]))
    return desk
