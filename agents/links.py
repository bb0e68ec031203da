"""The emulator of a link box: the agent's side of `backchannel-node emulate` (docs/emulator-protocol.md).

A host emulates only links that its administrator granted, each on the interfaces that the grant lists.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from agents.errors import AgentError
from agents.rpc import ChildProcess

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
        self._process: ChildProcess | None = None
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
            raise AgentError(f"this host may not emulate link '{name}'; granted are: {granted} (run site.yml)")
        if name in self._created and self._process is not None and self._process.is_running:
            self._ask("configure", name=name, spec=spec, seed=seed)
            return
        ends = [self._end(interface) for interface in self._granted[name]]
        for end, mac in zip(ends, macs, strict=False):
            end["mac"] = mac
        self._start()
        self._ask("add_link", name=name, spec=spec, seed=seed, ends=ends)
        self._created.add(name)

    def start(self, at_monotonic_ns: int) -> None:
        """Starts a run's timeline at an instant of this host's CLOCK_MONOTONIC."""
        self._ask("start", at_monotonic_ns=at_monotonic_ns, telemetry=str(self._folder / TELEMETRY))

    def stop(self) -> object:
        """Ends the timeline; the emulator's report as parsed JSON."""
        return self._ask("stop")

    def close(self) -> None:
        """Ends the emulator; the interfaces are as before."""
        process, self._process = self._process, None
        self._created = set()
        if process is not None:
            process.kill()

    def _ask(self, op: str, **arguments: Any) -> Any:
        if self._process is None:
            raise AgentError("no link is emulated here")
        return self._process.request(op, arguments, ANSWER_S)

    def _end(self, interface: str) -> dict[str, Any]:
        """A TAP is served from its other side. Every other interface is attached to, the TUN of another program too."""
        return {"ifname": interface} if interface in self._taps else {"ifname": interface, "attach": True}

    def _start(self) -> None:
        if self._process is not None and self._process.is_running:
            return
        self.close()
        command = [self._node_binary, "emulate", "--parent", str(os.getpid())]
        log = self._folder / "emulator.log"
        self._process = self._thread.submit(ChildProcess, "the emulator", command, log, AgentError).result()
