"""An S3 server on loopback (moto) that fails, stalls or lies about sizes when it is told to."""

from __future__ import annotations

import re
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

#: As WSGI has it: the environment of a request, and the function that takes status and headers of its answer.
Request = dict[str, Any]
StartResponse = Callable[..., Any]

BUCKET = "lab"
UNAVAILABLE = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>ServiceUnavailable</Code>'
    b"<Message>Please try again later</Message></Error>"
)
#: How long a stalled request is held at most, in s.
HELD_S = 60.0


class FaultyStore:
    """The application between a client and moto.

    Attributes:
        url: of the server, for clients.
    """

    def __init__(self) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)
        self.url = ""
        self._fault, self._methods, self._after = "", frozenset[str](), 0
        self._healed = threading.Event()
        self._lock = threading.Lock()

    def break_down(self, fault: str, *methods: str, after: int = 0) -> None:
        """From now on requests with these methods meet a fault.

        Args:
            fault: `fails` (503), `stalls`, or `lies`: a file's HEAD and the list of files have one byte too many, a GET
                gives one byte less.
            methods: of HTTP.
            after: so many of them are still served.
        """
        with self._lock:
            self._fault, self._methods, self._after = fault, frozenset(methods), after
            self._healed.clear()

    def heal(self) -> None:
        """From now on all requests are served; those that stall end."""
        with self._lock:
            self._fault = ""
            self._healed.set()

    def _fault_of(self, method: str) -> str:
        with self._lock:
            if not self._fault or method not in self._methods:
                return ""
            self._after -= 1
            return self._fault if self._after < 0 else ""

    def __call__(self, request: Request, start_response: StartResponse) -> Iterable[bytes]:
        method = str(request["REQUEST_METHOD"])
        fault = self._fault_of(method)
        if fault == "stalls":
            self._healed.wait(HELD_S)
        if fault == "fails":
            # What is not read would be taken for the next request.
            request["wsgi.input"].read(int(request.get("CONTENT_LENGTH") or 0))
            start_response("503 Service Unavailable", [("Content-Type", "application/xml")])
            return [b"" if method == "HEAD" else UNAVAILABLE]
        if fault == "lies":
            return self._lie(method, request, start_response)
        return self._moto(request, start_response)  # type: ignore[no-any-return]

    def _lie(self, method: str, request: Request, start_response: StartResponse) -> Iterable[bytes]:
        head: list[Any] = []
        body = b"".join(self._moto(request, lambda *answer: head.extend(answer)))
        status, headers = head[0], dict(head[1])
        if method == "HEAD" and "Content-Length" in headers:
            headers["Content-Length"] = str(int(headers["Content-Length"]) + 1)
        elif method == "GET" and status.startswith("20"):
            is_list = body.startswith(b"<?xml")
            body = (
                re.sub(rb"<Size>(\d+)<", lambda size: b"<Size>%d<" % (int(size[1]) + 1), body) if is_list else body[:-1]
            )
            headers["Content-Length"] = str(len(body))
        start_response(status, list(headers.items()))
        return [body]


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *words: object) -> None:
        """Requests are not logged."""


def client_settings(url: str) -> dict[str, str]:
    """The environment of a client (s3fs) of this server. It tries each request once, so that a fault shows."""
    return {
        "AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_MAX_ATTEMPTS": "1",
    }  # fmt: skip


@contextmanager
def object_store() -> Iterator[FaultyStore]:
    """A running server with an empty bucket."""
    store = FaultyStore()
    server = make_server("127.0.0.1", 0, store, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    store.url = f"http://127.0.0.1:{server.server_port}"
    try:
        urllib.request.urlopen(urllib.request.Request(f"{store.url}/{BUCKET}", method="PUT")).read()
        yield store
    finally:
        store.heal()
        server.shutdown()
        thread.join()
        server.server_close()
