"""Checks that need several fields of a campaign: network, stacks, flows and captures."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from analysis import exchange_kinds
from experiments.language import registry, topologies
from experiments.language.backends import REAL_PACKETS, Backend
from experiments.language.measures import chain_problem
from experiments.language.mechanisms import Stack
from experiments.language.routes import planned
from experiments.language.schema import Campaign
from experiments.language.yaml_text import FieldPath
from testbed import capability, kernel_links, kernel_tcp, node_binary
from testbed.addressing import Graph, make_plan, one_way_links, route_problem
from testbed.errors import TestbedError
from testbed.kernel_tcp import is_kernel_stack
from testbed.scenario import DirectionSpec, LinkSpec, Named, Node, NodeKind
from testbed.virtual_kernel import kernels

#: Flows of a run. The simulator gives each a port of its client from 40,000 on, and ports end at 65,535.
MOST_FLOWS = 25_000
#: Name of the links' telemetry. The telemetry of a flow has the name of the flow.
LINKS = "links"

#: Characters of JSON in one question to the node binary, beyond which it is asked.
MOST_ASKED = 1_000_000

#: A field and its problem.
Finding = tuple[FieldPath, str]
Nodes = Sequence[Node]
Links = Sequence[LinkSpec]


@dataclass(frozen=True)
class Built:
    """The network of a campaign, and what is wrong with it as a graph."""

    nodes: Nodes
    links: Links
    problems: Sequence[Finding]


def problems(campaigns: Sequence[Campaign]) -> Iterator[list[Finding]]:
    """All problems of each campaign. The fields of the campaigns are valid one by one.

    The node binary is asked about the links and stacks of many of them at once.
    """
    built = [_build(campaign) for campaign in campaigns]
    refusals = _Refusals()
    for campaign, network in zip(campaigns, built, strict=True):
        if not network.problems:
            refusals.ask(_ours(network.links))
            refusals.ask([stack.as_scenario() for _, stack in _stacks(campaign) if not is_kernel_stack(stack.name)])
    refusals.flush()
    for campaign, network in zip(campaigns, built, strict=True):
        yield list(network.problems or _of_campaign(campaign, network, refusals))


def _build(campaign: Campaign) -> Built:
    network = campaign.network
    if network.rtt is not None and network.rtt[0] < 2 * topologies.near_half_s(network):
        least_ms = 2000 * topologies.near_half_s(network)
        message = f"must be at least {least_ms:g} ms, the delay of the link and of the clients' access links"
        return Built((), (), [(("network", "rtt"), message)])
    nodes, links = topologies.build(network, campaign.workload, random.Random(0))
    problems = list(_of_graph(nodes, links))
    if not problems:
        shape_of_nodes = tuple((node.name, node.kind) for node in nodes)
        shape_of_links = tuple((link.name, link.ends, link.one_way) for link in links)
        reason = _plan_problem(shape_of_nodes, shape_of_links)
        problems = [] if reason is None else [(("network",), reason)]
        if not problems and any(node.routes for node in nodes):
            problems = list(_of_routes(nodes, links))
    return Built(nodes, links, problems)


#: Name and kind of each node; name, ends and whether it is one-way of each link.
NodeShapes = tuple[tuple[str, NodeKind], ...]
LinkShapes = tuple[tuple[str, tuple[str, ...], bool], ...]


@lru_cache(maxsize=64)
def _plan_problem(nodes: NodeShapes, links: LinkShapes) -> str | None:
    """Why a network cannot have addresses and routes; None if it can. They depend on its shape alone."""
    way = DirectionSpec(queue=Named(name="droptail"))
    try:
        make_plan(
            [Node(name=name, kind=kind) for name, kind in nodes],
            [
                LinkSpec(name=name, kind="", ends=ends, forward=way, reverse=way, options={"one_way": one_way})
                for name, ends, one_way in links
            ],
        )
    except TestbedError as error:
        return str(error)
    return None


#: Links or stacks of a scenario.
Specs = Sequence[LinkSpec] | Sequence[Named]


class _Refusals:
    """Why the node binary cannot build links and stacks. Texts may contain traces, so few are held at once."""

    def __init__(self) -> None:
        self._asked: set[bytes] = set()
        self._waiting: dict[bytes, str] = {}
        self._waiting_length = 0
        self._reasons: dict[bytes, str] = {}

    def ask(self, specs: Specs) -> None:
        """Includes links or stacks in the next question."""
        for text, digest in _digests(specs):
            if digest not in self._asked:
                self._asked.add(digest)
                self._waiting[digest] = text
                self._waiting_length += len(text)
                if self._waiting_length > MOST_ASKED:
                    self.flush()

    def flush(self) -> None:
        """Asks."""
        if self._waiting:
            reasons = node_binary.call("check", stdin=f"[{','.join(self._waiting.values())}]")
            answers = zip(self._waiting, reasons, strict=True)
            self._reasons |= {digest: str(reason) for digest, reason in answers if reason is not None}
            self._waiting, self._waiting_length = {}, 0

    def of(self, specs: Specs) -> str | None:
        """Why the first of these that it cannot build is refused; None if it can build all."""
        if not self._reasons:
            return None
        return next((self._reasons[digest] for _, digest in _digests(specs) if digest in self._reasons), None)


def _digests(specs: Specs) -> Iterator[tuple[str, bytes]]:
    """The JSON of each link or stack, and its digest."""
    for spec in specs:
        text = json.dumps(spec.as_json(), sort_keys=True)
        yield text, hashlib.sha256(text.encode()).digest()


def _ours(links: Links) -> Links:
    """The links that the node binary serves."""
    return [link for link in links if link.kind != kernel_links.KIND]


def _of_campaign(campaign: Campaign, network: Built, refusals: _Refusals) -> Iterator[Finding]:
    nodes, links = network.nodes, network.links
    yield from _of_links(campaign, links, refusals)
    yield from _of_stacks(campaign, refusals)
    yield from _of_stack_pairs(campaign)
    if campaign.warm_up >= campaign.duration:
        yield ("warm_up",), f"must be shorter than the duration, {campaign.duration:g} s"
    yield from _of_members(campaign)
    yield from _of_flows(campaign, topologies.host_names(campaign.network, nodes))
    yield from _of_ip(campaign)
    yield from _of_paths(campaign, nodes, links)
    yield from _of_commands(campaign)
    yield from _of_capture(campaign, links)
    yield from _of_variation(campaign)
    yield from _of_clocks(campaign, links)
    if problem := chain_problem(campaign.measures):
        yield ("measures", problem[0]), problem[1]


def _of_variation(campaign: Campaign) -> Iterator[Finding]:
    spec = campaign.variation
    if spec.processing and campaign.backend.has_real_packets:
        yield ("variation", "processing"), "only simulations have a processing time; real hosts have their own"
    for flow in campaign.workload:
        varied_s = spec.start or 0.0 if flow.start[0] == flow.start[1] else 0.0
        if varied_s and flow.start[0] + varied_s >= (flow.stop or campaign.duration):
            when = "after the run has ended" if flow.stop is None else "after it has stopped"
            yield ("variation", "start"), f"flow {flow.name} may start {when}"
            return


def _of_clocks(campaign: Campaign, links: Links) -> Iterator[Finding]:
    if not campaign.backend.has_real_packets:
        return
    for link in links:
        for way, direction in link.directions():
            if "clock_tick_s" in (direction.options or {}):
                message = f"link '{link.name}' {way}: 'clock_tick' is for the backend sim only"
                yield ("network",), f"{message}; leave it out for real packets (null under 'backends')"


def _of_graph(nodes: Nodes, links: Links) -> Iterator[Finding]:
    """Names that two nodes or links share, and ends that are not nodes."""
    node_names = [node.name for node in nodes]
    for kind, names in (("node", node_names), ("link", [link.name for link in links])):
        seen: set[str] = set()
        for number, name in enumerate(names):
            if name in seen:
                message = f"two {kind}s have the name '{name}'; rename one"
                yield ("network", f"{kind}s", number, "name"), message
            seen.add(name)
    for number, link in enumerate(links):
        for index, end in enumerate(link.ends):
            if end not in node_names:
                yield ("network", "links", number, "ends", index), registry.unknown("node", end, node_names)


def _of_routes(nodes: Nodes, links: Links) -> Iterator[Finding]:
    """Routes that lead nowhere."""
    plan = make_plan([node.replace(routes=()) for node in nodes], links)
    graph = Graph(
        of_node={name: node.interfaces for name, node in plan.nodes.items()},
        of_link=plan.links,
        kinds={name: node.kind for name, node in plan.nodes.items()},
        one_way=one_way_links(links),
    )
    for number, node in enumerate(nodes):
        for place in range(len(node.routes)):
            problem = route_problem(place, node, graph)
            if problem is not None:
                yield ("network", "nodes", number, "routes", place, problem[0]), problem[1]


def _of_paths(campaign: Campaign, nodes: Nodes, links: Links) -> Iterator[Finding]:
    """Flows whose packets, or the answers to them, do not arrive by the routes that nodes declare."""
    if not any(node.routes for node in nodes):
        return
    plan = make_plan(nodes, links)
    for number, flow in enumerate(campaign.workload):
        for start, end in ((flow.from_, flow.to), (flow.to, flow.from_)):
            both_exist = start in plan.nodes and end in plan.nodes
            if both_exist and planned(plan, links, start, end) is None:
                key = "from" if start == flow.from_ else "to"
                yield (
                    ("workload", number, key),
                    f"packets from {start} do not reach {end}, because the nodes' 'routes' send them round in a circle "
                    "or leave them nowhere; check the routes of the nodes between them",
                )
                break


def _of_links(campaign: Campaign, links: Links, refusals: _Refusals) -> Iterator[Finding]:
    for link in links:
        late = [
            change.at_s
            for _, direction in link.directions()
            for change in direction.schedule
            if change.at_s >= campaign.duration
        ]
        if late:
            message = f"link {link.name} changes at {late[0]:g} s, but the run ends at {campaign.duration:g} s"
            yield ("network",), message
    reason = _kernel_link_refusal(links, campaign)
    reason = reason or refusals.of(_ours(links))
    if reason:
        yield ("network",), reason


def _kernel_link_refusal(links: Links, campaign: Campaign) -> str | None:
    able = ", ".join(REAL_PACKETS)
    for link in _ours(links):
        policy = kernel_links.lack(link, frozenset(kernel_links.QUEUES))
        if policy is not None:
            return (
                f"link '{link.name}': {policy} is the kernel's own policy, which {link.kind} does not have; use the "
                f"link kind kernel with one of the backends {able}"
            )
    of_kernel = [link for link in links if link.kind == kernel_links.KIND]
    if of_kernel and not campaign.backend.has_real_packets:
        return f"link '{of_kernel[0].name}' has the kind kernel, which needs one of the backends {able}"
    is_here = campaign.backend.in_cell
    for link in of_kernel:
        if reason := kernel_links.refusal(link, is_here):
            return reason
        kinds = {
            direction.queue.options["kind"] for _, direction in link.directions() if direction.queue.name == "qdisc"
        }
        if campaign.backend.has_own_kernel:
            own = {name for kind, name in kernels.find(campaign.kernel).added if kind == "qdisc"}
            if missing := sorted(kinds - own):
                return f"link '{link.name}': {_lack_of_own(campaign, 'queueing discipline', missing[0], 'sch')}"
        if campaign.backend.has_own_kernel and (policy := kernel_links.lack(link, _lacks(campaign))):
            return f"link '{link.name}': {_lack_of_kernel(campaign, policy, policy)}"
    return None


def _lacks(campaign: Campaign) -> frozenset[str]:
    return kernels.find(campaign.kernel).lacks


def _lack_of_kernel(campaign: Campaign, feature: str, words: str) -> str:
    """That the campaign's kernel lacks a feature, and which series has it."""
    having = next((series.name for series in kernels.SERIES if feature not in series.lacks), None)
    able = f"; 'kernel: \"{having}\"' has" if having else "; 'kernel build --source FOLDER' builds a tree that has"
    name = campaign.kernel if kernels.series(campaign.kernel) is None else f"Linux {campaign.kernel}"
    return f"{name} has no {words}{able}"


def _lack_of_own(campaign: Campaign, what: str, name: str, prefix: str) -> str:
    """That the campaign's kernel lacks something of the user's, and what builds one that has it."""
    return (
        f"the kernel '{campaign.kernel}' has no {what} '{name}': './backchannel kernel build --with {prefix}_{name}.c "
        "--name NAME' builds one that has, and 'kernel: NAME' chooses it"
    )


#: Research stack that is nearest to one of the kernel; `modern` to all others.
_NEAREST = {
    "reno": "newreno",
    "bbr": "modern-bbr1",
    "dctcp": "modern-dctcp",
    "prague": "modern-prague",
    "vegas": "modern-vegas",
}


def nearest_in_simulation(stack: str) -> str:
    """The research stack that is nearest to one of the kernel's; the stack itself if it is none of these."""
    return _NEAREST.get(stack, "modern") if is_kernel_stack(stack) else stack


def _of_stacks(campaign: Campaign, refusals: _Refusals) -> Iterator[Finding]:
    for path, stack in _stacks(campaign):
        backends = registry.find("stack", stack.name).backends
        if backends and campaign.backend not in backends:
            near = nearest_in_simulation(stack.name)
            yield (
                path,
                (
                    f"stack {stack.name} does not run on the {campaign.backend} backend; the nearest there is {near}. "
                    "See ./backchannel list stacks"
                ),
            )
        elif is_kernel_stack(stack.name):
            reason = kernel_tcp.option_problem(stack.options) or _kernel_stack_lack(campaign, stack)
            if reason:
                yield path, reason
        elif reason := refusals.of([stack.as_scenario()]):
            yield path, reason


def _kernel_stack_lack(campaign: Campaign, stack: Stack) -> str | None:
    """What the kernel lacks that runs a stack; None if nothing, or where only the hosts of a lab know it."""
    control = kernel_tcp.congestion_control(stack.name, stack.options)
    if campaign.backend.has_own_kernel and stack.name == kernel_tcp.BY_NAME:
        kernel = kernels.find(campaign.kernel)
        if control not in kernel_tcp.NAMES - kernel.lacks and ("congestion", control) not in kernel.added:
            return _lack_of_own(campaign, "congestion control", control, "tcp")
    if campaign.backend.has_own_kernel and stack.name in _lacks(campaign):
        return _lack_of_kernel(campaign, stack.name, f"congestion control {stack.name}")
    needs_accecn = kernel_tcp.uses_accecn(stack.options)
    if campaign.backend.has_own_kernel and needs_accecn and kernels.ACCECN in _lacks(campaign):
        return _lack_of_kernel(campaign, kernels.ACCECN, f"Accurate ECN ('ecn: {stack.options['ecn']}')")
    if campaign.backend.in_cell:
        lack = kernel_tcp.lack(control)
        if lack is None and needs_accecn and kernel_tcp.lacks_accecn():
            able = f"the backend {Backend.VIRTUAL_KERNEL} has, with Linux {kernels.DEFAULT}"
            lack = f"the kernel of this machine has no Accurate ECN; {able}"
        return lack
    return None


def _stacks(campaign: Campaign) -> Iterator[tuple[FieldPath, Stack]]:
    """The stacks of a campaign with their fields."""
    yield ("stack",), campaign.stack
    for number, node in enumerate(campaign.network.nodes):
        if node.stack is not None:
            yield ("network", "nodes", number, "stack"), node.stack
    for number, flow in enumerate(campaign.workload):
        if flow.stack is not None:
            yield ("workload", number, "stack"), flow.stack


def _of_stack_pairs(campaign: Campaign) -> Iterator[Finding]:
    """Only one of the kernel and the research stack can use a host's address. A dumbbell's flows have hosts of their
    own.
    """
    if campaign.network.topology == "dumbbell":
        return
    node_stacks = {node.name: node.stack for node in campaign.network.nodes}
    for number, flow in enumerate(campaign.workload):
        for end in (flow.from_, flow.to):
            of_host = (node_stacks.get(end) or campaign.stack).name
            if flow.stack is not None and is_kernel_stack(of_host) != is_kernel_stack(flow.stack.name):
                yield (
                    ("workload", number, "stack"),
                    f"stack {flow.stack.name} cannot run beside {of_host} on host {end}, because one is a stack of "
                    "the kernel and the other of Backchannel; use stacks of one kind on a host",
                )
                break


def _of_members(campaign: Campaign) -> Iterator[Finding]:
    members = topologies.members(campaign)
    if len(members) > MOST_FLOWS:
        yield ("workload",), f"the entries make {len(members)} flows; a run has at most {MOST_FLOWS}: lower a 'count'"
    times = Counter(member.name for member in members)
    for member in members:
        if times[member.name] > 1 and member.group is not None:
            yield ("workload", member.entry, "name"), f"two flows have the name '{member.name}'; rename one"
            break


def _of_flows(campaign: Campaign, hosts: Sequence[str]) -> Iterator[Finding]:
    names: set[str] = set()
    for number, flow in enumerate(campaign.workload):
        backends = registry.find("workload", flow.kind).backends
        if backends and campaign.backend not in backends:
            yield (
                ("workload", number, "kind"),
                f"workload {flow.kind} does not run on the {campaign.backend} backend, only on: {', '.join(backends)}",
            )
        yield from _of_application(campaign, number)
        for key, name in (("from", flow.from_), ("to", flow.to)):
            if name not in hosts:
                yield ("workload", number, key), registry.unknown("host", name, hosts)
        if flow.from_ == flow.to:
            yield (
                ("workload", number, "to"),
                f"flow {flow.name} needs two hosts, but goes from '{flow.from_}' to itself",
            )
        if flow.start[1] >= campaign.duration:
            reason = f"flow {flow.name} may start at {flow.start[1]:g} s, but the run ends at {campaign.duration:g} s"
            yield ("workload", number, "start"), reason
        if flow.name in names:
            yield ("workload", number, "name"), f"two flows have the name '{flow.name}'; rename one"
        if flow.name == LINKS:
            reason = f"'{LINKS}' is reserved for the telemetry of the links; choose another name"
            yield ("workload", number, "name"), reason
        names.add(flow.name)


def _of_ip(campaign: Campaign) -> Iterator[Finding]:
    """Flows over IPv6 where there is none, or whose packets have no room for its header."""
    node_stacks = {node.name: node.stack for node in campaign.network.nodes}
    limits = registry.packet_limits()
    for number, flow in enumerate(campaign.workload):
        if (campaign.ip if flow.ip is None else flow.ip) == 4:
            continue
        field: FieldPath = ("ip",) if flow.ip is None else ("workload", number, "ip")
        if campaign.backend.in_cell and not capability.has_ipv6():
            able = ", ".join(backend for backend in Backend if not backend.in_cell)
            yield (
                field,
                f"no IPv6 on the {campaign.backend} backend: the kernel of this machine has no IPv6; use 'ip: 4', or "
                f"one of the backends {able}",
            )
            return
        for end in (flow.from_, flow.to):
            stack = flow.stack or node_stacks.get(end) or campaign.stack
            bytes_ = stack.options.get("packet_bytes")
            if bytes_ is not None and not is_kernel_stack(stack.name) and bytes_ < limits.stack_least[6]:
                yield (
                    field,
                    f"packets of {bytes_:g} B (stack {stack.name}, 'packet') have no room for IPv6's header and data; "
                    f"they need at least {limits.stack_least[6]} B",
                )
                break
        bytes_ = flow.options.get("packet_bytes")
        if bytes_ is not None and bytes_ <= limits.datagram_headers[6]:
            yield (
                ("workload", number, "options", "packet"),
                f"must be more than {limits.datagram_headers[6]} B over IPv6, the headers of IPv6 and UDP",
            )


def _of_application(campaign: Campaign, number: int) -> Iterator[Finding]:
    """What only the programs on real packets lack."""
    flow = campaign.workload[number]
    if not campaign.backend.has_real_packets:
        return
    node_stacks = {node.name: node.stack for node in campaign.network.nodes}
    needs_kernel = flow.kind == "command" or flow.kind in exchange_kinds.datagrams()
    for end in (flow.from_, flow.to):
        stack = (flow.stack or node_stacks.get(end) or campaign.stack).name
        if needs_kernel and not is_kernel_stack(stack):
            kernels = ", ".join(entry.name for entry in registry.of_kind("stack") if is_kernel_stack(entry.name))
            yield (
                ("workload", number, "kind"),
                f"on real packets stack {stack} carries workloads of TCP, not {flow.kind}; use the sim backend, or one "
                f"of the kernel's stacks: {kernels}",
            )
            return
    least_bytes = registry.packet_limits().numbered_least
    if flow.kind == "cbr" and flow.options.get("packet_bytes", least_bytes) < least_bytes:
        yield (
            ("workload", number, "options", "packet"),
            f"must be at least {least_bytes} B on real packets, because their payload "
            "has the packet's number in 8 bytes",
        )


def _of_commands(campaign: Campaign) -> Iterator[Finding]:
    """What only flows of programs need: hosts of the kernel's TCP without options of sockets, and names of metrics."""
    node_stacks = {node.name: node.stack for node in campaign.network.nodes}
    for number, flow in enumerate(campaign.workload):
        if flow.command is None:
            continue
        for end in (flow.from_, flow.to):
            stack = node_stacks.get(end) or campaign.stack
            sockets = [name for name in kernel_tcp.SOCKET_OPTIONS if stack.options.get(name) is not None]
            if sockets:
                yield (
                    ("workload", number, "command"),
                    f"the stack of host {end} has '{sockets[0]}', an option of sockets, and programs open their own; "
                    "take it out, or set it by the program's own options",
                )
                break


def _of_capture(campaign: Campaign, links: Links) -> Iterator[Finding]:
    capture = campaign.capture
    if not capture.telemetry and campaign.backend.has_real_packets:
        yield ("capture", "telemetry"), f"only the sim backend can omit telemetry, not {campaign.backend}"
    if capture.counters is not None:
        if campaign.backend.has_real_packets:
            yield ("capture", "counters"), f"only the sim backend has counters; {campaign.backend} has captures"
        names = [link.name for link in links]
        for number, name in enumerate(capture.counters.at):
            if name not in names:
                yield ("capture", "counters", "at", number), registry.unknown("link", name, names)
    interfaces = {f"{end}:{link.name}" for link in links for end in link.ends}
    for number, interface in enumerate(capture.at):
        if interface not in interfaces and interface != "none":
            yield ("capture", "at", number), registry.unknown("interface", interface, sorted(interfaces))
