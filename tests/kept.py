"""Defaults of the campaign language that the papers' campaigns keep (experiments/chosen.yaml).

A campaign that leaves an option to the language's default has chosen that value too. `kept` finds what a campaign
leaves, and `origins` says where each such value comes from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, TypeAdapter
from ruamel.yaml import YAML

from experiments import catalogue
from experiments.language import registry
from experiments.language.campaign import Plan
from experiments.language.mechanisms import Mechanism
from experiments.language.network import Direction, Network
from experiments.language.schema import Campaign, Flow, VariationSpec
from experiments.papers.choices import FILE

#: Fields without an effect on what a simulation does. A kernel, and the limits of real packets, are not simulated.
_WITHOUT_EFFECT = frozenset(
    (
        "artefact",
        "backend",
        "capture",
        "description",
        "fidelity",
        "figure",
        "format",
        "kernel",
        "measures",
        "name",
        "question",
        "split",
        "title",
    )
)
#: Models whose fields are parameters, by the word for them in the file.
_KINDS: Mapping[type[BaseModel], str] = {
    Campaign: "campaign",
    Direction: "direction",
    Flow: "flow",
    Network: "network",
    VariationSpec: "variation",
}


class KeptDefault(NamedTuple):
    """A parameter that a campaign leaves to the language."""

    #: A kind of the registry, or `campaign`, `network`, `direction`, `flow`, `variation`.
    kind: str
    #: Its name in the registry; empty for the others.
    mechanism: str
    #: Without its unit, as campaign files write it.
    option: str
    #: In SI units; None: absent.
    value: Any


class Origin(BaseModel):
    """Where some defaults come from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    #: As `KeptDefault.kind`.
    of: str
    #: Names in the registry; empty: all of the kind.
    mechanisms: tuple[str, ...] = ()
    #: Papers whose campaigns it is about; empty: all.
    papers: tuple[str, ...] = ()
    #: Value by option, in SI units; null: absent; a list: several, of several mechanisms.
    defaults: Mapping[str, Any]
    #: `unused`: the papers have no such mechanism, or nothing follows from the value beside the campaigns' own.
    #: `stated`: by the paper. `standard`: an RFC, or 4.4BSD. The others are as in `Choice.by`.
    by: Literal["unused", "stated", "standard", "ns-2", "authors' script", "manual", "ours"]
    #: Whether the value was computed from a published value. `papers run --defaults` keeps it.
    fitted: bool = False
    reason: str

    def values(self) -> Iterator[tuple[str, Any]]:
        """Each option with each of its values."""
        for option, values in self.defaults.items():
            yield from ((option, value) for value in (values if isinstance(values, list) else [values]))

    def covers(self, kept: KeptDefault, paper: str) -> bool:
        """Whether it lists this parameter with this value, for a paper's campaigns."""
        is_named = self.of == kept.kind and (not self.mechanisms or kept.mechanism in self.mechanisms)
        return (
            is_named
            and (not self.papers or paper in self.papers)
            and any(option == kept.option and _same(value, kept.value) for option, value in self.values())
        )


_ORIGINS = TypeAdapter(tuple[Origin, ...])


def _same(first: Any, second: Any) -> bool:
    """Whether two values are equal. True is not 1."""
    return isinstance(first, bool) == isinstance(second, bool) and first == second


@cache
def origins() -> tuple[Origin, ...]:
    """The origins of all defaults that campaigns of papers keep."""
    path = catalogue.FOLDER / FILE
    return _ORIGINS.validate_python(YAML(typ="safe").load(path.read_text("utf-8")))


def origin_of(kept: KeptDefault, paper: str) -> Origin | None:
    """Where a default comes from that a paper's campaign keeps: the first entry of the file that covers it."""
    return next((origin for origin in origins() if origin.covers(kept, paper)), None)


def kept(plan: Plan) -> frozenset[KeptDefault]:
    """What a campaign leaves to the language at any of its points."""
    return frozenset(found for campaign in plan.campaigns() for found in _of_model(campaign))


def _of_model(model: BaseModel) -> Iterator[KeptDefault]:
    kind = _KINDS.get(type(model))
    for name in type(model).model_fields:
        if name in _WITHOUT_EFFECT:
            continue
        value = getattr(model, name)
        is_kept = kind is not None and name not in model.model_fields_set
        if isinstance(value, Mechanism):
            if is_kept:
                yield KeptDefault(str(kind), "", name, value.name)
            yield from _of_mechanism(value.KIND, value.name, value.options)
        elif isinstance(value, BaseModel):
            yield from _of_model(value)
        elif isinstance(value, list) and value:
            yield from (found for part in value if isinstance(part, BaseModel) for found in _of_part(part))
        elif is_kept:
            yield KeptDefault(str(kind), "", name, _plain(value))
    if isinstance(model, Flow):
        yield from _of_mechanism("workload", model.kind, model.options)


def _of_part(part: BaseModel) -> Iterable[KeptDefault]:
    return _of_mechanism(part.KIND, part.name, part.options) if isinstance(part, Mechanism) else _of_model(part)


def _of_mechanism(kind: str, name: str, options: Mapping[str, Any]) -> Iterator[KeptDefault]:
    for param in registry.find(kind, name).params:
        if param.name not in options:
            yield KeptDefault(kind, name, param.short, param.default)
        elif param.unit == "policy":
            child = options[param.name]
            yield from _of_mechanism("policy", child["name"], child.get("options", {}))


def _plain(value: Any) -> Any:
    """A field's default as a file would have it: an empty list or mapping is absent."""
    if isinstance(value, tuple):
        return value[0] if len(set(value)) == 1 else list(value)
    return None if value in ([], {}) else value
