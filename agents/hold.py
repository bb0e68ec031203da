"""Who holds a node: one campaign at a time, for as long as it shows that it lives."""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agents.errors import AgentError

LONGEST_S = 600.0


class Hold:
    """A lock with a lease.

    Args:
        file: says who holds the node, for others on it (Ansible's roles).
        let_go: called when a holder lets go or its lease ran out; ends what it had started.
    """

    def __init__(self, file: Path, let_go: Callable[[], object]) -> None:
        self._file = file
        self._let_go = let_go
        self._lock = threading.Lock()
        self._token = ""
        self._until = 0.0
        self._lease_s = 0.0
        self.holder = ""
        file.unlink(missing_ok=True)

    def take(self, holder: str, lease_s: float) -> dict[str, Any]:
        """Makes the node the holder's; a holder that comes again finds nothing of what it had started.

        Raises:
            AgentError: another holds it.
        """
        if not holder or not 0 < lease_s <= LONGEST_S:
            raise AgentError(f"a lock needs a holder and a lease of at most {LONGEST_S:g} s", 400)
        with self._lock:
            # Its own connection was lost, and it is back.
            returns = bool(self._token) and holder == self.holder
            if self._token and not returns:
                raise AgentError(self._sentence(), 409)
        if returns:
            self._let_go()
        with self._lock:
            self.holder, self._token, self._lease_s = holder, secrets.token_hex(16), lease_s
            self._until = time.monotonic() + lease_s
            self._file.write_text(holder + "\n")
            self._file.chmod(0o644)
            threading.Thread(target=self._watch, args=(self._token,), name="lease", daemon=True).start()
            return {"token": self._token}

    def release(self) -> dict[str, Any]:
        """Nobody's again, and empty: nobody is let pass before that."""
        with self._lock:
            self._clear()
            self._let_go()
        return {"released": True}

    def check(self, token: str, needed: bool) -> None:
        """Lets the holder pass and renews its lease.

        Raises:
            AgentError: another holds the node, or the lease of this one ran out.
        """
        with self._lock:
            if self._token and hmac.compare_digest(token, self._token):
                self._until = time.monotonic() + self._lease_s
            elif needed and self._token:
                raise AgentError(self._sentence(), 409)
            elif needed and token:
                raise AgentError("the lock on this node has run out: its controller was silent for too long", 409)

    def _sentence(self) -> str:
        return f"this node is held by {self.holder} (wait for its end, or end it)"

    def _clear(self) -> None:
        self.holder = self._token = ""
        self._file.unlink(missing_ok=True)

    def _watch(self, token: str) -> None:
        while True:
            with self._lock:
                if self._token != token:
                    return
                left_s = self._until - time.monotonic()
                if left_s <= 0:
                    self._clear()
                    break
            time.sleep(min(left_s, 1.0))
        self._let_go()
