"""What a stored campaign's text declares: its artefact, measures and figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from analysis.backend_blocks import block_for
from experiments.language.measures import AnyForm, Measure, Split

_MEASURES = TypeAdapter[dict[str, AnyForm]](dict[str, Measure])
_SPLITS = TypeAdapter(list[Split])


@dataclass(frozen=True)
class CampaignFile:
    """A campaign file. Measures and figure are validated when they are asked for: a bundle may hold any text."""

    _values: Mapping[str, Any]

    @property
    def artefact(self) -> str | None:
        """Id of the published artefact that it reproduces."""
        artefact = self._values.get("artefact")
        return None if artefact is None else str(artefact)

    @property
    def title(self) -> str:
        """Its title; may be empty."""
        return str(self._values.get("title", ""))

    @property
    def description(self) -> str:
        """Its description on one line; may be empty."""
        return " ".join(str(self._values.get("description") or "").split())

    def measures(self, backend: str) -> dict[str, AnyForm]:
        """Its measures on a backend (`backends` in docs/campaigns.md).

        Raises:
            pydantic.ValidationError: they are none.
        """
        return _MEASURES.validate_python(self._on(backend, "measures") or {})

    def splits(self) -> list[Split]:
        """Rules that split the runs of a point.

        Raises:
            pydantic.ValidationError: the field has another form.
        """
        return _SPLITS.validate_python(self._values.get("split") or [])

    def figure(self, backend: str) -> Any:
        """Its figure on a backend, to be validated as a FigureSpec; None without one."""
        return self._on(backend, "figure")

    def _on(self, backend: str, name: str) -> Any:
        blocks = self._values.get("backends") or {}
        of_backend = (blocks.get(block_for(blocks, backend)) or {}).get(name)
        return self._values.get(name) if of_backend is None else {**(self._values.get(name) or {}), **of_backend}


@cache
def read(text: str) -> CampaignFile:
    """A campaign file's text. Any other text, which a bundle may have, gives an empty one."""
    try:
        values = YAML(typ="safe").load(text)
    except YAMLError:
        return CampaignFile({})
    return CampaignFile(values if isinstance(values, dict) else {})
