"""Imports of captures: an upload is read by `./backchannel import` in a process with limits and becomes a run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import NotRequired, TypedDict

from analysis.errors import message_of
from analysis.store import Store, StoreError
from experiments.api import import_command, imported_run
from testbed.local_folders import ScratchFolder, sweep

#: Bytes of an upload with all its files, files of one, and imports that are listed.
MOST_BYTES, MOST_FILES, MOST_LISTED = 1 << 30, 6, 50
#: Bytes of an upload with the form around it.
MOST_BODY = MOST_BYTES + (1 << 20)
#: Begins the names of uploaded files on this machine; no message has it by chance.
UPLOADED = "uploaded-capture"
#: Uploads on this machine at a time, being read or waiting.
MOST_WAITING = 8
#: Readers at a time, and the limits of each.
AT_ONCE = 2
LIMIT_S, LIMIT_MEMORY_GB = 600.0, 8.0
#: A reader that has not ended this long after its own limit is killed, in s.
GRACE_S = 30.0


class ImportState(TypedDict):
    """An upload, for pages and scripts."""

    id: str
    #: Of the files, as they were uploaded.
    names: list[str]
    bytes: int
    #: waiting, reading, done, failed.
    state: str
    #: Why it failed.
    said: str
    runs: list[str]
    #: While it is read: what the reader does, bytes that it has written, and for how long it runs.
    phase: NotRequired[str]
    written_bytes: NotRequired[int]
    elapsed_s: NotRequired[float]


@dataclass
class Import:
    """One upload and the state of its reader."""

    id: str
    #: File names as the visitor had them; only shown.
    names: list[str]
    bytes: int
    #: The run's name in tables, and a remark that is stored with it.
    label: str = ""
    note: str = ""
    started: float = field(default_factory=time.time)
    #: waiting, reading, done, failed.
    state: str = "waiting"
    #: Why it failed.
    message: str = ""
    run_ids: list[str] = field(default_factory=list)
    #: The reader's process id, and when it started.
    reader: int = 0
    reader_started: float = 0.0

    def as_json(self, incoming: Path) -> ImportState:
        """For pages and scripts; `incoming` is where runs are put together."""
        document = ImportState(
            id=self.id, names=self.names, bytes=self.bytes, state=self.state, said=self.message, runs=self.run_ids
        )
        if self.state != "reading" or not self.reader:
            return document
        phase, written = _progress(incoming, self.reader)
        return {
            **document,
            "phase": phase,
            "written_bytes": written,
            "elapsed_s": round(time.time() - self.reader_started, 1),
        }


def _progress(incoming: Path, reader: int) -> tuple[str, int]:
    """A reader's phase and the bytes it has written, from the folder in which it builds the run."""
    folder = next(incoming.glob(f"*-{reader}"), None)
    # The reader adds and removes files and folders while this looks; os.walk passes over what has gone.
    sizes: dict[Path, int] = {}
    for place, _, names in os.walk(folder) if folder is not None else ():
        for path in (Path(place, name) for name in names):
            with contextlib.suppress(OSError):
                sizes[path] = path.stat().st_size
    tables = {path: size for path, size in sizes.items() if path.parent == folder}
    if any(path.name == "summary.json" for path in tables):
        return "measuring", sum(tables.values())
    if tables:
        return "classifying segments", sum(tables.values())
    return ("keeping the captures" if sizes else "looking at the captures"), sum(sizes.values())


class ImportQueue:
    """The imports of one application."""

    def __init__(self, store: Store, results: str) -> None:
        #: The store's local folder takes uploads; `results` names the store to the reader.
        self._store = store
        self._folder = store.folder
        self._results = results
        self._uploaded = store.folder / "uploads"
        self._uploaded.mkdir(parents=True, exist_ok=True)
        self._uploads: OrderedDict[str, Import] = OrderedDict()
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(AT_ONCE)
        #: Of the uploads that are read or wait.
        self._folders: set[ScratchFolder] = set()
        # A site that died left them.
        sweep(self._uploaded)

    def as_json(self, upload: Import) -> ImportState:
        """An upload with its reader's progress."""
        return upload.as_json(self._folder / "incoming")

    def uploads(self) -> list[Import]:
        """The latest uploads, newest first."""
        with self._lock:
            return list(reversed(self._uploads.values()))

    def find(self, import_id: str) -> Import | None:
        """An upload by its id."""
        with self._lock:
            return self._uploads.get(import_id)

    def new_folder(self) -> ScratchFolder:
        """A new folder with a random name for an upload's files.

        Raises:
            QueueFull: too many uploads wait.
            TestbedError: it cannot be created.
        """
        with self._lock:
            if len(self._folders) >= MOST_WAITING:
                raise QueueFull(f"{MOST_WAITING} uploads wait already; try again when some of them are done.")
            folder = ScratchFolder(self._uploaded)
            self._folders.add(folder)
        return folder

    def release(self, folder: ScratchFolder) -> None:
        """Deletes an upload's files."""
        folder.close()
        with self._lock:
            self._folders.remove(folder)

    def start(self, upload: Import, folder: ScratchFolder) -> None:
        """Starts reading a folder of captures, without waiting for it."""
        with self._lock:
            self._uploads[upload.id] = upload
            while len(self._uploads) > MOST_LISTED:
                self._uploads.popitem(last=False)
        threading.Thread(target=self._work, args=(upload, folder), name=f"import {upload.id}", daemon=True).start()

    def _work(self, upload: Import, folder: ScratchFolder) -> None:
        state = "failed"
        try:
            with self._slots:
                upload.state = "reading"
                upload.run_ids = [_read(self._results, sorted(folder.path.iterdir()), upload)]
                state = "done"
        except ImportFailed as error:
            upload.message = str(error)
        except OSError as error:
            upload.message = f"it cannot be read: {error.strerror}"
        finally:
            # First the files go, then the state says that it ended.
            self.release(folder)
            # A reader that was killed left an unfinished run. A store that is busy is swept another time.
            with contextlib.suppress(StoreError):
                self._store.sweep()
            upload.state = state


class ImportFailed(Exception):
    """The reader's message."""


class QueueFull(Exception):
    """Too many uploads wait."""


def _read(results: str, files: list[Path], upload: Import) -> str:
    """Runs `./backchannel import` with limits on time, memory and written bytes; returns the id of the run.

    Raises:
        ImportFailed: the file cannot be read, or the reader met a limit.
    """
    try:
        child = subprocess.Popen(
            import_command(files, upload.label, LIMIT_MEMORY_GB, LIMIT_S, upload.note),
            env={**os.environ, "BACKCHANNEL_RESULTS": results},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise ImportFailed(f"the reader cannot be started: {error.strerror}") from None
    upload.reader, upload.reader_started = child.pid, time.time()
    try:
        stdout, stderr = child.communicate(timeout=LIMIT_S + GRACE_S)
    except subprocess.TimeoutExpired:
        # The whole session: the reader may have started processes.
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        raise ImportFailed(
            f"reading it takes longer than {LIMIT_S:g} s; ./backchannel import can take longer"
        ) from None
    if child.returncode != 0:
        message = message_of(stderr) or "the reader ended without a message"
        # A visitor of the site has no options, an operator of the command line has.
        message = message.replace("; --", "; ./backchannel import --")
        # The visitor knows the file by its own name, and is shown no path of this machine.
        for path, name in zip(files, upload.names, strict=True):
            message = message.replace(str(path), name).replace(path.name, name)
        raise ImportFailed(message.replace(results, "the results folder"))
    try:
        return imported_run(stdout)
    except ValueError:
        raise ImportFailed("internal error: the reader's answer cannot be parsed; please report it") from None
