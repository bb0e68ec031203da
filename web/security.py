"""Who may do what on the site: host names, the token, forged requests, and what a browser may load.

On 127.0.0.1 nobody is asked for anything; the host name of every request is checked, so that a page elsewhere cannot
reach the site under a name of its own. On any other address each visitor gives the token once.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import ipaddress
import os
import secrets
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from flask import (
    Blueprint,
    Flask,
    Response,
    abort,
    current_app,
    g,
    redirect,
    render_template,
    request,
    session,
    url_for,
)

from web import import_queue

blueprint = Blueprint("door", __name__)

#: Everything comes from this server; nothing is inline.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
#: Shorter ones could be guessed.
LEAST_TOKEN = 16
#: Wrong tokens a minute, from everybody together.
GUESSES = 20
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
#: What can be had without the token.
OPEN = frozenset({"door.enter", "static", "figures.static", "api.healthy"})
#: What takes captures in; everything else takes forms.
UPLOADS = frozenset({"imports.act", "imports.enter"})


class Door:
    """The site's token, or none, and how often somebody got it wrong."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._wrong: deque[float] = deque(maxlen=GUESSES)
        self._lock = threading.Lock()

    @property
    def locked(self) -> bool:
        """Whether a token is asked for."""
        return bool(self._token)

    def mark(self) -> str:
        """What the session of somebody who gave this very token holds: another token makes it worthless."""
        return hmac.digest(current_app.secret_key, self._token, "sha256").hex()  # type: ignore[arg-type]

    def knows(self) -> bool:
        """Whether this visitor gave the token."""
        return hmac.compare_digest(str(session.get("in", "")).encode(), self.mark().encode())

    def opens(self, given: str) -> bool:
        """Whether a token is the right one; after too many wrong ones, none is for a while."""
        now = time.monotonic()
        with self._lock:
            if len(self._wrong) == GUESSES and now - self._wrong[0] < 60:
                abort(429, "Too many wrong tokens; try again in a minute.")
            good = hmac.compare_digest(given.encode(), self._token)
            if not good:
                self._wrong.append(now)
            return good


def guard(app: Flask, results: Path, token: str, names: list[str]) -> None:
    """Puts every request of an application under guard.

    Args:
        app: the application.
        results: where the key that signs sessions is kept.
        token: empty: none is asked for.
        names: host names beside those of this machine.
    """
    door = Door(token)
    app.extensions["door"] = door
    app.secret_key = _key(results)
    app.config.update(
        # Cookies know no ports: two sites of one host would overwrite each other's.
        SESSION_COOKIE_NAME=f"backchannel-{hashlib.sha256(app.secret_key).hexdigest()[:8]}",
        SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_SAMESITE="Strict",
        PERMANENT_SESSION_LIFETIME=30 * 24 * 3600,
    )
    allowed = {*LOCAL_NAMES, *names}
    app.register_blueprint(blueprint)
    app.jinja_env.globals["csrf"] = csrf
    app.jinja_env.globals["locked"] = door.locked

    @app.before_request
    def _check() -> Any:
        host = request.host.rsplit(":", 1)[0] if not request.host.endswith("]") else request.host
        if host not in allowed:
            abort(400, f"This site does not go by the name {host!r}; --name lets it.")
        g.by_token = False
        bearer = request.authorization
        if door.locked and bearer is not None and bearer.type == "bearer" and bearer.token is not None:
            if not door.opens(bearer.token):
                abort(401, "The token is wrong.")
            g.by_token = True
        if door.locked and not g.by_token and not door.knows() and request.endpoint not in OPEN:
            if request.path.startswith("/api/"):
                abort(401, "This site asks for a token: send it as 'Authorization: Bearer TOKEN'.")
            if request.method not in SAFE:
                abort(401, "Your session has ended; give the token again.")
            return redirect(url_for("door.enter", to=request.full_path.rstrip("?")))
        if request.endpoint in UPLOADS:
            request.max_content_length = import_queue.MOST_BODY
        # Before anything looks for a form in it.
        if (request.content_length or 0) > (request.max_content_length or 0):
            abort(413, f"What is sent here has at most {(request.max_content_length or 0) >> 20} MiB.")
        if request.method not in SAFE and not g.by_token:
            _not_forged()
        return None

    @app.after_request
    def _headers(response: Response) -> Response:
        response.headers.setdefault("Content-Security-Policy", POLICY)
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "same-origin"
        response.headers["Cross-Origin-Opener-Policy"] = "same-origin"
        response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
        return response


def csrf() -> str:
    """The token that every form of this visitor carries."""
    if "csrf" not in session:
        session["csrf"] = secrets.token_urlsafe(24)
        session.permanent = True
    return str(session["csrf"])


def _not_forged() -> None:
    """Refuses what another site made a browser send."""
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != request.host:
        abort(403, "This came from another site.")
    if request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        abort(403, "This came from another site.")
    # No browser sends a form to another site without its origin: what has neither that nor a cookie is a script.
    if request.path.startswith("/api/") and origin is None and not request.cookies:
        return
    given = request.headers.get("X-CSRF-Token") or request.form.get("csrf", "")
    if not hmac.compare_digest(given.encode(), str(session.get("csrf", "")).encode()) or not given:
        abort(403, "The form is too old; reload the page and send it again.")


@blueprint.route("/enter", methods=["GET", "POST"])
def enter() -> Any:
    """Asks for the token."""
    door: Door = current_app.extensions["door"]
    to = request.values.get("to", "/")
    # Only to a page of this site. Browsers take control characters out of an address before they read it.
    if not to.startswith("/") or to.startswith(("//", "/\\")) or not to.isprintable():
        to = "/"
    wrong = False
    if request.method == "POST":
        if not door.locked:
            return redirect(to)
        if door.opens(request.form.get("token", "")):
            session["in"] = door.mark()
            session.permanent = True
            return redirect(to)
        wrong = True
    return render_template("enter.html", to=to, wrong=wrong), 401 if wrong else 200


@blueprint.post("/leave")
def leave() -> Any:
    """Forgets that the token was given."""
    session.clear()
    return redirect(url_for("door.enter"))


def is_local(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _key(results: Path) -> bytes:
    """The key that signs sessions, created on first use with mode 0600.

    It is written to a temporary file and linked into place, so that a concurrent start reads a whole key or none.
    """
    path = results / "site.key"
    with contextlib.suppress(FileNotFoundError):
        return path.read_bytes()
    descriptor, temporary = tempfile.mkstemp(prefix=".site.key-", dir=results)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(32))
        # link() does not replace: the first of several starts wins, and all of them read its key.
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        Path(temporary).unlink()
    return path.read_bytes()
