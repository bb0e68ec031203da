"""A server of agents.rpc that answers in a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from agents.rpc import Server


@contextmanager
def serving(server: Server) -> Iterator[None]:
    """Answers until the block ends, and closes the server."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
