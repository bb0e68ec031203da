"""Pages that take long: a browser has an answer at once, which says how far the page is and asks again.

Only what a browser shows as a page is answered so. Scripts, streams and downloads wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

#: A page that is there within this time comes at once, in s.
WITHIN_S = 2.0
#: Pages that are made, or wait to be fetched, at a time; visitors to others wait.
MOST = 8
#: A page that nobody has fetched for this long is made again, in s.
KEPT_S = 30.0
#: What a page depends on. A page of one visitor is never shown to another.
_KEY = ("PATH_INFO", "QUERY_STRING", "HTTP_COOKIE", "HTTP_AUTHORIZATION", "HTTP_HOST", "REMOTE_ADDR", "SCRIPT_NAME")
_HEADERS = (
    ("Content-Type", "text/html; charset=utf-8"),
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", "default-src 'none'; style-src 'self'"),
)
_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="1">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<title>A moment · Backchannel</title><link rel="stylesheet" href="/static/figures/figure.css">
<link rel="stylesheet" href="/static/style.css"></head>
<body><main id="main"><h1>This page takes a moment</h1><p role="status">{}</p>
<p>It appears here as soon as it is there.</p></main></body></html>
"""


class _Page:
    """A page that is made."""

    def __init__(self) -> None:
        self.began_s = time.monotonic()
        self.ended_s: float | None = None
        self.ended = threading.Event()
        #: Runs that were read, and all.
        self.done, self.runs = 0, 0
        self.status, self.headers, self.body = "", list[tuple[str, str]](), b""
        self.error: BaseException | None = None

    def make(self, app: WSGIApplication, environ: WSGIEnvironment) -> None:
        """Makes it, in a thread of its own."""
        _making.set(self)
        try:
            parts: Iterable[bytes] = app(environ, self._start)
            try:
                self.body = b"".join(parts)
            finally:
                if close := getattr(parts, "close", None):
                    close()
        except BaseException as error:  # noqa: BLE001 (whoever fetches the page raises it)
            self.error = error
        self.ended_s = time.monotonic()
        self.ended.set()

    def _start(self, status: str, headers: list[tuple[str, str]], error: Any = None, /) -> Any:
        self.status, self.headers = status, headers

    @property
    def progress(self) -> str:
        """How far it is."""
        since_s = time.monotonic() - self.began_s
        read = "It is being made"
        if self.runs:
            read = f"{self.done} of {self.runs} runs are read"
        if 0 < self.runs <= self.done:
            read = f"{self.runs} runs are read, and are being summarised"
        return f"{read}, for {since_s:.0f} s so far."


_making: ContextVar[_Page | None] = ContextVar("making", default=None)


def show(done: int, runs: int) -> None:
    """Records how many of the runs that a page needs were read (Queries.show)."""
    if (page := _making.get()) is not None:
        page.done, page.runs = done, runs


class Late:
    """A WSGI application in front of another.

    Args:
        app: the site.
        within_s: how long a page may take that comes at once.
    """

    def __init__(self, app: WSGIApplication, within_s: float = WITHIN_S) -> None:
        self._app = app
        self.within_s = within_s
        self._pages: dict[tuple[str, ...], _Page] = {}
        self._lock = threading.Lock()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answers a request."""
        page = self._page(environ) if _is_page(environ) else None
        if page is None:
            return self._app(environ, start_response)
        if not page.ended.wait(self.within_s):
            start_response("202 Accepted", list(_HEADERS))
            return [_PAGE.format(escape(page.progress)).encode()]
        with self._lock:
            self._pages = {key: other for key, other in self._pages.items() if other is not page}
        if page.error is not None:
            raise page.error
        start_response(page.status, page.headers)
        return [page.body]

    def _page(self, environ: WSGIEnvironment) -> _Page | None:
        """The page, whose making begins with its first request; None where too many are made."""
        key = tuple(str(environ.get(name, "")) for name in _KEY)
        with self._lock:
            now_s = time.monotonic()
            self._pages = {
                other: page
                for other, page in self._pages.items()
                if page.ended_s is None or now_s - page.ended_s < KEPT_S
            }
            if key in self._pages:
                return self._pages[key]
            if len(self._pages) >= MOST:
                return None
            page = self._pages[key] = _Page()
        threading.Thread(target=page.make, args=(self._app, environ), name="page", daemon=True).start()
        return page


def _is_page(environ: WSGIEnvironment) -> bool:
    """Whether a browser will show the answer as a page. Files have a suffix, and what the API sends may have no end."""
    wants: Sequence[str] = (environ.get("HTTP_SEC_FETCH_MODE", ""), environ.get("HTTP_SEC_FETCH_DEST", ""))
    path = str(environ.get("PATH_INFO", ""))
    is_page = "." not in path.rpartition("/")[2] and not path.startswith("/api/")
    return environ["REQUEST_METHOD"] == "GET" and tuple(wants) == ("navigate", "document") and is_page
