"""The sections `defaults` and `backends` of a campaign file.

`defaults` holds the fields of flows, links, nodes and directions that do not set them. `backends` holds the fields that
a file has on one backend only.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from analysis.backend_blocks import block_for
from experiments.language import registry
from experiments.language.backends import Backend
from experiments.language.located import Source, below, drop, merge, moved
from experiments.language.problems import CampaignError
from experiments.language.yaml_text import FieldPath

DEFAULTS, BACKENDS = "defaults", "backends"
#: Keys of `defaults` in the order of their application: a default link may contain directions.
_KINDS = ("flow", "node", "link", "direction")


def _take_blocks(source: Source, section: str, kind: str, allowed: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The mappings of a section by their keys.

    Raises:
        CampaignError: unknown keys, or values that are not mappings; `kind` names the keys in messages.
    """
    blocks = source.values[section]
    if not isinstance(blocks, dict):
        message = f"expected a mapping with these keys: {', '.join(allowed)}"
        raise CampaignError(source.name, [source.problem((section,), message)])
    problems = []
    for name, block in blocks.items():
        if name not in allowed:
            problems.append(source.problem((section, name), registry.unknown(kind, name, allowed)))
        elif not isinstance(block, dict):
            problems.append(source.problem((section, name), "expected a mapping of fields"))
        elif section == BACKENDS and (BACKENDS in block or "backend" in block):
            problems.append(source.problem((section, name), "the fields of a backend cannot set the backend"))
    if problems:
        raise CampaignError(source.name, problems)
    return blocks


def with_defaults(source: Source) -> Source:
    """Merges `defaults` into every flow, link, node and direction."""
    if DEFAULTS not in source.values:
        return source
    defaults = _take_blocks(source, DEFAULTS, "default", _KINDS)
    values, places = copy.deepcopy(source.values), dict(source.places)
    del values[DEFAULTS]
    for kind in _KINDS:
        if kind not in defaults:
            continue
        at: FieldPath = (DEFAULTS, kind)
        for path, holder in _entries(kind, values):
            explicit = below(path, places)
            drop(path, places)
            places |= moved(at, path, source.places)
            places.pop(path, None)
            holder[path[-1]] = merge(copy.deepcopy(defaults[kind]), holder[path[-1]], path, places, explicit)
    return replace(source, values=values, places=places)


def for_backend(source: Source, backend: str) -> Source:
    """The file with the fields that it has under `backends` for a backend.

    Raises:
        CampaignError: the file names an unknown backend.
    """
    if BACKENDS not in source.values:
        return source
    blocks = _take_blocks(source, BACKENDS, "backend", list(Backend))
    values, places = copy.deepcopy(source.values), dict(source.places)
    del values[BACKENDS]
    if (block := block_for(blocks, backend)) is not None:
        values = merge(values, blocks[block], (), places, moved((BACKENDS, block), (), source.places))
    drop((BACKENDS,), places)
    return replace(source, values=values, places=places)


def _entries(kind: str, values: dict[str, Any]) -> list[tuple[FieldPath, Any]]:
    """Every mapping of a kind: its path, and the list or mapping that holds it."""
    network = values.get("network")
    network = network if isinstance(network, dict) else {}
    nodes, links, flows = (
        _list(value) for value in (network.get("nodes"), network.get("links"), values.get("workload"))
    )
    places: list[tuple[FieldPath, Any]]
    match kind:
        case "flow":
            places = [(("workload", number), flows) for number in range(len(flows))]
        case "node":
            places = [(("network", "nodes", number), nodes) for number in range(len(nodes))]
        case "link":
            places = [(("network", "links", number), links) for number in range(len(links))]
        case _:
            around = [
                (("network",), network),
                *((("network", "links", n), link) for n, link in enumerate(links) if isinstance(link, dict)),
            ]
            places = [
                ((*path, side), holder) for path, holder in around for side in ("forward", "reverse") if side in holder
            ]
    return [(path, holder) for path, holder in places if isinstance(holder[path[-1]], dict)]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
