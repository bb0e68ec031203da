"""Emulated links for Mininet scripts in the words of Mininet's `TCLink` and of campaign files.

    from experiments.mininet_link import Line

    net = Mininet(link=Line)                       # in place of link=TCLink
    net.addLink(h1, s1, bw=10, delay="5ms", loss=1, max_queue_size=50)
    net.addLink(s1, h2, profile="cable-500-10", reverse={"queue": {"policy": "ack-filtering"}})

docs/mininet-links.md has a whole script and every parameter.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from experiments.language import registry
from experiments.language.messages import rejected
from experiments.language.network import LineFields, Link as FileLink
from experiments.language.problems import dotted
from testbed import node_binary
from testbed.errors import TestbedError
from testbed.mininet_links import EmulatedLink
from testbed.scenario import LinkSpec

#: Queue of a line that sets none, in packets: that of a Linux interface, which a TCLink has.
QUEUE_PACKETS = 1000
#: Parameters of TCLink without an equivalent here, each with what to write instead.
REFUSED = {
    "latency_ms": "it belongs to tc's token bucket; set max_queue_size",
    "use_hfsc": "a line needs no shaper of the kernel",
    "use_tbf": "a line needs no shaper of the kernel",
    "enable_ecn": "set policy={'policy': 'red', 'ecn': True}",
    "enable_red": "set policy='red'",
}
_numbers = itertools.count(1)


class Line(EmulatedLink):
    """An emulated link between two Mininet nodes, with the same parameters in both directions unless one is named.

    Args:
        node1: first node; the direction `forward` leaves it.
        node2: second node.
        bw: rate in Mbit/s; None: unlimited, the line only delays.
        delay: one-way delay with its unit, such as "5ms".
        jitter: each packet's delay is drawn uniformly within this of `delay`, as by netem; packets may overtake each
            other.
        loss: share of packets that are lost, in percent.
        max_queue_size: greatest number of packets in each queue.
        policy: queue policy: a name, or a mapping as in a campaign file's `queue`.
        profile: a line by name (`./backchannel list profiles`); the others override its fields.
        forward: fields of a campaign file's direction for the direction from node1; they override all others.
        reverse: the same for the direction from node2.
        kind: link kind, as in a campaign file.
        seed: of its random streams.
        others: as in mininet.link.Link.

    Raises:
        TestbedError: a parameter is invalid; says which, and what is allowed.
    """

    def __init__(
        self,
        node1: Any,
        node2: Any,
        *ports: Any,
        bw: float | None = None,
        delay: str | None = None,
        jitter: str | None = None,
        loss: float | None = None,
        max_queue_size: int | None = None,
        policy: str | Mapping[str, Any] | None = None,
        profile: str | None = None,
        forward: Mapping[str, Any] | None = None,
        reverse: Mapping[str, Any] | None = None,
        kind: str | Mapping[str, Any] | None = None,
        seed: int = 0,
        **others: Any,
    ) -> None:
        where = f"the link {node1.name}-{node2.name}"
        for name, instead in REFUSED.items():
            if others.pop(name, None):
                raise TestbedError(f"{where}: '{name}' is not emulated: {instead}")
        common = common_fields(where, bw, delay, jitter, loss, max_queue_size, policy)
        if profile is None and "queue" not in common:
            common["queue"] = {"policy": "droptail", "limit": f"{QUEUE_PACKETS} packets"}
        spec = link_spec(
            where,
            f"link{next(_numbers)}-{node1.name}-{node2.name}",
            (node1.name, node2.name),
            profile,
            kind,
            {**common, **(forward or {})},
            {**common, **(reverse or {})},
        )
        names = dict(zip(("port1", "port2", "intfName1", "intfName2"), ports, strict=False))
        super().__init__(node1, node2, spec=spec, seed=seed, **names, **others)


def common_fields(
    where: str,
    bw: float | None,
    delay: str | None,
    jitter: str | None,
    loss: float | None,
    max_queue_size: int | None,
    policy: str | Mapping[str, Any] | None,
) -> LineFields:
    """TCLink's parameters in the words of a campaign file's direction.

    Raises:
        TestbedError: a parameter has the wrong type or is out of range; others are checked by `link_spec`.
    """
    fields: LineFields = {}
    queue: Mapping[str, Any] = {"policy": "droptail"}
    if bw is not None:
        fields["rate"] = f"{_number(where, 'bw', bw, 'Mbit/s', least=0.0, above=True)} Mbit/s"
    if delay is not None:
        fields["delay"] = _time(where, "delay", delay)
    if jitter is not None:
        fields["jitter"] = _time(where, "jitter", jitter)
    if loss is not None:
        percent = _number(where, "loss", loss, "percent", least=0.0, most=100.0)
        fields["errors"] = [{"model": "uniform", "probability": f"{percent}%"}] if percent else []
    if policy is not None:
        fields["queue"] = queue = {"policy": policy} if isinstance(policy, str) else dict(policy)
    if max_queue_size is not None:
        limit = _number(where, "max_queue_size", max_queue_size, "packets", least=1.0)
        fields["queue"] = {**queue, "limit": f"{limit:.0f} packets"}
    return fields


def _time(where: str, name: str, value: object) -> str:
    if not isinstance(value, str):
        raise TestbedError(f"{where}: {name}={value!r} has no unit; write a time like '5ms'")
    return value


def _number(
    where: str, name: str, value: object, unit: str, least: float, most: float | None = None, above: bool = False
) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        is_enough = value > least if above else value >= least
        if is_enough and (most is None or value <= most):
            return value
    allowed = f"more than {least:g}" if above else f"{least:g} or more"
    allowed = allowed if most is None else f"from {least:g} to {most:g}"
    raise TestbedError(f"{where}: {name}={value!r} is not a number of {unit}; it must be {allowed}")


def link_spec(
    where: str,
    name: str,
    ends: tuple[str, str],
    profile: str | None,
    kind: str | Mapping[str, Any] | None,
    forward: Mapping[str, Any],
    reverse: Mapping[str, Any],
) -> LinkSpec:
    """The link as the emulator takes it, from fields of a campaign file.

    Raises:
        TestbedError: a field is invalid.
    """
    fields: dict[str, Any] = {"name": name, "ends": list(ends), "forward": dict(forward), "reverse": dict(reverse)}
    if profile is not None:
        if profile not in (known := [entry.name for entry in registry.of_kind("profile")]):
            raise TestbedError(f"{where}: {registry.unknown('profile', profile, known)}")
        fields["profile"] = profile
    if kind is not None:
        fields["kind"] = kind
    try:
        spec = FileLink.model_validate(fields).as_scenario()
    except ValidationError as error:
        # Both directions usually have the same mistake.
        fields_of = {text: dotted(path) for path, text in reversed(list(rejected(error, FileLink)))}
        sentences = "; ".join(f"{field}: {text}" for text, field in reversed(fields_of.items()))
        raise TestbedError(f"{where}: {sentences}") from None
    reason = node_binary.call("check", stdin=json.dumps([spec.as_json()]))[0]
    if reason is not None:
        raise TestbedError(f"{where}: {reason}")
    return spec
