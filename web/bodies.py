"""What the site reads of a request before it knows what is in it: bounds on bodies while they arrive.

waitress keeps the body of a request in memory and on disk before the application sees anything of it. So the size is
looked at when the headers are there, and the token too.
"""

from __future__ import annotations

import copy
import threading
import weakref
from typing import Any

from flask import Flask
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser
from werkzeug.exceptions import HTTPException

from web import security
from web.import_queue import MOST_BODY

#: Bytes of all bodies that arrive at the same time.
MOST_TOGETHER = 2 * MOST_BODY
#: Connections at a time; further ones wait.
MOST_CONNECTIONS = 200


class Bodies:
    """The bodies that arrive now, of all connections of a site."""

    def __init__(self, app: Flask, most_together: int = MOST_TOGETHER) -> None:
        self._app = app
        self._left = most_together
        self._lock = threading.Lock()

    def admits(self, parser: HTTPRequestParser) -> int:
        """Bytes that a request's body may have. Room for a long one is taken, and freed with the parser."""
        small: int = self._app.config["MAX_CONTENT_LENGTH"]
        length: int = parser.content_length
        # A body in chunks has no length to reserve room for.
        if length <= small or parser.chunked or not self._may_upload(parser):
            return small
        with self._lock:
            if length > min(self._left, MOST_BODY):
                return small
            self._left -= length
        weakref.finalize(parser, self._free, length)
        return length

    def _free(self, length: int) -> None:
        with self._lock:
            self._left += length

    def _may_upload(self, parser: HTTPRequestParser) -> bool:
        headers = {name.replace("_", "-"): value for name, value in parser.headers.items()}
        try:
            with self._app.test_request_context(parser.path, method=parser.command, headers=headers):
                return security.may_upload()
        except (HTTPException, ValueError):
            return False


def channels(bodies: Bodies) -> Any:
    """The class of a server's connections, whose bodies have these bounds."""

    class Parser(HTTPRequestParser):  # type: ignore[misc]
        def parse_header(self, header_plus: bytes) -> None:
            super().parse_header(header_plus)
            if self.chunked and "CONTENT_LENGTH" in self.headers:
                # A proxy may have believed the length, and taken what follows for another request (RFC 9112 6.1).
                self.headers["CONNECTION"] = "close"
            # waitress refuses what has as many bytes as this.
            self.adj: Any = copy.copy(self.adj)
            self.adj.max_request_body_size = bodies.admits(self) + 1

    class Channel(HTTPChannel):  # type: ignore[misc]
        parser_class = Parser

    return Channel
