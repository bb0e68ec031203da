"""The lock on a node: one controller at a time, for as long as it keeps sending requests."""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path

from agents.errors import AgentError

LONGEST_S = 600.0


class Lease:
    """A lock that expires.

    Args:
        file: names the holder, for others on the node (Ansible's roles).
        on_release: called when the holder releases the node or the lease expires; ends what the holder started.
    """

    def __init__(self, file: Path, on_release: Callable[[], object]) -> None:
        self._file = file
        self._on_release = on_release
        self._lock = threading.Lock()
        self._token = ""
        self._until = 0.0
        self._lease_s = 0.0
        self.holder = ""
        file.unlink(missing_ok=True)

    def take(self, holder: str, lease_s: float) -> str:
        """Locks the node for a holder, and ends what it had started before. Returns its token.

        Raises:
            AgentError: someone else holds it.
        """
        if not holder or not 0 < lease_s <= LONGEST_S:
            raise AgentError(f"a lock needs a holder and a lease of at most {LONGEST_S:g} s")
        with self._lock:
            # The holder lost its connection and is back.
            returns = bool(self._token) and holder == self.holder
            if self._token and not returns:
                raise AgentError(self._refusal())
            if returns:
                self._on_release()
            self.holder, self._token, self._lease_s = holder, secrets.token_hex(16), lease_s
            self._until = time.monotonic() + lease_s
            self._file.write_text(holder + "\n")
            self._file.chmod(0o644)
            threading.Thread(target=self._watch, args=(self._token,), name="lease", daemon=True).start()
            return self._token

    def release(self) -> None:
        """Unlocks the node; requests wait until everything on it has ended."""
        with self._lock:
            self._clear()
            self._on_release()

    def check(self, token: str, needed: bool) -> None:
        """Admits the holder's request and renews the lease.

        Raises:
            AgentError: someone else holds the node, or the lease has expired.
        """
        with self._lock:
            if self._token and hmac.compare_digest(token.encode(errors="replace"), self._token.encode()):
                self._until = time.monotonic() + self._lease_s
            elif needed and self._token:
                raise AgentError(self._refusal())
            elif needed and token:
                raise AgentError("the lock on this node has expired: its controller was silent for too long")

    def _refusal(self) -> str:
        return f"this node is held by {self.holder} (wait until that ends, or end it)"

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
                    # Before anybody else gets the node: this ends everything on it.
                    self._on_release()
                    return
            time.sleep(min(left_s, 1.0))
