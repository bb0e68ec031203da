"""What a stored campaign's text declares: its artefact, measures and figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from analysis.declared import on_backend, values_of
from experiments.language.measures import AnyForm, Measure, Split

_MEASURES = TypeAdapter[dict[str, AnyForm]](dict[str, Measure])
_SPLITS = TypeAdapter(list[Split])


@dataclass(frozen=True)
class CampaignFile:
    """A campaign file's text. Measures and figure are validated when they are asked for: a bundle may hold any text."""

    text: str

    @property
    def _values(self) -> Mapping[str, Any]:
        return values_of(self.text)

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
        return _MEASURES.validate_python(on_backend(self.text, "measures", backend))

    def splits(self) -> list[Split]:
        """Rules that split the runs of a point.

        Raises:
            pydantic.ValidationError: the field has another form.
        """
        return _SPLITS.validate_python(self._values.get("split") or [])

    def figure(self, backend: str) -> Any:
        """Its figure on a backend, to be validated as a FigureSpec; None without one."""
        return on_backend(self.text, "figure", backend) or None
