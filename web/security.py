"""Access to the site: host names, the token, forged requests, and the content security policy.

On 127.0.0.1 no token is needed. The host name of every request is checked, so that a page elsewhere cannot reach the
site under a name of its own. On any other address each visitor gives the token once.
"""

from __future__ import annotations

import contextlib
import fcntl
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

blueprint = Blueprint("auth", __name__)

#: Browsers load from this server alone, and run nothing inline.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
#: Characters; shorter tokens could be guessed.
LEAST_TOKEN = 16
#: Wrong tokens a minute, from all visitors together.
GUESSES = 20
#: A session that its visitor does not end ends after this.
SESSION_S = 30 * 24 * 3600
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
#: Endpoints that need no token.
OPEN = frozenset({"auth.sign_in", "static", "figures.static", "monitoring.health"})
#: Endpoints that accept captures; all others accept forms.
UPLOADS = frozenset({"imports.act", "imports.submit"})


class TokenAuth:
    """The site's token, if it has one, and the wrong attempts."""

    def __init__(self, token: str, ended: EndedSessions) -> None:
        self._token = token.encode()
        self._ended = ended
        self._wrong: deque[float] = deque(maxlen=GUESSES)
        self._lock = threading.Lock()

    @property
    def locked(self) -> bool:
        """Whether the site needs a token."""
        return bool(self._token)

    def begin_session(self) -> None:
        """The visitor has given the token."""
        session["in"], session["name"] = self._proof(), secrets.token_hex(8)
        session.permanent = True

    def end_session(self) -> None:
        """The visitor leaves. A copy of the cookie opens nothing any more."""
        if "name" in session:
            self._ended.add(str(session["name"]))
        session.clear()

    def knows(self) -> bool:
        """Whether this visitor has given the token, and has not left."""
        given = hmac.compare_digest(str(session.get("in", "")).encode(), self._proof().encode())
        return given and str(session.get("name")) not in self._ended

    def _proof(self) -> str:
        """Of a session in which this token was given; another token invalidates it."""
        return hmac.digest(current_app.secret_key, self._token, "sha256").hex()  # type: ignore[arg-type]

    def is_token(self, token: str) -> bool:
        """Whether it is the token."""
        return hmac.compare_digest(token.encode(), self._token)

    def opens(self, token: str) -> bool:
        """Whether a token is right. Wrong ones that come too fast are refused as such.

        A right one always opens: strangers must not be able to keep others out, and no rate of guessing finds a token
        of LEAST_TOKEN characters.
        """
        if self.is_token(token):
            return True
        now = time.monotonic()
        with self._lock:
            fast = len(self._wrong) == GUESSES and now - self._wrong[0] < 60
            self._wrong.append(now)
        if fast:
            abort(429, "Too many wrong tokens; try again in a minute.")
        return False


class EndedSessions:
    """The sessions that their visitors ended, by name: a file that all sites of a results folder share.

    A session's cookie is valid by its signature until it expires, so the server remembers those that no longer are.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read_ns = -1
        self._names: frozenset[str] = frozenset()

    def add(self, name: str) -> None:
        """Ends a session."""
        now = time.time()
        with self._file.open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            kept = [line for line in file if float(line.split()[1]) > now - SESSION_S]
            file.truncate(0)
            file.writelines([*kept, f"{name} {now:.0f}\n"])

    def __contains__(self, name: str) -> bool:
        try:
            changed_ns = self._file.stat().st_mtime_ns
        except FileNotFoundError:
            return False
        if changed_ns != self._read_ns:
            with self._file.open(encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                self._names = frozenset(line.split()[0] for line in file)
            self._read_ns = changed_ns
        return name in self._names


def guard(app: Flask, results: Path, token: str, names: list[str]) -> None:
    """Checks every request of an application.

    Args:
        app: the application.
        results: folder of the key that signs sessions.
        token: empty: no token is needed.
        names: host names beside those of this machine.
    """
    auth = TokenAuth(token, EndedSessions(results / "site.ended-sessions"))
    app.extensions["auth"] = auth
    app.secret_key = _key(results)
    app.config.update(
        # Cookies ignore ports: two sites of one host would overwrite each other's.
        SESSION_COOKIE_NAME=f"backchannel-{hashlib.sha256(app.secret_key).hexdigest()[:8]}",
        SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_SAMESITE="Strict",
        PERMANENT_SESSION_LIFETIME=SESSION_S,
    )
    allowed = {*LOCAL_NAMES, *names}
    app.register_blueprint(blueprint)
    app.jinja_env.globals["csrf"] = csrf
    app.jinja_env.globals["locked"] = auth.locked

    @app.before_request
    def _check() -> Any:
        host = request.host.rsplit(":", 1)[0] if not request.host.endswith("]") else request.host
        if host not in allowed:
            abort(400, f"This site does not accept the host name {host!r}; --name adds one.")
        g.by_token = False
        given = _bearer_token()
        if auth.locked and given is not None:
            if not auth.opens(given):
                abort(401, "The token is wrong.")
            g.by_token = True
        if auth.locked and not g.by_token and not auth.knows() and request.endpoint not in OPEN:
            # A scraper would follow a redirection and read a page.
            if request.path.startswith("/api/") or request.endpoint == "monitoring.metrics":
                abort(401, "This site asks for a token: send it as 'Authorization: Bearer TOKEN'.")
            if request.method not in SAFE:
                abort(401, "Your session has ended; give the token again.")
            return redirect(url_for("auth.sign_in", to=request.full_path.rstrip("?")))
        if request.endpoint in UPLOADS:
            request.max_content_length = import_queue.MOST_BODY
        # Before anything parses a form.
        if (request.content_length or 0) > (request.max_content_length or 0):
            abort(413, f"A request here has at most {(request.max_content_length or 0) >> 20} MiB.")
        if request.method not in SAFE and not g.by_token:
            _not_forged()
        return None

    @app.after_request
    def _headers(response: Response) -> Response:
        response.headers.setdefault("Content-Security-Policy", POLICY)
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "same-origin"
        response.headers["Cross-Origin-Opener-Policy"] = "same-origin"
        response.headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
        return response


def may_upload() -> bool:
    """Whether the current request is an upload of somebody who may send one. Looks at no body."""
    auth: TokenAuth = current_app.extensions["auth"]
    token = _bearer_token()
    by_token = token is not None and auth.is_token(token)
    return request.endpoint in UPLOADS and (not auth.locked or by_token or auth.knows())


def _bearer_token() -> str | None:
    """The token that the request itself has, as scripts send it."""
    try:
        bearer = request.authorization
    except ValueError:
        # werkzeug fails at a Basic header with other characters than ASCII.
        return None
    return bearer.token if bearer is not None and bearer.type == "bearer" else None


def csrf() -> str:
    """The token against forgery in every form of this visitor."""
    if "csrf" not in session:
        session["csrf"] = secrets.token_urlsafe()
        session.permanent = True
    return str(session["csrf"])


def _not_forged() -> None:
    """Rejects requests that another site made a browser send."""
    origin = request.headers.get("Origin")
    try:
        foreign = origin is not None and urlsplit(origin).netloc != request.host
    except ValueError:
        abort(400, "The header Origin is not an address.")
    if foreign:
        abort(403, "This request came from another site and was rejected.")
    if request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        abort(403, "This request came from another site and was rejected.")
    # Browsers send a form to another site with its origin: a request without origin and cookie comes from a script.
    if request.path.startswith("/api/") and origin is None and not request.cookies:
        return
    token = request.headers.get("X-CSRF-Token") or request.form.get("csrf", "")
    if not hmac.compare_digest(token.encode(), str(session.get("csrf", "")).encode()) or not token:
        abort(403, "The form is too old; reload the page and send it again.")


@blueprint.route("/enter", methods=["GET", "POST"])
def sign_in() -> Any:
    """Asks for the token."""
    auth: TokenAuth = current_app.extensions["auth"]
    to = request.values.get("to", "/")
    # Only to a page of this site. Browsers remove control characters from an address before they read it.
    if not to.startswith("/") or to.startswith(("//", "/\\")) or not to.isprintable():
        to = "/"
    wrong = False
    if request.method == "POST":
        if not auth.locked:
            return redirect(to)
        if auth.opens(request.form.get("token", "")):
            auth.begin_session()
            return redirect(to)
        wrong = True
    return render_template("enter.html", to=to, wrong=wrong), 401 if wrong else 200


@blueprint.post("/leave")
def leave() -> Any:
    """Ends the visitor's session."""
    auth: TokenAuth = current_app.extensions["auth"]
    auth.end_session()
    return redirect(url_for("auth.sign_in"))


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
