"""Requests and answers as JSON lines over a child's standard input and output, for the emulator and the cell."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed import node_binary
from testbed.errors import TestbedError


class LineProcess:
    """A child process that answers each request line with one line; lines with an "event" key come in between.

    Args:
        name: for messages.
        command: its command line.
        log: file for its standard error.
        on_event: called with each event line, in the thread that waits for the answer.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        on_event: Callable[[dict[str, Any]], None] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._log = log
        self._on_event = on_event
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        with log.open("ab") as stderr:
            # In a new session, because Ctrl-C is for the runner, which then ends its children in order.
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=env,
                start_new_session=True,
            )
        threading.Thread(target=self._read, name=f"{name}-reader", daemon=True).start()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def ask(self, op: str, timeout_s: float = 30.0, **arguments: Any) -> dict[str, Any]:
        """Sends a request and waits for its answer.

        Raises:
            TestbedError: the child rejected the request, has ended, or sent no line for `timeout_s`. In the last case
                its state is unknown, so it is ended.
        """
        assert self._process.stdin is not None
        line = json.dumps({"op": op, **arguments}) + "\n"
        try:
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        except OSError:
            raise TestbedError(self._end_reason()) from None
        while True:
            try:
                answer = self._answers.get(timeout=timeout_s)
            except queue.Empty:
                self.kill()
                raise TestbedError(f"{self.name} sent no answer to '{op}' for {timeout_s:g} s and was ended") from None
            if answer is None:
                raise TestbedError(self._end_reason())
            if "event" in answer:
                if self._on_event:
                    self._on_event(answer)
                continue
            if not answer.get("ok", False):
                raise TestbedError(str(answer.get("error", f"{self.name} rejected '{op}' without a reason")))
            return answer

    def close(self, timeout_s: float = 10.0) -> None:
        """Ends the child's input, which ends the child; kills it if it does not end in time."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            try:
                self._process.stdin.close()
            except OSError:
                pass
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kills the child."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                answer = json.loads(line)
            except ValueError:
                answer = {"ok": False, "error": f"{self.name} sent a line that is not JSON: {line[:200]!r}"}
            self._answers.put(answer)
        self._answers.put(None)

    def _end_reason(self) -> str:
        self._process.wait()
        written = self._log.read_text(errors="replace")
        # The log goes on from request to request: only its end says why the child has ended.
        *_, last = ["", *written.strip().splitlines()]
        why = node_binary.panic(written) or last.removeprefix("error: ")
        return f"{self.name} has ended: {why or f'status {self._process.returncode}'}"
