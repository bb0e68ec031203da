"""The emulator of a link box: the agent's side of `backchannel-node emulate` (docs/emulator-protocol.md).

A host emulates only links that its administrator granted, each on the interfaces that the grant lists.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from agents.errors import AgentError

ANSWER_S = 20.0
TELEMETRY = "links.jsonl"


class Links:
    """The emulator of one host, started on first use.

    Args:
        node_binary: path of backchannel-node.
        folder: the agent's.
        granted: link to its interfaces, in the order of its ends.
        taps: those of the interfaces that are TAPs or TUNs of this host, for an emulator to serve.
    """

    def __init__(
        self, node_binary: str, folder: Path, granted: Mapping[str, Sequence[str]], taps: Collection[str] = ()
    ) -> None:
        self._node_binary = node_binary
        self._folder = folder
        self._granted = granted
        self._taps = taps
        self._process: subprocess.Popen[bytes] | None = None
        # The emulator gets its parent-death signal when the thread ends that started it, so this thread stays.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="emulator")
        self._created: set[str] = set()

    def configure(self, name: str, spec: object, seed: int, macs: Sequence[str]) -> None:
        """Sets a link's parameters; the first time, creates it on its interfaces.

        Args:
            name: of the link.
            spec: the link, as in the scenario's JSON; passed on to the emulator.
            seed: of its random streams.
            macs: of the stations behind its interfaces; needed where there are more than two.

        Raises:
            AgentError: it was not granted, or the emulator rejected it.
        """
        if name not in self._granted:
            granted = ", ".join(sorted(self._granted)) or "none"
            raise AgentError(f"this host may not emulate link '{name}'; granted are: {granted} (run site.yml)", 403)
        if name in self._created and self._alive():
            self._ask({"op": "configure", "name": name, "spec": spec, "seed": seed})
            return
        ends = [self._end(interface) for interface in self._granted[name]]
        for end, mac in zip(ends, macs, strict=False):
            end["mac"] = mac
        self._ask({"op": "add_link", "name": name, "spec": spec, "seed": seed, "ends": ends})
        self._created.add(name)

    def start(self, at_monotonic_ns: int) -> None:
        """Starts a run's timeline at an instant of this host's CLOCK_MONOTONIC."""
        telemetry = str(self._folder / TELEMETRY)
        self._ask({"op": "start", "at_monotonic_ns": at_monotonic_ns, "telemetry": telemetry})

    def stop(self) -> object:
        """Ends the timeline; the emulator's report as parsed JSON."""
        return self._ask({"op": "stop"})["report"]

    def close(self) -> None:
        """Ends the emulator; the interfaces are as before."""
        process, self._process = self._process, None
        self._created = set()
        if process is not None:
            process.kill()
            process.wait()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._thread.submit(self._ask_here, request).result()

    def _ask_here(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["op"] == "add_link":
            self._start()
        process = self._process
        if process is None:
            raise AgentError("no link is emulated here", 409)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            readable, _, _ = select.select([process.stdout], [], [], ANSWER_S)
            line = process.stdout.readline() if readable else b""
        except OSError:
            line = b""
        if not line:
            self.close()
            log = (self._folder / "emulator.log").read_text(errors="replace").strip().splitlines()
            raise AgentError(
                f"the emulator has ended: {log[-1].removeprefix('error: ') if log else 'without a message'}"
            )
        answer = dict(json.loads(line))
        if not answer.pop("ok", False):
            raise AgentError(str(answer.get("error", "the emulator rejected the request without a reason")), 400)
        return answer

    def _end(self, interface: str) -> dict[str, Any]:
        """A TAP is served from its other side. Every other interface is attached to, the TUN of another program too."""
        return {"ifname": interface} if interface in self._taps else {"ifname": interface, "attach": True}

    def _alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _start(self) -> None:
        if self._alive():
            return
        self.close()
        with (self._folder / "emulator.log").open("wb") as log:
            self._process = subprocess.Popen(
                [self._node_binary, "emulate", "--parent", str(os.getpid())],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, bufsize=0,
            )  # fmt: skip
