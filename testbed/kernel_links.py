"""Links that kernels shape: a veth pair or a real wire, and tc(8), in place of the emulator (docs/links.md, "kernel").

Shaping stands at the sender's interface, delay (netem) at the receiver's, on an ifb, so that a queue's limit counts
what waits and not what propagates. What this kernel lacks is refused in a sentence before anything runs. Such a link
reports what tc counts; it has no lateness and no telemetry of its queue.
"""

from __future__ import annotations

import math
import os
import shlex
import subprocess
from collections.abc import Mapping
from functools import cache
from typing import Any

from agents.client import AgentClient
from agents.errors import AgentError
from agents.shaping import ifb_name
from testbed.addressing import Interface
from testbed.errors import TestbedError

KIND = "kernel"
SHAPERS = ("htb", "tbf", "netem", "cake")
#: Beyond any queue of a run: what only delays must not drop.
_DEEP = 1_000_000
#: What RED's limits in packets are counted as.
RED_PACKET_BYTES = 1500
#: HTB and TBF let this pass at once: two packets and their Ethernet headers, or 250 us at higher rates, as tc's manual
#: asks for on a kernel with high-resolution timers.
_LEAST_BURST_BYTES = 2 * 1514

#: The round trip for which CAKE's queue management never acts, as tc-cake(8) has it ("interplanetary").
PATIENT_RTT_S = 1000.0

#: Begins whatever stands at a sender's interface: rates and counters are those of network-layer bytes, as ours are. The
#: kernel counts the Ethernet header unless it is told.
_ROOT = "root handle 1: stab overhead -14 linklayer ethernet"


def commands(direction: Mapping[str, Any], options: Mapping[str, Any], near: str, far: str) -> tuple[list[str], ...]:
    """Arguments of tc for one direction: first at its sender's interface, then at its receiver's.

    Args:
        direction: a DirectionSpec of the scenario.
        options: of the link.
        near: the sender's interface.
        far: the receiver's.

    Raises:
        TestbedError: the kernel's qdiscs cannot do what is asked.
    """
    shaper = options.get("shaper", "htb")
    rate, queue = direction.get("rate_bps"), direction["queue"]
    sender: list[str] = []
    if direction.get("schedule"):
        raise TestbedError("a kernel link has no changes over time")
    if shaper == "cake":
        if queue["name"] != "droptail":
            raise TestbedError("cake is its own queue policy: leave 'queue' out")
        words = f"qdisc add dev {near} {_ROOT} cake besteffort" + (f" bandwidth {rate}bit" if rate else " unlimited")
        words += f" rtt {round(options['rtt_s'] * 1e6)}us" if "rtt_s" in options else ""
        sender.append(words + {"none": "", "filter": " ack-filter", "aggressive": " ack-filter-aggressive"}[
            options.get("ack_filter", "none")
        ])  # fmt: skip
    elif rate is None:
        sender.append(f"qdisc add dev {near} {_ROOT} {_queue(queue, rate)}")
    elif shaper == "netem":
        limit = queue["options"].get("limit_packets", 1000)
        if queue["name"] != "droptail":
            raise TestbedError("netem's queue is a droptail; htb and tbf take codel too")
        sender.append(f"qdisc add dev {near} {_ROOT} netem rate {rate}bit limit {limit}")
    else:
        burst = burst_bytes(rate, options)
        if shaper == "htb":
            sender += [
                f"qdisc add dev {near} {_ROOT} htb default 1",
                f"class add dev {near} parent 1: classid 1:1 htb rate {rate}bit ceil {rate}bit "
                f"burst {burst} cburst {burst} quantum 1514",
            ]
        else:
            sender.append(f"qdisc add dev {near} {_ROOT} tbf rate {rate}bit burst {burst} limit {_DEEP}")
        sender.append(f"qdisc add dev {near} parent 1:1 handle 10: {_queue(queue, rate)}")
    return sender, _receiver(direction, far)


def burst_bytes(rate_bps: float, options: Mapping[str, Any]) -> int:
    """What passes at once: HTB and TBF hold a bucket, CAKE lets one packet out, netem none before its time."""
    match options.get("shaper", "htb"):
        case "netem":
            return 0
        case "cake":
            return _LEAST_BURST_BYTES // 2
    return int(options.get("burst_bytes") or max(_LEAST_BURST_BYTES, round(rate_bps / 8 * 250e-6)))


def _queue(queue: Mapping[str, Any], rate_bps: float | None) -> str:
    options = queue["options"]
    match queue["name"]:
        case "droptail" if "limit_bytes" in options:
            return f"bfifo limit {options['limit_bytes']}"
        case "droptail":
            return f"pfifo limit {options.get('limit_packets', 1000)}"
        case "red":
            return _red(options, rate_bps)
        case "codel":
            words = f"codel limit {options.get('limit_packets', 1000)}"
            for name in ("target", "interval"):
                if f"{name}_s" in options:
                    words += f" {name} {round(options[f'{name}_s'] * 1e6)}us"
            return words
    raise TestbedError(f"the kernel's queues are droptail, codel and red; {queue['name']} needs a link of ours")


def _red(options: Mapping[str, Any], rate_bps: float | None) -> str:
    """The kernel's RED counts bytes, of packets of RED_PACKET_BYTES here; its weight is a power of a half."""
    fixed = {"victim": "tail", "candidates": "all", "acks_first": False, "gentle": False}
    defaults = {"victim": "random", "candidates": "all", "acks_first": False, "gentle": False}
    for name, only in fixed.items():
        if options.get(name, defaults[name]) != only:
            shown = str(only).lower() if isinstance(only, bool) else only
            raise TestbedError(f"the kernel's RED needs '{name}: {shown}'")
    if "buffer_bytes" in options:
        raise TestbedError("the kernel's RED has its limit in packets of 1500 bytes: leave 'buffer' out")
    limit = int(options.get("limit_packets", 20))
    least, greatest = options.get("min_fraction", 0.15) * limit, options.get("max_fraction", 0.6) * limit
    weight = options.get("weight", 0.01)
    words = f"red limit {limit * RED_PACKET_BYTES} min {round(least * RED_PACKET_BYTES)} "
    words += f"max {round(greatest * RED_PACKET_BYTES)} avpkt {RED_PACKET_BYTES} burst {_red_burst(least, weight)} "
    words += f"probability {options.get('max_p', 0.1):g}"
    # By which it tells how long a queue was idle.
    words += f" bandwidth {round(rate_bps)}bit" if rate_bps else ""
    if options.get("action", "mark") == "mark":
        words += " ecn" + (" nodrop" if options.get("not_capable", "pass") == "pass" else "")
    return words


def _red_burst(least_packets: float, weight: float) -> int:
    """The burst from which tc's formula makes the power of a half that is nearest to a weight.

    tc takes the smallest exponent e for which burst + 1 - min <= (1 - (1 - 2^-e)^burst) / 2^-e.
    """
    wanted = max(1, min(31, round(-math.log2(weight))))

    def exponent(burst: int) -> int:
        for e in range(1, 32):
            w = 0.5**e
            if burst + 1 - least_packets <= (1 - (1 - w) ** burst) / w:
                return e
        return 32

    # tc wants a burst of more than min packets.
    for burst in range(math.ceil(least_packets) + 1, 100_000):
        if exponent(burst) >= wanted:
            return burst
    raise TestbedError(f"the kernel's RED has no weight as small as {weight:g}")


def _receiver(direction: Mapping[str, Any], far: str) -> list[str]:
    netem = []
    if direction.get("delay_s"):
        netem.append(f"delay {round(direction['delay_s'] * 1e6)}us")
    for model in direction.get("errors", []):
        options = model["options"]
        if options.get("effect", "lose") != "lose":
            raise TestbedError("netem loses packets; damage to a checksum needs a link of ours")
        if model["name"] == "uniform":
            netem.append(f"loss random {options['probability'] * 100}%")
        elif model["name"] == "gilbert-elliott":
            good, bad = options.get("good_loss", 0.0), options.get("bad_loss", 1.0)
            netem.append(f"loss gemodel {options['p'] * 100}% {options['r'] * 100}% {bad * 100}% {good * 100}%")
        else:
            raise TestbedError(f"netem has no error model {model['name']}; it has uniform and gilbert-elliott")
    if not netem:
        return []
    ifb = ifb_name(far)
    return [
        f"qdisc add dev {far} handle ffff: ingress",
        f"filter add dev {far} parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev {ifb}",
        f"qdisc add dev {ifb} root netem limit {_DEEP} {' '.join(netem)}",
    ]


def refusal(link: Mapping[str, Any], here: bool) -> str | None:
    """Why a kernel cannot run a link, as a sentence; None when it can, or when that cannot be told without root.

    Args:
        link: of the scenario.
        here: this machine's kernel is to run it; otherwise a lab's hosts are, and what theirs lack is told by them.
    """
    if len(link["ends"]) != 2:
        return f"link '{link['name']}': a kernel link has two ends"
    if link.get("middleboxes"):
        return f"link '{link['name']}': middleboxes need a link of ours"
    try:
        both = [commands(link[way], link["options"], "near", "far") for way in ("forward", "reverse")]
    except TestbedError as error:
        return f"link '{link['name']}': {error}"
    if not here or os.geteuid() != 0:
        return None
    # Each qdisc is tried on interfaces of a namespace that lasts as long as the trial.
    tried = [("near", sender) for sender, _ in both] + [("far", receiver) for _, receiver in both]
    for _, lines in tried:
        said = _trial(tuple(lines))
        if said:
            return (
                f"link '{link['name']}': this kernel cannot do it: {said}; "
                "kind point-to-point needs nothing of the kernel"
            )
    return None


@cache
def _trial(lines: tuple[str, ...]) -> str:
    """What tc says to its first failure; empty when all succeed."""
    if not lines:
        return ""
    script = "ip link add near type veth peer name far && ip link add d-far type ifb && ip link set d-far up"
    for line in lines:
        script += f" && {{ said=$(tc {line} 2>&1) || {{ echo {shlex.quote(line)}: $said; exit 0; }}; }}"
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", script], capture_output=True, text=True, check=False, timeout=30
    )
    if done.returncode != 0:
        return done.stderr.strip() or "its namespaces do not work"
    return " ".join(f"tc {line}" for line in done.stdout.splitlines())


def make_wire(name: str, ends: tuple[Interface, Interface], pids: tuple[int, int]) -> None:
    """A veth pair between the namespaces of two processes, with offloads off.

    Raises:
        TestbedError: the kernel refused.
    """
    words = ["ip", "link", "add", "name", ends[0].name, "address", ends[0].mac, "netns", str(pids[0]),
             "type", "veth", "peer", "name", ends[1].name, "address", ends[1].mac, "netns", str(pids[1]),
             ]  # fmt: skip
    # Else captures would show packets of 32 kB and checksums that were never computed.
    offloads = [word for what in ("tso", "gso", "gro", "tx", "rx") for word in (what, "off")]
    enter = ["nsenter", "--net", "--target"]
    inside = [[*enter, str(pid), "ethtool", "-K", end.name, *offloads] for end, pid in zip(ends, pids, strict=True)]
    for line in (words, *inside):
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise TestbedError(f"link '{name}': cannot make its interfaces: {done.stderr.strip()}")


class KernelLink:
    """A wire whose ends are shaped by the kernels there, through their agents.

    Args:
        ends: its interfaces, with the nodes' own names.
        agents: of the nodes at these ends.
    """

    def __init__(self, name: str, ends: tuple[Interface, Interface], agents: tuple[AgentClient, AgentClient]) -> None:
        self.name = name
        self._ends = ends
        self._agents = agents

    def configure(self, link: Mapping[str, Any]) -> None:
        """Gives it parameters and empty queues; its counters begin at zero.

        Raises:
            TestbedError: a kernel lacks something, with tc's own words.
        """
        lines: tuple[list[str], list[str]] = ([], [])
        for way, (near, far) in (("forward", (0, 1)), ("reverse", (1, 0))):
            leaving, arrived = commands(link[way], link["options"], self._ends[near].name, self._ends[far].name)
            lines[near].extend(leaving)
            lines[far].extend(arrived)
        for agent, end, own in zip(self._agents, self._ends, lines, strict=True):
            try:
                agent.shape(end.name, own)
            except AgentError as error:
                raise TestbedError(f"link '{self.name}': the kernel of {error}") from None

    def report(self, link: Mapping[str, Any]) -> dict[str, Any]:
        """What tc counted, in the form of the emulator's report (testbed/core/src/report.rs)."""
        said = [agent.shaped(end.name) for agent, end in zip(self._agents, self._ends, strict=True)]
        return {
            way: counted(link[way].get("rate_bps"), said[near]["root"], said[far]["delayed"])
            for way, near, far in (("forward", 0, 1), ("reverse", 1, 0))
        }


def counted(rate_bps: int | None, root: Mapping[str, int], delayed: Mapping[str, int]) -> dict[str, Any]:
    """One direction's report, from the counters at its sender's interface and behind its receiver's."""
    events = {"dropped_full": root["drops"], "lost": delayed["drops"]}
    return {
        "rate_bps": rate_bps,
        "submitted_packets": root["packets"] + root["drops"],
        "delivered_packets": root["packets"] - delayed["drops"],
        "refused_by_interface": 0,
        "transmitted_packets": root["packets"],
        "transmitted_bytes": root["bytes"],
        "transmitted_wire_bytes": root["bytes"],
        "busy_s": None,
        "rate_error": None,
        "lateness_s": {"p50": None, "p99": None, "max": None},
        "error_losses": delayed["drops"],
        "events": {kind: count for kind, count in events.items() if count},
    }
