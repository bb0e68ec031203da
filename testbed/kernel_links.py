"""Links shaped by the kernel: a veth pair or a real wire, and tc(8), without the emulator (docs/links.md, "kernel").

The rate and the queue are at the sender's interface. Delay and loss (netem) are on an ifb behind the receiver's
interface, so that a queue's limit counts waiting packets only. What the kernel lacks is rejected before anything runs.
The report of such a link holds the kernel's counters and no lateness; agents sample them over time as telemetry.
"""

from __future__ import annotations

import math
import os
import shlex
import subprocess
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from agents import qdiscs
from agents.errors import AgentError
from agents.kernel import offload_command
from agents.shaping import ifb_name
from testbed import node_binary
from testbed.addressing import Interface
from testbed.errors import TestbedError
from testbed.report import DirectionReport, Lateness
from testbed.scenario import DirectionSpec, LinkSpec, Named, Options

if TYPE_CHECKING:
    from agents.client import AgentClient
    from agents.messages import ShapingCounters
    from testbed.report import LinkReport

KIND = "kernel"
#: Longer than any queue of a run, in packets, for qdiscs that must not drop.
_DEEP = 1_000_000
#: Limit of a queue that sets none, in packets, as of the emulator's policies.
_QUEUE_PACKETS = 20
#: RED's limits count bytes; a packet of the scenario's limits is this long.
RED_PACKET_BYTES = 1500
#: MAXPACKET of the kernel's CoDel and FQ-CoDel: an interface's largest packet, without and with its header.
_CODEL_PACKET_BYTES, _FQ_CODEL_PACKET_BYTES = 1500, 1514
#: Queue policies that no emulated link has.
QUEUES = ("dualpi2", "fq_pie", "qdisc")
#: Their options: tc's word, and how many of its unit are one of ours; None: the same, with fractions.
_DUALPI2: Mapping[str, tuple[str, float | None]] = {
    "limit_packets": ("limit", 1.0),
    "memory_limit_bytes": ("memlimit", 1.0),
    "target_s": ("target", 1e6),
    "tupdate_s": ("tupdate", 1e6),
    "alpha": ("alpha", None),
    "beta": ("beta", None),
    "step_threshold_s": ("step_thresh", 1e6),
    "step_queue_packets": ("step_packets", 1.0),
    "step_least_packets": ("min_qlen_step", 1.0),
    "coupling": ("coupling_factor", 1.0),
    "c_protection": ("classic_protection", 100.0),
}
_FQ_PIE: Mapping[str, tuple[str, float | None]] = {
    "limit_packets": ("limit", 1.0),
    "flows": ("flows", 1.0),
    "target_s": ("target", 1e6),
    "tupdate_s": ("tupdate", 1e6),
    "alpha": ("alpha", 16.0),
    "beta": ("beta", 16.0),
    "quantum_bytes": ("quantum", 1.0),
    "memory_limit_bytes": ("memory_limit", 1.0),
    "ecn_prob": ("ecn_prob", 100.0),
}
_FQ_CODEL: Mapping[str, tuple[str, float | None]] = {
    "limit_packets": ("limit", 1.0),
    "flows": ("flows", 1.0),
    "quantum_bytes": ("quantum", 1.0),
    "target_s": ("target", 1e6),
    "interval_s": ("interval", 1e6),
}
_PIE: Mapping[str, tuple[str, float | None]] = {
    "limit_packets": ("limit", 1.0),
    "target_s": ("target", 1e6),
    "tupdate_s": ("tupdate", 1e6),
    "alpha": ("alpha", 16.0),
    "beta": ("beta", 16.0),
}
#: Options of our PIE that the kernel's fixes, with its values.
_PIE_FIXED = {"max_burst_s": 0.15, "mean_packet_bytes": 1500}
#: Options of a link that only some shapers have.
_SHAPERS_OF = {"burst_bytes": ("htb", "tbf"), "ack_filter": ("cake",), "rtt_s": ("cake",)}
#: Burst of HTB and TBF, if none is set: two packets with Ethernet headers. At higher rates it is 250 us of the rate, as
#: tc's manual asks for on a kernel with high-resolution timers.
_ETHERNET_FRAME_BYTES = 1514
_DEFAULT_BURST_BYTES = 2 * _ETHERNET_FRAME_BYTES

#: The round trip for which CAKE's queue management never acts ("interplanetary" in tc-cake(8)).
PATIENT_RTT_S = 1000.0

#: First words of a sender's root qdisc. The size table makes rates and counters those of network-layer bytes, without
#: the Ethernet header.
_ROOT = "root handle 1: stab overhead -14 linklayer ethernet"


def commands(direction: DirectionSpec, options: Options, near: str, far: str) -> tuple[list[str], list[str]]:
    """Arguments of tc for one direction: at the sender's interface, and at the receiver's.

    Args:
        direction: what the scenario declares.
        options: of the link.
        near: the sender's interface.
        far: the receiver's.

    Raises:
        TestbedError: the kernel's qdiscs cannot do it.
    """
    if direction.schedule:
        raise TestbedError("a kernel link has no changes over time")
    _check_options(direction, options)
    match options.get("shaper", "htb"):
        case "cake":
            sender = [_cake(direction, options, near)]
        case _ if direction.rate_bps is None:
            sender = [f"qdisc add dev {near} {_ROOT} {_queue(direction.queue, None)}"]
        case "netem":
            if direction.queue.name != "droptail":
                raise TestbedError("netem's queue is a droptail; htb and tbf take codel too")
            _refuse_bytes(direction.queue)
            limit = direction.queue.options.get("limit_packets", _QUEUE_PACKETS)
            sender = [f"qdisc add dev {near} {_ROOT} netem rate {direction.rate_bps}bit limit {limit}"]
        case shaper:
            sender = _bucket(str(shaper), direction.rate_bps, direction.queue, options, near)
    return sender, _receiver(direction, far)


def _check_options(direction: DirectionSpec, options: Options) -> None:
    """Rejects what the kernel would not do, so that no option is without effect."""
    if direction.options:
        raise TestbedError(f"a kernel link has no '{next(iter(direction.options))}'; kind point-to-point has it")
    if "framing_bytes" in options:
        raise TestbedError("a kernel link has no 'framing'; kind point-to-point has it")
    shaper = str(options.get("shaper", "htb"))
    for name, shapers in _SHAPERS_OF.items():
        if options.get(name, "none") != "none" and shaper not in shapers:
            short = name.removesuffix("_bytes").removesuffix("_s")
            raise TestbedError(f"'{short}' is an option of {' and '.join(shapers)}, not of {shaper}")
    if shaper == "tbf" and options.get("burst_bytes", _ETHERNET_FRAME_BYTES) < _ETHERNET_FRAME_BYTES:
        raise TestbedError(f"tbf drops frames that are longer than its burst: set at least {_ETHERNET_FRAME_BYTES} B")


def _refuse_bytes(queue: Named) -> None:
    if "buffer_bytes" in queue.options:
        raise TestbedError(f"the kernel's {queue.name} has its limit in packets: leave 'buffer' out")


def _cake(direction: DirectionSpec, options: Options, near: str) -> str:
    if direction.queue.name != "droptail" or direction.queue.options:
        raise TestbedError("cake is its own queue policy: leave 'queue' out")
    bandwidth = f"bandwidth {direction.rate_bps}bit" if direction.rate_bps else "unlimited"
    rtt = f" rtt {round(options['rtt_s'] * 1e6)}us" if "rtt_s" in options else ""
    ack_filter = {"none": "", "filter": " ack-filter", "aggressive": " ack-filter-aggressive"}
    return (
        f"qdisc add dev {near} {_ROOT} cake besteffort {bandwidth}{rtt}{ack_filter[options.get('ack_filter', 'none')]}"
    )


def _bucket(shaper: str, rate_bps: int, queue: Named, options: Options, near: str) -> list[str]:
    """HTB or TBF, with the queue policy as its child."""
    burst = burst_bytes(rate_bps, options)
    if shaper == "htb":
        lines = [
            f"qdisc add dev {near} {_ROOT} htb default 1",
            f"class add dev {near} parent 1: classid 1:1 htb rate {rate_bps}bit ceil {rate_bps}bit "
            f"burst {burst} cburst {burst} quantum 1514",
        ]
    else:
        lines = [f"qdisc add dev {near} {_ROOT} tbf rate {rate_bps}bit burst {burst} limit {_DEEP}"]
    return [*lines, f"qdisc add dev {near} parent 1:1 handle 10: {_queue(queue, rate_bps)}"]


def burst_bytes(rate_bps: float, options: Options) -> int:
    """Bytes that pass at once after an idle time: HTB's and TBF's bucket, one packet of CAKE, none of netem."""
    match options.get("shaper", "htb"):
        case "netem":
            return 0
        case "cake":
            return _ETHERNET_FRAME_BYTES
    return int(options.get("burst_bytes") or max(_DEFAULT_BURST_BYTES, round(rate_bps / 8 * 250e-6)))


def _queue(queue: Named, rate_bps: float | None) -> str:
    options = queue.options
    match queue.name:
        case "droptail" if "buffer_bytes" in options:
            if "limit_packets" in options:
                raise TestbedError("the kernel's droptail has a 'limit' or a 'buffer', not both")
            return f"bfifo limit {options['buffer_bytes']}"
        case "droptail":
            return f"pfifo limit {options.get('limit_packets', _QUEUE_PACKETS)}"
        case "red":
            return _red(queue, rate_bps)
        case "codel":
            _refuse_bytes(queue)
            if options.get("max_packet_bytes", _CODEL_PACKET_BYTES) != _CODEL_PACKET_BYTES:
                raise TestbedError(f"the kernel's CoDel needs 'max_packet: {_CODEL_PACKET_BYTES} B'")
            words = f"codel limit {options.get('limit_packets', 1000)}"
            for name in ("target", "interval"):
                if f"{name}_s" in options:
                    words += f" {name} {round(options[f'{name}_s'] * 1e6)}us"
            return words + (" ecn" if options.get("ecn") else "")
        case "fq-codel":
            _refuse_bytes(queue)
            _refuse_other(queue, {"max_packet_bytes": _FQ_CODEL_PACKET_BYTES})
            return "fq_codel" + _words(options, _FQ_CODEL) + (" ecn" if options.get("ecn", True) else " noecn")
        case "pie":
            _refuse_bytes(queue)
            _refuse_other(queue, _PIE_FIXED)
            return "pie" + _words(options, _PIE) + (" ecn" if options.get("ecn") else "")
        case "dualpi2":
            return _dualpi2(options)
        case "fq_pie":
            return _fq_pie(options)
        case "qdisc":
            return str(options["kind"])
    own = ", ".join(QUEUES)
    raise TestbedError(
        f"the kernel's queues are droptail, codel, fq-codel, pie, red, {own}; {queue.name} needs an emulated link"
    )


def _refuse_other(queue: Named, fixed: Mapping[str, float]) -> None:
    """Rejects values that the kernel's policy does not have."""
    for name, value in fixed.items():
        if queue.options.get(name, value) != value:
            short = name.removesuffix("_s").removesuffix("_bytes")
            raise TestbedError(
                f"'{short}' of the kernel's {queue.name} must be {value:g}; the kernel has no other setting"
            )


def _dualpi2(options: Options) -> str:
    if "step_threshold_s" in options and "step_queue_packets" in options:
        raise TestbedError("dualpi2 has a 'step_threshold' or a 'step_queue', not both")
    words = "dualpi2" + _words(options, _DUALPI2)
    words += {"drop": " drop_on_overload", "overflow": " overflow"}.get(options.get("overload", ""), "")
    words += {"dequeue": " drop_dequeue", "enqueue": " drop_enqueue"}.get(options.get("drop_at", ""), "")
    return words + {"l4s-ect": " l4s_ect", "any-ect": " any_ect"}.get(options.get("classify", ""), "")


def _fq_pie(options: Options) -> str:
    if "ecn_prob" in options and not options.get("ecn"):
        raise TestbedError("fq_pie's 'ecn_prob' needs 'ecn: true'")
    words = "fq_pie" + _words(options, _FQ_PIE)
    return words + "".join(f" {name}" for name in ("ecn", "bytemode") if options.get(name))


def _words(options: Options, names: Mapping[str, tuple[str, float | None]]) -> str:
    """Options as tc's words, with their values in tc's units; times end in "us"."""
    words = ""
    for name, (word, scale) in names.items():
        if name in options:
            value = f"{options[name]:.9g}" if scale is None else str(round(options[name] * scale))
            words += f" {word} {value}{'us' if name.endswith('_s') else ''}"
    return words


def _red(queue: Named, rate_bps: float | None) -> str:
    """The kernel's RED counts bytes, of packets of RED_PACKET_BYTES here, and its weight is a power of 1/2."""
    options = queue.options
    required = {"victim": "tail", "candidates": "all", "acks_first": False, "gentle": False}
    defaults = {"victim": "random", "candidates": "all", "acks_first": False, "gentle": False}
    for name, value in required.items():
        if options.get(name, defaults[name]) != value:
            shown = str(value).lower() if isinstance(value, bool) else value
            raise TestbedError(f"the kernel's RED needs '{name}: {shown}'")
    _refuse_bytes(queue)
    if "child" in options:
        raise TestbedError("the kernel's RED is set up without a policy below it: leave 'child' out")
    if "typical_packet_bytes" in options:
        raise TestbedError(f"the kernel's RED counts packets of {RED_PACKET_BYTES} bytes: leave 'typical_packet' out")
    limit = int(options.get("limit_packets", _QUEUE_PACKETS))
    least, greatest = options.get("min_fraction", 0.15) * limit, options.get("max_fraction", 0.6) * limit
    weight = options.get("weight", 0.01)
    words = f"red limit {limit * RED_PACKET_BYTES} min {round(least * RED_PACKET_BYTES)} "
    words += f"max {round(greatest * RED_PACKET_BYTES)} avpkt {RED_PACKET_BYTES} burst {_red_burst(least, weight)} "
    words += f"probability {options.get('max_p', 0.1):g}"
    # RED derives a queue's idle time from the bandwidth.
    words += f" bandwidth {round(rate_bps)}bit" if rate_bps else ""
    if options.get("action", "mark") == "mark":
        words += " ecn" + (" nodrop" if options.get("not_capable", "pass") == "pass" else "")
        words += " harddrop" if options.get("above_max") == "drop" else ""
    return words


def _red_burst(least_packets: float, weight: float) -> int:
    """The burst from which tc's formula computes the power of 1/2 that is nearest to a weight.

    tc takes the smallest exponent e for which burst + 1 - min <= (1 - (1 - 2^-e)^burst) / 2^-e.
    """
    target = max(1, min(31, round(-math.log2(weight))))

    def exponent(burst: int) -> int:
        for e in range(1, 32):
            w = 0.5**e
            if burst + 1 - least_packets <= (1 - (1 - w) ** burst) / w:
                return e
        return 32

    # tc wants a burst of more than min packets.
    for burst in range(math.ceil(least_packets) + 1, 100_000):
        if exponent(burst) >= target:
            return burst
    raise TestbedError(f"the kernel's RED has no weight as small as {weight:g}")


def _receiver(direction: DirectionSpec, far: str) -> list[str]:
    netem = []
    if direction.delay_s:
        jitter = f" {round(direction.jitter_s * 1e6)}us" if direction.jitter_s else ""
        netem.append(f"delay {round(direction.delay_s * 1e6)}us{jitter}")
    if direction.keep_order:
        raise TestbedError("netem's jitter lets packets overtake each other; 'keep_order' needs an emulated link")
    for model in direction.errors:
        options = model.options
        if options.get("effect", "lose") != "lose":
            raise TestbedError("netem loses packets; damage to a checksum needs an emulated link")
        if model.name == "uniform":
            netem.append(f"loss random {options['probability'] * 100}%")
        elif model.name == "gilbert-elliott":
            good, bad = options.get("good_loss", 0.0), options.get("bad_loss", 1.0)
            netem.append(f"loss gemodel {options['p'] * 100}% {options['r'] * 100}% {bad * 100}% {good * 100}%")
        else:
            raise TestbedError(f"netem has no error model {model.name}; it has uniform and gilbert-elliott")
    if not netem:
        return []
    ifb = ifb_name(far)
    return [
        f"qdisc add dev {far} handle ffff: ingress",
        f"filter add dev {far} parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev {ifb}",
        f"qdisc add dev {ifb} root netem limit {_DEEP} {' '.join(netem)}",
    ]


def refusal(link: LinkSpec, on_this_machine: bool) -> str | None:
    """Why a kernel cannot run a link, as a sentence; None when it can, or when only root could find out.

    Args:
        link: of the scenario.
        on_this_machine: this machine's kernel runs the link, so its qdiscs are tried. A lab's hosts report what
            their kernels lack when they configure the link.
    """
    if len(link.ends) != 2:
        return f"link '{link.name}': a kernel link has two ends"
    if link.middleboxes:
        return f"link '{link.name}': middleboxes need an emulated link"
    try:
        lines = [commands(direction, link.options, "near", "far") for _, direction in link.directions()]
    except TestbedError as error:
        return f"link '{link.name}': {error}"
    if not on_this_machine or os.geteuid() != 0:
        return None
    for attempt in [sender for sender, _ in lines] + [receiver for _, receiver in lines]:
        failure = _try(tuple(attempt))
        if failure:
            way_out = "kind point-to-point needs nothing of the kernel"
            if lack(link, frozenset(QUEUES)):
                way_out = "the backend virtual-kernel brings a kernel that can"
            return f"link '{link.name}': this kernel cannot do it: {failure}; {way_out}"
    return None


@cache
def _try(lines: tuple[str, ...]) -> str:
    """The first command that tc refuses, with its message; empty when all succeed. Uses a temporary namespace."""
    if not lines:
        return ""
    script = "ip link add near type veth peer name far && ip link add d-far type ifb && ip link set d-far up"
    for line in lines:
        tool = shlex.join(node_binary.module("agents.netlink")) if " dualpi2" in line else "tc"
        script += f" && {{ out=$({tool} {line} 2>&1) || {{ echo {shlex.quote(line)}: $out; exit 0; }}; }}"
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        env={**os.environ, "PYTHONPATH": node_binary.python_path()},
    )
    if done.returncode != 0:
        return done.stderr.strip() or "its namespaces do not work"
    return " ".join(f"tc {line}" for line in done.stdout.splitlines())


def sampled(options: Options, direction: DirectionSpec) -> tuple[str, ...]:
    """Figures for which a direction's discipline is sampled: "queue-delay" and "mark-probability", or none."""
    if options.get("shaper") == "cake":
        return ("queue-delay",)
    both = ("queue-delay", "mark-probability")
    return {"codel": ("queue-delay",), "pie": both, "dualpi2": both}.get(direction.queue.name, ())


def lack(link: LinkSpec, lacks: frozenset[str]) -> str | None:
    """The first queue policy of a link that a kernel lacks.

    Args:
        link: of the scenario.
        lacks: what the kernel lacks, by the policies' names.
    """
    return next((spec.queue.name for _, spec in link.directions() if spec.queue.name in lacks), None)


def make_wire(name: str, ends: tuple[Interface, Interface], pids: tuple[int, int]) -> None:
    """A veth pair between the namespaces of two processes, with offloads off.

    Raises:
        TestbedError: the kernel refused.
    """
    near, far = (f"name {end.name} address {end.mac} netns {pid}" for end, pid in zip(ends, pids, strict=True))
    add = f"ip link add {near} type veth peer {far}".split()
    inside = [
        ["nsenter", "--net", "--target", str(pid), *offload_command(end.name)]
        for end, pid in zip(ends, pids, strict=True)
    ]
    for line in (add, *inside):
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise TestbedError(f"link '{name}': cannot make its interfaces: {done.stderr.strip()}")


class KernelLink:
    """A wire that the kernels at its ends shape, through their agents."""

    def __init__(self, ends: tuple[Interface, Interface], agents: tuple[AgentClient, AgentClient]) -> None:
        self._ends = ends
        self._agents = agents

    def configure(self, link: LinkSpec) -> None:
        """Sets its parameters. Queues are empty and counters zero afterwards.

        Raises:
            TestbedError: a kernel lacks something, with tc's message.
        """
        lines: tuple[list[str], list[str]] = ([], [])
        for direction, near, far in ((link.forward, 0, 1), (link.reverse, 1, 0)):
            sender, receiver = commands(direction, link.options, self._ends[near].name, self._ends[far].name)
            lines[near].extend(sender)
            lines[far].extend(receiver)
        for agent, end, of_end in zip(self._agents, self._ends, lines, strict=True):
            try:
                agent.shape(end.name, of_end)
            except AgentError as error:
                raise TestbedError(f"link '{link.name}': the kernel of {error}") from None

    def samples(self, link: LinkSpec) -> dict[str, dict[str, tuple[str, str, str]]]:
        """By node and interface: the link's name, the direction of what leaves there, and that of what arrives.

        Of a link that only delays nothing is sampled: it has no queue and loses nothing.
        """
        if all(spec.rate_bps is None and not spec.errors and not spec.schedule for _, spec in link.directions()):
            return {}
        near, far = self._ends
        return {
            near.node: {near.name: (link.name, "forward", "reverse")},
            far.node: {far.name: (link.name, "reverse", "forward")},
        }

    def report(self, link: LinkSpec) -> LinkReport:
        """What the kernel counted, in the form of the emulator's report. Ends the samples."""
        counters = [agent.shaped(end.name) for agent, end in zip(self._agents, self._ends, strict=True)]
        return {
            "forward": counted(link.forward.rate_bps, counters[0].root, counters[1].delayed),
            "reverse": counted(link.reverse.rate_bps, counters[1].root, counters[0].delayed),
        }


def counted(rate_bps: int | None, root: ShapingCounters, delayed: ShapingCounters) -> DirectionReport:
    """One direction's report, from the counters at its sender's interface and behind its receiver's."""
    # Only a run has reports; a campaign is validated without them.
    events = {**qdiscs.events(root, is_delayed=False), **qdiscs.events(delayed, is_delayed=True)}
    # Every field is set, so that the stored report has it.
    return DirectionReport(
        rate_bps=rate_bps,
        submitted_packets=root.packets + root.drops,
        delivered_packets=root.packets - delayed.drops,
        refused_by_interface=0,
        transmitted_packets=root.packets,
        transmitted_bytes=root.bytes,
        transmitted_wire_bytes=root.bytes,
        busy_s=None,
        rate_error=None,
        lateness_s=Lateness(p50=None, p99=None, max=None),
        error_losses=delayed.drops,
        events=events,
    )
