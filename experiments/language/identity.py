"""Ids of runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.exchange_kinds import FOUND_DATAGRAMS
from experiments.language import registry, renamed
from testbed.scenario import Document

#: Part of every id. Increase it when equal scenarios give different results than before.
FORMAT = 1
#: Options with another name than when they first entered ids.
NAMES_IN_IDS = {now: before for before, now in renamed.FIELDS.items()}
#: Stacks with another name than when they first entered ids. What has such a name now has other defaults, and so other
#: ids.
STACKS_IN_IDS = {"cubic-sack": "modern"}


def run_identity(backend: str, scenario: Document, installation: Document | None = None) -> str:
    """A run's id: a hash of everything that determines its result, the same on every machine.

    On real hosts that includes what plays nodes and links (testbed.installation).

    Options that a scenario leaves out enter the hash with the registry's defaults. Writing a default out keeps the id,
    and changing a default in the registry changes it. A mechanism of a crate of the user's has its options as they are:
    the scenario has the digest of the crate, and ids can be found where the crate is not.
    """
    elsewhere = bool(scenario.get("crates"))
    complete = {
        **scenario,
        "nodes": [
            {**node, "stack": _with_defaults("stack", node["stack"], elsewhere)} if "stack" in node else node
            for node in scenario["nodes"]
        ],
        "links": [
            {
                **link,
                **_with_defaults("link", {"name": link["kind"], "options": link["options"]}, elsewhere, ("options",)),
                **_boxes_with_defaults(link, elsewhere),
                "forward": _direction_with_defaults(link["forward"], elsewhere),
                "reverse": _direction_with_defaults(link["reverse"], elsewhere),
            }
            for link in scenario["links"]
        ],
        "workload": [_flow_with_defaults(flow, elsewhere) for flow in scenario["workload"]],
    }
    identity = {"format": FORMAT, "backend": backend, "scenario": complete}
    if installation is not None:
        identity["installation"] = installation
    return hashlib.sha256(canonical_json(identity).encode()).hexdigest()[:24]


def canonical_json(value: Any) -> str:
    """The same text for equal values: sorted keys, no spaces, ASCII, integers without a decimal point, and the
    names with which options first entered ids.
    """
    return json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _canonical(value: Any) -> Any:
    match value:
        # Most values are these, and asking whether something is a mapping takes longest.
        case str() | int() | None:
            return value
        case float():
            return int(value) if value.is_integer() and abs(value) < 2**53 else value
        case list() | tuple():
            return [_canonical(item) for item in value]
        case Mapping():
            return {NAMES_IN_IDS.get(key, key): _canonical(item) for key, item in value.items()}
    return value


def _flow_with_defaults(flow: Document, elsewhere: bool) -> dict[str, Any]:
    if flow.get("stack") is not None:
        flow = {**flow, "stack": {**flow["stack"], "name": _stack_in_ids(flow["stack"]["name"])}}
    if flow["kind"] in ("bulk", FOUND_DATAGRAMS):
        return dict(flow)
    named = {"name": flow["kind"], "options": flow.get("options", {})}
    return {**flow, **_with_defaults("workload", named, elsewhere, ("options",))}


def _with_defaults(
    kind: str, named: Document, elsewhere: bool, keys: Sequence[str] = ("name", "options")
) -> dict[str, Any]:
    """With `elsewhere`, a name that this node does not have is that of a mechanism of one of the scenario's crates."""
    try:
        entry = registry.find(kind, named["name"])
    except ValueError:
        if not elsewhere:
            raise
        return {key: named[key] for key in keys}
    if entry.crate:
        return {key: named[key] for key in keys}
    params = [param for param in entry.params if not param.crate]
    options = {param.name: param.default for param in params if param.default is not None} | named["options"]
    children = {param.name for param in params if param.unit == "policy"} & options.keys()
    limit = named["options"].get("limit_packets")
    if children and limit is not None and limit == entry.param("limit_packets").default:
        # Over a child the default of this limit does not apply, so that writing it out makes another policy.
        options["limit_packets_is_set"] = True
    options |= {name: _with_defaults("policy", options[name], elsewhere) for name in children}
    name = _stack_in_ids(named["name"]) if kind == "stack" else named["name"]
    return {key: options if key == "options" else name for key in keys}


def _stack_in_ids(name: str) -> str:
    return STACKS_IN_IDS.get(name, name)


def _boxes_with_defaults(link: Document, elsewhere: bool) -> dict[str, Any]:
    if "middleboxes" not in link:
        return {}
    return {"middleboxes": [{**box, **_with_defaults("middlebox", box, elsewhere)} for box in link["middleboxes"]]}


def _direction_with_defaults(direction: Document, elsewhere: bool) -> dict[str, Any]:
    complete = {**direction, "queue": _with_defaults("policy", direction["queue"], elsewhere)}
    if "errors" in direction:
        complete["errors"] = [_with_defaults("error-model", model, elsewhere) for model in direction["errors"]]
    return complete
