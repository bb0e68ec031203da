"""Emulated links for Mininet: TAP interfaces in the two nodes, served by the node binary's emulator.

    from mininet.net import Mininet
    from testbed.mininet_links import ModemLink

    net = Mininet()
    a, b = net.addHost("a"), net.addHost("b")
    net.addLink(a, b, cls=ModemLink, profile="dialup-28.8")

`docs/mininet-links.md` shows a whole script. One emulator process serves all links of a Python process and ends with
it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from mininet.link import Intf, Link

from testbed import node_binary
from testbed.documents import DocumentError
from testbed.emulator_process import Emulator, LinkEnd
from testbed.errors import TestbedError, unknown
from testbed.scenario import LinkSpec


class TapIntf(Intf):  # type: ignore[misc]
    """An interface that the emulator owns, so that `ip link del` does not apply."""

    def delete(self) -> None:
        """Forgets the interface; its link removes it."""
        self.node.delIntf(self)


class EmulatedLink(Link):  # type: ignore[misc]
    """A Mininet link between two TAP interfaces.

    Args:
        spec: the link's parameters, as a type or as the scenario's JSON (`LinkSpec` of `backchannel-node
            registry`); its `ends` are ignored. `experiments.mininet_link.Line` takes friendlier words.
        emulator: that serves it; by default the process's shared one.
        seed: of its random streams.
        others: as in mininet.link.Link.

    Raises:
        TestbedError: the parameters are invalid.
    """

    def __init__(
        self,
        node1: Any,
        node2: Any,
        spec: LinkSpec | Mapping[str, Any],
        emulator: Emulator | None = None,
        seed: int = 0,
        **others: Any,
    ) -> None:
        self.spec = spec if isinstance(spec, LinkSpec) else _spec(node1, node2, spec)
        #: That serves the link.
        self.emulator = emulator or Emulator.shared()
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
        """Creates both TAP interfaces, each in its node's namespace."""
        if node1 is None or node2 is None:
            raise TestbedError("an emulated link needs fast=True, Mininet's default, to create its ends in their nodes")
        ends = [LinkEnd(node1.pid, intfname1, addr1 or None), LinkEnd(node2.pid, intfname2, addr2 or None)]
        self.emulator.add_link(self.spec.replace(ends=(node1.name, node2.name)), ends, self._seed)
        return intfname1, intfname2

    def configure(self) -> None:
        """Sets the link's parameters again. It is empty and its counters are zero afterwards."""
        ends = (self.intf1.node.name, self.intf2.node.name)
        self.emulator.configure(self.spec.replace(ends=ends), self._seed)

    def delete(self) -> None:
        """Removes the link and its interfaces."""
        self.emulator.remove_link(self.spec.name)
        super().delete()


_numbers = itertools.count(1)


def _spec(node1: Any, node2: Any, spec: Mapping[str, Any]) -> LinkSpec:
    """The parameters as a type.

    Raises:
        TestbedError: a field is missing, unknown or has a wrong value.
    """
    name = f"link{next(_numbers)}-{node1.name}-{node2.name}"
    try:
        return LinkSpec.read({"name": name, "kind": "point-to-point", **spec, "ends": ()})
    except DocumentError as error:
        raise TestbedError(f"the link {node1.name}-{node2.name} has an invalid spec: {error}") from None


class ModemLink(EmulatedLink):
    """A link by profile (`./backchannel list profiles` prints them), for Mininet scripts.

    The profile's forward direction runs from node1 to node2.

    Raises:
        TestbedError: unknown profile.
    """

    def __init__(self, node1: Any, node2: Any, profile: str = "dialup-28.8", **others: Any) -> None:
        profiles = {entry["name"]: entry for entry in node_binary.registry()["profiles"]}
        if profile not in profiles:
            raise TestbedError(unknown("link profile", profile, sorted(profiles)))
        known = {key: value for key, value in profiles[profile]["spec"].items() if key != "name"}
        super().__init__(node1, node2, spec=known, **others)
