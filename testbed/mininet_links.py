"""Emulated links for Mininet: TAP ends in the two nodes, served by the node binary's emulator.

    from mininet.net import Mininet
    from testbed.mininet_links import ModemLink

    net = Mininet()
    a, b = net.addHost("a"), net.addHost("b")
    net.addLink(a, b, cls=ModemLink, profile="dialup-28.8")

`docs/mininet-links.md` shows a whole script. One emulator process serves all links of a process and dies with it.
"""

from __future__ import annotations

import atexit
import itertools
import os
import tempfile
from pathlib import Path
from typing import Any

from mininet.link import Intf, Link

from testbed import node_binary
from testbed.errors import TestbedError
from testbed.json_lines import LineProcess


class Emulator:
    """The process that serves emulated links (protocol: docs/emulator-protocol.md)."""

    _shared: Emulator | None = None

    def __init__(self, log: Path) -> None:
        words = [node_binary.path(), "emulate", "--parent", str(os.getpid())]
        self._process = LineProcess("the emulator", words, log)

    @classmethod
    def shared(cls) -> Emulator:
        """The emulator of this Python process, started when first needed."""
        if cls._shared is None:
            folder = tempfile.mkdtemp(prefix="backchannel-")
            cls._shared = cls(Path(folder) / "emulator.log")
            atexit.register(cls._shared.close)
        return cls._shared

    @property
    def pid(self) -> int:
        """The process that serves the links."""
        return self._process.pid

    def add_link(self, spec: dict[str, Any], ends: list[dict[str, Any]], seed: int = 0) -> None:
        """Creates a link between TAPs in the network namespaces of two processes; it carries packets at once.

        Args:
            spec: a link as the scenario has it (testbed/core/src/scenario.rs, LinkSpec).
            ends: per end {"pid", "ifname", "mac" (optional)}.
            seed: of its random streams.
        """
        self._process.ask("add_link", name=spec["name"], spec=spec, seed=seed, ends=ends)

    def remove_link(self, name: str) -> None:
        """Takes a link and its two interfaces away."""
        self._process.ask("remove_link", name=name)

    def configure(self, spec: dict[str, Any], seed: int) -> None:
        """Gives a link new parameters and policies; what it held is gone, its counters are zero."""
        self._process.ask("configure", name=spec["name"], spec=spec, seed=seed)

    def start(self, telemetry: Path | None = None, lead_s: float = 0.0) -> int:
        """Begins a run's timeline `lead_s` from now; returns CLOCK_MONOTONIC at its zero, in nanoseconds."""
        answer = self._process.ask("start", telemetry=None if telemetry is None else str(telemetry), lead_s=lead_s)
        return int(answer["t0_monotonic_ns"])

    def stop(self) -> dict[str, Any]:
        """Ends the run's timeline; returns the fidelity report."""
        return dict(self._process.ask("stop")["report"])

    def close(self) -> None:
        """Ends the process; every interface it made vanishes."""
        self._process.close()
        if Emulator._shared is self:
            Emulator._shared = None


class TapIntf(Intf):  # type: ignore[misc]
    """An interface that the emulator owns: it goes with its link, not by `ip link del`."""

    def delete(self) -> None:
        """The link takes it away."""
        self.node.delIntf(self)


class EmulatedLink(Link):  # type: ignore[misc]
    """A Mininet link between two TAPs.

    Args:
        spec: the link's parameters as a scenario's LinkSpec; its `ends` are ignored.
        emulator: who serves it; by default the process's shared one.
        seed: of its random streams.
        Everything else as in mininet.link.Link.
    """

    def __init__(
        self,
        node1: Any,
        node2: Any,
        spec: dict[str, Any],
        emulator: Emulator | None = None,
        seed: int = 0,
        **others: Any,
    ) -> None:
        self.spec = spec
        self._emulator = emulator or Emulator.shared()
        self._seed = seed
        others.setdefault("intf", TapIntf)
        super().__init__(node1, node2, **others)

    def makeIntfPair(  # noqa: N802 (Mininet's name)
        self,
        intfname1: str,
        intfname2: str,
        addr1: str | None = None,
        addr2: str | None = None,
        node1: Any = None,
        node2: Any = None,
        deleteIntfs: bool = True,  # noqa: N803 (Mininet's name)
    ) -> tuple[str, str]:
        """Has the emulator make the two TAPs, each in its node's namespace."""
        if node1 is None or node2 is None:
            raise TestbedError("an emulated link needs fast=True, Mininet's default: its ends are born in their nodes")
        ends = []
        for node, name, mac in ((node1, intfname1, addr1), (node2, intfname2, addr2)):
            end = {"pid": node.pid, "ifname": name}
            if mac:
                end["mac"] = mac
            ends.append(end)
        spec = {**self.spec, "ends": [node1.name, node2.name]}
        self._emulator.add_link(spec, ends, self._seed)
        return intfname1, intfname2

    def delete(self) -> None:
        """Takes the link and its interfaces away."""
        self._emulator.remove_link(self.spec["name"])
        super().delete()


class ModemLink(EmulatedLink):
    """A link by profile (`./backchannel list links` names them), for a person's own Mininet script.

    The profile's forward direction runs from node1 to node2.

    Raises:
        TestbedError: there is no such profile.
    """

    _numbers = itertools.count(1)

    def __init__(self, node1: Any, node2: Any, profile: str = "dialup-28.8", **others: Any) -> None:
        profiles = {entry["name"]: entry for entry in node_binary.call("registry")["profiles"]}
        if profile not in profiles:
            raise TestbedError(f"there is no link profile '{profile}'; there are: {', '.join(sorted(profiles))}")
        spec = {**profiles[profile]["spec"], "name": f"link{next(self._numbers)}-{node1.name}-{node2.name}"}
        super().__init__(node1, node2, spec=spec, **others)
