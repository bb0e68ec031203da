"""The scenario of a session: a campaign file's network, or a line by profile, without flows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.language import campaign, source
from experiments.language.problems import CampaignError, Problem
from testbed.errors import unknown
from testbed.scenario import LinkSpec, Node, Scenario

#: Longest session in s: the run's declared end, until it is known.
LONGEST_S = 1_000_000.0

_TEXT = """\
name: shell
network: {{topology: line, profile: {profile}}}
stack: cubic
workload: [{{name: bulk, from: left, to: right}}]
duration: {longest_s:.0f} s
"""


@dataclass(frozen=True)
class SessionPlan:
    """What a session runs on."""

    #: As tables show it: a profile, or the name of a campaign.
    label: str
    scenario: Scenario
    #: Host of the command, and the node at the other side that reaches the world.
    host: str
    gateway: str
    #: Text and name of the campaign file from which the network is.
    text: str
    file: str
    #: "field=value" texts that were applied.
    overrides: Sequence[str]
    #: Network of devices behind the host's node, as CIDR; None: the host is the end.
    devices: str | None = None


def plan_session(
    profile: str,
    network: Path | None,
    overrides: Sequence[str],
    at: str | None,
    internet: bool,
    seed: int,
    devices: str | None = None,
) -> SessionPlan:
    """Plans a session.

    Args:
        profile: name of a link profile; ignored with `network`.
        network: a campaign file, of which the first point's network and stacks count.
        overrides: "field=value" texts, as `--set` takes them.
        at: host of the command; default: the client, or else the last host.
        internet: the node at the other end of that host's link forwards to the world.
        seed: of the links' random streams.
        devices: network of devices for which the host forwards, as CIDR; None: there are none.

    Raises:
        CampaignError: lists every problem.
    """
    fixed = ["backend=emulated", f"duration={LONGEST_S:.0f} s", f"seed={seed}"]
    if network is None:
        file = source.parse("--profile", _TEXT.format(profile=profile, longest_s=LONGEST_S))
        plan = campaign.expand(file, [*overrides, *fixed])
        label, name = profile, "shell"
    else:
        plan = campaign.load(network, [*overrides, *fixed])
        label, name = plan.name, str(network)
    scenario = plan.runs[0].scenario
    hosts = [node.name for node in scenario.nodes if node.kind == "host"]
    host = at or ("client" if "client" in hosts else hosts[-1])
    if host not in hosts:
        raise _problem("--at", unknown("host", host, hosts))
    gateway = _far_end(scenario, host)
    changes: dict[str, Any] = {"workload": (), "variation": None}
    routers = [*([gateway] if internet else []), *([host] if devices else [])]
    if routers:
        changes["nodes"] = tuple(
            Node(name=node.name, kind="router") if node.name in routers else node for node in scenario.nodes
        )
    document = {key: value for key, value in scenario.replace(**changes).as_json().items() if value is not None}
    return SessionPlan(label, Scenario.read(document), host, gateway, plan.text, name, tuple(overrides), devices)


def _far_end(scenario: Scenario, host: str) -> str:
    """The node farthest from the host: the other end of a line, or else the first other host."""
    others = [node.name for node in scenario.nodes if node.kind == "host" and node.name != host]
    if not others:
        raise _problem("--network", "a session needs two hosts")
    return others[0]


def studied(scenario: Scenario) -> LinkSpec:
    """The link that changes of a session concern if they name none: the slowest."""

    def slowest_bps(link: LinkSpec) -> float:
        return min((way.rate_bps or float("inf") for _, way in link.directions()), default=float("inf"))

    return min(scenario.links, key=slowest_bps)


def _problem(where: str, message: str) -> CampaignError:
    return CampaignError(where, [Problem(0, "", message, where)])
