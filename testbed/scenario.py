"""The scenario: one parameter combination of a campaign, as the node binary takes it (JSON, SI units).

Its types are made from Rust's (testbed/node_types.py). Here are the fields that only Python has, and look-ups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar, get_args

from testbed import node_types
from testbed.documents import Document as Document, DocumentError, Model
from testbed.errors import TestbedError
from testbed.node_types import (
    Capture as Capture,
    Change as Change,
    CommandSpec as CommandSpec,
    Counters as Counters,
    DirectionSpec as DirectionSpec,
    Flow as Flow,
    MiddleboxSpec as MiddleboxSpec,
    Named as Named,
    Node as Node,
    NodeKind as NodeKind,
    OutputMetric as OutputMetric,
    RouteSpec as RouteSpec,
    ServerSpec as ServerSpec,
    Variation as Variation,
)

#: A direction of a link: `forward` runs from its first end, `reverse` from every other.
Direction = Literal["forward", "reverse"]
#: Options of a mechanism, by the names and in the units of its registry entry.
Options = Mapping[str, Any]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)


class LinkSpec(node_types.LinkSpec):
    """A link between two nodes, or a shared medium between more."""

    def direction(self, way: Direction) -> DirectionSpec:
        """One direction."""
        return self.forward if way == "forward" else self.reverse

    def directions(self) -> Iterator[tuple[Direction, DirectionSpec]]:
        """Both directions, forward first."""
        for way in DIRECTIONS:
            yield way, self.direction(way)

    @property
    def one_way(self) -> bool:
        """Whether packets pass only from the first end to the second."""
        return bool(self.options.get("one_way"))


class Limits(Model):
    """How far a run on real packets, and its links in calibration, may deviate from what is declared.

    Only lateness has limits. A lost packet always makes a run invalid.
    """

    #: Rate of a busy direction against the declared rate, as a share of it; in calibration too.
    rate: float = 0.005
    #: Delay of a link in calibration against the declared delay.
    delay_s: float = 0.001
    #: 99th percentile of how late packets leave a link, or of how late a research-stack endpoint handles events.
    lateness_p99_s: float = 0.002
    #: Longest time during which the emulator, or such an endpoint, did not run.
    stall_s: float = 0.05
    #: Sum of these times over the run's duration.
    stalled_share: float = 0.01


#: Fields of a scenario that the node binary never sees.
PYTHON_ONLY = frozenset({"crates", "fidelity", "kernel"})


class CrateUsed(Model):
    """A crate outside the repository whose mechanisms a scenario has."""

    name: str
    version: str
    #: Digest of its sources (testbed.own_crates).
    sha256: str


def lacking(crates: Iterable[CrateUsed], digests: Mapping[str, str]) -> str | None:
    """Why a node cannot run a scenario with these crates; None if it can.

    Args:
        crates: that the scenario needs.
        digests: of the crates that the node has, by name.
    """
    for crate in crates:
        has = digests.get(crate.name)
        if has is None:
            return f"the node binary has no crate '{crate.name}'"
        if has != crate.sha256:
            return (
                f"the node binary has another version of the crate '{crate.name}' ({has[:12]}) than is asked for "
                f"({crate.sha256[:12]})"
            )
    return None


class Scenario(node_types.Scenario):
    """One run's input."""

    links: tuple[LinkSpec, ...]
    #: What makes a run invalid.
    fidelity: Limits = Limits()
    #: Crates of the user's that it needs.
    crates: tuple[CrateUsed, ...] = ()
    #: The kernel in virtual time (testbed.virtual_kernel.kernels.name).
    kernel: str | None = None

    def for_node(self) -> dict[str, Any]:
        """The JSON that the node binary takes."""
        return {name: value for name, value in self.as_json().items() if name not in PYTHON_ONLY}

    @property
    def uses_ipv6(self) -> bool:
        """Whether any flow does."""
        return any(flow.ip == 6 for flow in self.workload)

    def node(self, name: str) -> Node:
        """The node of that name.

        Raises:
            TestbedError: there is none.
        """
        return _find("node", self._nodes, name)

    def link(self, name: str) -> LinkSpec:
        """The link of that name.

        Raises:
            TestbedError: there is none.
        """
        return _find("link", self._links, name)

    def flow(self, name: str) -> Flow:
        """The flow of that name.

        Raises:
            TestbedError: there is none.
        """
        return _find("flow", self._flows, name)

    def direction(self, link: str, way: Direction) -> DirectionSpec:
        """One direction of the link of that name.

        Raises:
            TestbedError: unknown link.
        """
        return self.link(link).direction(way)

    @cached_property
    def _nodes(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def _links(self) -> dict[str, LinkSpec]:
        return {link.name: link for link in self.links}

    @cached_property
    def _flows(self) -> dict[str, Flow]:
        return {flow.name: flow for flow in self.workload}


@dataclass(frozen=True)
class ScenarioDocument:
    """A scenario as JSON, which is typed when it is first asked for: a plan or a store has thousands."""

    document: Document

    @cached_property
    def scenario(self) -> Scenario:
        """The scenario, without null and unknown fields of its top level, which older versions wrote.

        Raises:
            TestbedError: it is none.
        """
        fields = {name: self.document[name] for name in Scenario.field_names() if self.document.get(name) is not None}
        # Imports recorded the names of files there.
        if "snaplen" not in fields.get("capture", {}):
            fields.pop("capture", None)
        try:
            return Scenario.read(fields)
        except DocumentError as error:
            raise TestbedError(f"a scenario cannot be read: {error}") from None

    def free(self) -> None:
        """Frees the typed scenario. It is made again when it is asked for."""
        vars(self).pop("scenario", None)


T = TypeVar("T")


def _find(kind: str, items: Mapping[str, T], name: str) -> T:
    try:
        return items[name]
    except KeyError:
        existing = ", ".join(items) or "none"
        raise TestbedError(f"the scenario has no {kind} '{name}'; it has: {existing}") from None


def of_flow(stack: Named, flow: Flow) -> Named:
    """The stack of a flow at a host: the host's with the flow's options, or another with those alone."""
    options = {key: value for key, value in flow.stack.items() if key != "name"}
    name = str(flow.stack.get("name", stack.name))
    return Named(name=name, options=options if name != stack.name else {**stack.options, **options})
