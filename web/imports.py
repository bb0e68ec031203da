"""Pages of imports: upload captures, watch them being read."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flask import Blueprint, Response, abort, current_app, flash, jsonify, redirect, render_template, request, url_for
from werkzeug.datastructures import FileStorage

from web.import_queue import MOST_BYTES, MOST_FILES, UPLOADED, Import, ImportQueue, QueueFull

blueprint = Blueprint("imports", __name__)

#: Characters of a label and of a note.
MOST_LABEL, MOST_NOTE = 120, 2000


@blueprint.get("/import")
def show() -> str:
    """The page."""
    return render_template(
        "upload.html",
        uploads=_queue().uploads(),
        most_bytes=MOST_BYTES,
        most_files=MOST_FILES,
        most_label=MOST_LABEL,
        most_note=MOST_NOTE,
    )


@blueprint.post("/import")
def act() -> Any:
    """Accepts an upload of a page without scripts."""
    accepted = _accept()
    flash(f"Reading {', '.join(accepted.names)}.")
    return redirect(url_for("imports.upload", import_id=accepted.id))


@blueprint.get("/import/<import_id>")
def upload(import_id: str) -> Any:
    """The state of an upload; once it is a run, that run's page."""
    upload_ = _find(import_id)
    if upload_.state == "done" and len(upload_.run_ids) == 1:
        return redirect(url_for("runs.show", run_id=upload_.run_ids[0]))
    return render_template("imported.html", upload=upload_)


@blueprint.get("/api/imports")
def all_as_json() -> Response:
    """The latest uploads."""
    return jsonify([_queue().as_json(upload) for upload in _queue().uploads()])


@blueprint.get("/api/imports/<import_id>")
def as_json(import_id: str) -> Response:
    """One upload; while it is read also the reader's phase, the bytes it has written and its elapsed time."""
    return jsonify(_queue().as_json(_find(import_id)))


@blueprint.post("/api/imports")
def submit() -> Any:
    """Accepts captures (multipart: `capture`, and perhaps `label` and `note`)."""
    return jsonify(_queue().as_json(_accept())), 202


def _accept() -> Import:
    if (request.content_length or 0) > MOST_BYTES:
        abort(413, f"An upload has at most {MOST_BYTES >> 20} MiB; ./backchannel import takes any size.")
    files = [upload for upload in request.files.getlist("capture") if upload.filename]
    if not files:
        abort(400, "Choose a capture file first.")
    if len(files) > MOST_FILES:
        abort(400, f"At most {MOST_FILES} captures of one transfer can come together.")
    queue = _queue()
    try:
        folder = queue.new_folder()
    except QueueFull as error:
        abort(503, str(error))
    try:
        names, total = _save(files, folder.path)
    except BaseException:
        queue.release(folder)
        raise
    label = _printable(request.form.get("label", ""), MOST_LABEL) or ", ".join(names)
    note = request.form.get("note", "").strip()[:MOST_NOTE]
    accepted = Import(secrets.token_hex(6), names, total, label, note.replace("\0", ""))
    queue.start(accepted, folder)
    return accepted


def _save(files: Sequence[FileStorage], folder: Path) -> tuple[list[str], int]:
    """Saves an upload's files in its folder; returns their names for people and their bytes."""
    names, total = [], 0
    for number, file in enumerate(files):
        # Readers may use the suffix; nothing else of the name is.
        suffix = "".join(Path(file.filename or "").suffixes[-2:]).lower()
        kept = suffix if suffix.replace(".", "").isalnum() and len(suffix) <= 12 else ""
        path = folder / f"{UPLOADED}-{number}{kept}"
        file.save(path)
        path.chmod(0o600)
        total += path.stat().st_size
        names.append(_printable((file.filename or "").replace("/", "").replace("\\", ""), 80).lstrip("-") or "capture")
    return names, total


def _printable(text: str, most: int) -> str:
    """One line of a visitor's text, without control characters."""
    return "".join(c for c in text if c.isprintable())[:most].strip()


def _find(import_id: str) -> Import:
    upload_ = _queue().find(import_id)
    if upload_ is None:
        abort(404, f"Unknown import {import_id}; a restart of the site clears the list.")
    return upload_


def _queue() -> ImportQueue:
    queue: ImportQueue = current_app.extensions["imports"]
    return queue
