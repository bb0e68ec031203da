"""A session as a campaign file: its lines with every change at its time, and a transfer in place of the program."""

from __future__ import annotations

import io
from typing import Any

from ruamel.yaml import YAML

from analysis.store.documents import SessionDescription
from experiments.sessions.plan import SessionPlan
from testbed.scenario import Scenario

_HEAD = """\
# What the links of a session did, for any campaign: network {label}, {lasted_s:.1f} s, {n_changes} changes.
# The workload is one transfer; replace it by what you want to send through the same links.
"""


def campaign_text(plan: SessionPlan, scenario: Scenario, description: SessionDescription) -> str:
    """The campaign file.

    Args:
        plan: of the session.
        scenario: as it was recorded.
        description: of the session, with its changes.
    """
    links = []
    for link in scenario.links:
        entry: dict[str, Any] = {"name": link.name, "ends": list(link.ends)}
        if link.kind != "point-to-point" or link.options:
            entry["kind"] = {"kind": link.kind, **link.options}
        for way, direction in link.directions():
            fields = _direction(direction.as_json())
            changes = [
                {"at": f"{change.at_s:.6f} s", **change.fields}
                for change in description.changes
                if (change.link, change.direction) == (link.name, way) and change.at_s < scenario.duration_s
            ]
            entry[way] = {**fields, **({"changes": changes} if changes else {})}
        links.append(entry)
    campaign = {
        "name": "session-replay",
        "title": f"Replay of a session: {description.label}",
        # Hosts of the replay are hosts, whether or not they were gateways.
        "network": {
            "nodes": [
                {"name": node.name, "kind": "host" if node.name in (plan.gateway, plan.host) else node.kind}
                for node in scenario.nodes
            ],
            "links": links,
        },
        "stack": _stack(scenario, plan.host),
        "workload": [{"name": "bulk", "from": plan.gateway, "to": plan.host}],
        "duration": f"{scenario.duration_s:.6f} s",
        # The lines of the session, not lines like them.
        "variation": "none",
    }
    out = io.StringIO()
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.dump(campaign, out)
    head = _HEAD.format(label=description.label, lasted_s=description.lasted_s, n_changes=len(description.changes))
    return head + out.getvalue()


def _stack(scenario: Scenario, host: str) -> Any:
    stack = scenario.node(host).stack
    if stack is None:
        return "cubic"
    return {"name": stack.name, **stack.options} if stack.options else stack.name


def _direction(spec: dict[str, Any]) -> dict[str, Any]:
    """A direction's start in the words of a campaign file."""
    queue = {"policy": spec["queue"]["name"], **spec["queue"].get("options", {})}
    if "limit_packets" in queue:
        queue["limit"] = f"{queue.pop('limit_packets')} packets"
    fields: dict[str, Any] = {"delay": f"{spec['delay_s']} s", "queue": queue}
    if spec.get("jitter_s"):
        fields["jitter"] = f"{spec['jitter_s']} s"
    if spec.get("keep_order"):
        fields["keep_order"] = True
    if "rate_bps" in spec:
        fields["rate"] = f"{spec['rate_bps']} bit/s"
    if spec.get("errors"):
        fields["errors"] = [{"model": model["name"], **model.get("options", {})} for model in spec["errors"]]
    options = dict(spec.get("options", {}))
    if "device_buffer_bytes" in options:
        options["device_buffer"] = f"{options.pop('device_buffer_bytes')} bytes"
    return {**fields, **options}
