"""What the text of a stored campaign declares, with the files that it includes and the fields of its backend.

Any other text, which a bundle may have, declares nothing. Values are as the file has them, not validated.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from analysis import attached
from analysis.backend_blocks import block_for

#: The field that names included files.
INCLUDE = "include"


@lru_cache(maxsize=256)
def values_of(text: str) -> Mapping[str, Any]:
    """The fields of a campaign file's text and of the files that it includes, whose texts are attached to it."""
    try:
        values = YAML(typ="safe").load(text)
    except YAMLError:
        return {}
    if not isinstance(values, dict):
        return {}
    under: dict[str, Any] = {}
    if names := values.pop(INCLUDE, None):
        bodies = attached.included(text)
        for name in names if isinstance(names, list) else [names]:
            if isinstance(name, str) and name in bodies:
                under = _over(under, values_of(bodies[name]))
    # A variant of a paper's campaign is not that campaign.
    under.pop("artefact", None)
    return _over(under, values)


def on_backend(text: str, name: str, backend: str) -> Mapping[str, Any]:
    """A mapping of a campaign file's text with what is written for a backend, which may be the emulated one's for the
    virtual kernel; empty without any.
    """
    values = values_of(text)
    blocks: Any = values.get("backends")
    block = blocks.get(block_for(blocks, backend)) if isinstance(blocks, dict) else None
    parts = [part.get(name) for part in (values, block) if isinstance(part, dict)]
    return {key: value for part in parts if isinstance(part, dict) for key, value in part.items()}


def _over(under: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A file over the files that it includes: mappings are merged key by key, and null removes a field."""
    merged = {**under, **values}
    for key, value in values.items():
        if isinstance(value, dict) and isinstance(under.get(key), dict):
            merged[key] = _over(under[key], value)
        elif value is None:
            del merged[key]
    return merged
