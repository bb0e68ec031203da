"""A run's id: a hash of everything that determines its result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.language import registry

#: Part of each id. Raise it when equal scenarios come to give other results.
FORMAT = 1


def run_identity(backend: str, scenario: Mapping[str, Any]) -> str:
    """A run's id: a hash of everything that determines its result, the same on every machine.

    What a scenario leaves to the registry's defaults enters it as those defaults: a default that is written out makes
    no other run, and one that is changed does.
    """
    whole = {
        **scenario,
        "nodes": [
            {**node, "stack": _spelled_out("stack", node["stack"])} if "stack" in node else node
            for node in scenario["nodes"]
        ],
        "links": [
            {
                **link,
                **_spelled_out("link", {"name": link["kind"], "options": link["options"]}, ("options",)),
                **_spelled_out_boxes(link),
                "forward": _spelled_out_direction(link["forward"]),
                "reverse": _spelled_out_direction(link["reverse"]),
            }
            for link in scenario["links"]
        ],
        "workload": [_spelled_out_flow(flow) for flow in scenario["workload"]],
    }
    identity = {"format": FORMAT, "backend": backend, "scenario": whole}
    return hashlib.sha256(canonical_json(identity).encode()).hexdigest()[:24]


def canonical_json(value: Any) -> str:
    """One text for equal values: sorted keys, no spaces, ASCII, no whole number written as a fraction."""
    return json.dumps(_whole(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _whole(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


def _spelled_out_flow(flow: Mapping[str, Any]) -> dict[str, Any]:
    if flow["kind"] == "bulk":
        return dict(flow)
    named = {"name": flow["kind"], "options": flow.get("options", {})}
    return {**flow, **_spelled_out("workload", named, ("options",))}


def _spelled_out(kind: str, named: Mapping[str, Any], keys: Sequence[str] = ("name", "options")) -> dict[str, Any]:
    entry = registry.find(kind, named["name"])
    defaults = {param.name: param.default for param in entry.params if param.default is not None}
    return {key: {**defaults, **named["options"]} if key == "options" else named[key] for key in keys}


def _spelled_out_boxes(link: Mapping[str, Any]) -> dict[str, Any]:
    if "middleboxes" not in link:
        return {}
    return {"middleboxes": [{**box, **_spelled_out("middlebox", box)} for box in link["middleboxes"]]}


def _spelled_out_direction(direction: Mapping[str, Any]) -> dict[str, Any]:
    whole = {**direction, "queue": _spelled_out("policy", direction["queue"])}
    if "errors" in direction:
        whole["errors"] = [_spelled_out("error-model", model) for model in direction["errors"]]
    return whole
