"""Sessions that run now (`./backchannel shell`): their lines, and changes to them while they run.

The site starts no session. It speaks to those of its own user, over the control socket that each has.
"""

from __future__ import annotations

from typing import Any

from flask import Blueprint, abort, flash, jsonify, redirect, render_template, request, url_for

from experiments.api import TestbedError, mechanisms, running_sessions, session_state, set_session

blueprint = Blueprint("sessions", __name__)

#: Fields of the form for a direction, in the words of `./backchannel shell set`.
FIELDS = ("rate", "delay", "loss", "policy")
#: Longest value of a field.
MOST_TEXT = 100


@blueprint.get("/sessions")
def show() -> str:
    """Every running session with its lines, and a form to change each."""
    return render_template("sessions.html", sessions=_states(), policies=[entry.name for entry in mechanisms("policy")])


@blueprint.get("/api/sessions")
def read() -> Any:
    """Every running session as JSON."""
    return jsonify(_states())


@blueprint.post("/sessions/<name>")
def change(name: str) -> Any:
    """Changes one direction of a line. Empty fields change nothing."""
    form = request.form
    way, link = form.get("direction", ""), form.get("link", "")
    if way not in ("forward", "reverse"):
        abort(400, "A change names the direction forward or reverse.")
    values = {field: form.get(field, "").strip() for field in FIELDS}
    if any(len(value) > MOST_TEXT for value in values.values()):
        abort(400, f"A value has at most {MOST_TEXT} characters.")
    words = [f"{way}.{field}={value}" for field, value in values.items() if value]
    if not words:
        flash("Nothing was changed: every field is empty.")
        return redirect(url_for("sessions.show"))
    try:
        for sentence in set_session(name, link, words):
            flash(sentence)
    except TestbedError as error:
        flash(str(error))
    return redirect(url_for("sessions.show"))


def _states() -> list[dict[str, Any]]:
    """State of every session that has not ended meanwhile."""
    return [state for name in running_sessions() if (state := _state(name)) is not None]


def _state(name: str) -> dict[str, Any] | None:
    """A session's state; None if it has ended meanwhile."""
    try:
        return session_state(name)
    except TestbedError:
        return None
