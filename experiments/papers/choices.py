"""Choices files (experiments/PAPER/chosen.yaml): parameters of campaigns that the papers do not state.

`papers run --defaults` runs artefacts with the defaults of these parameters; the scorecard counts what then passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, model_validator
from ruamel.yaml import YAML

from experiments import catalogue
from experiments.language.quantities import Model

#: Name of a choices file; it is not a campaign.
FILE = "chosen.yaml"
#: Ends the name of a campaign that ran with defaults.
SUFFIX = "-defaults"
#: Entry of that campaign's overrides.
OVERRIDE = "defaults"


class Choice(Model):
    """Fields of some artefacts' campaigns and the value that was chosen for each."""

    artefacts: tuple[str, ...]
    #: Path in the campaign file to the value there. "*" stands for every flow.
    fields: Mapping[str, Any]
    #: `language`: the default where the field is absent. `none`: there is no default, or it contradicts the paper.
    #: Anything else is the default itself.
    default: str
    #: Source of the value.
    by: Literal["ours", "ns-2", "authors' script", "manual"]
    #: Other values that the sources allow, each for some of the fields. `papers score --sensitivity` runs them.
    alternatives: tuple[Mapping[str, Any], ...] = ()
    #: `after` the artefact was first scored; `unknown` if the campaign's first version has the value, because scores
    #: could be computed then.
    when: Literal["before", "after", "unknown"]
    reason: str

    @model_validator(mode="after")
    def _alternatives_are_of_these_fields(self) -> Choice:
        for alternative in self.alternatives:
            unknown = [field for field in alternative if field not in self.fields]
            if unknown or not alternative:
                raise ValueError(f"alternatives are values of {', '.join(self.fields)}, not of {unknown or 'nothing'}")
        return self

    @property
    def has_default(self) -> bool:
        """Whether `papers run --defaults` changes these fields."""
        return self.default != "none"


_CHOICES = TypeAdapter(tuple[Choice, ...])


@cache
def choices(path: Path) -> tuple[Choice, ...]:
    """The choices of a file."""
    return _CHOICES.validate_python(YAML(typ="safe").load(path.read_text()))


def all_choices() -> Iterator[Choice]:
    """The choices of all papers, in the order of their folders."""
    for path in sorted(catalogue.FOLDER.glob(f"*/{FILE}")):
        yield from choices(path)


def with_defaults() -> frozenset[str]:
    """Artefacts of which at least one chosen parameter has a default."""
    return frozenset(name for choice in all_choices() if choice.has_default for name in choice.artefacts)
