"""Sessions that run now (`./backchannel shell`): their lines, and changes to them while they run.

The site starts no session. It speaks to those of its own user, over the control socket that each has.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from flask import Blueprint, Response, abort, flash, jsonify, redirect, render_template, request, url_for
from werkzeug.wrappers import Response as Answer

from experiments.api import TestbedError, mechanisms, running_sessions, session_state, set_session
from testbed.report import DROPS

if TYPE_CHECKING:
    from experiments.api import SessionState

blueprint = Blueprint("sessions", __name__)

#: Fields of the form for a direction, in the words of `./backchannel shell set`.
FIELDS = ("rate", "delay", "loss", "policy")
#: Longest value of a field.
MOST_TEXT = 100


@blueprint.get("/sessions")
def show() -> str:
    """Every running session with its lines, and a form to change each."""
    return render_template(
        "sessions.html",
        sessions=_states(),
        policies=[entry.name for entry in mechanisms("policy")],
        drops=DROPS,
    )


@blueprint.get("/api/sessions")
def read() -> Response:
    """Every running session: lines as declared now, counters and queues by link and direction, changes so far."""
    return jsonify([state.as_json() for state in _states()])


@blueprint.post("/sessions/<name>")
def change(name: str) -> Answer:
    """Changes one direction of a line. Empty fields change nothing. A rejected change stays in the form."""
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
        typed: dict[str, Any] = {field: value for field, value in values.items() if value}
        return redirect(url_for("sessions.show", session=name, link=link, direction=way, **typed))
    return redirect(url_for("sessions.show"))


def _states() -> list[SessionState]:
    """State of every session that has not ended meanwhile."""
    states = []
    for name in running_sessions():
        # It may have ended meanwhile.
        with suppress(TestbedError):
            states.append(session_state(name))
    return states
