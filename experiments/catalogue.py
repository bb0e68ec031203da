"""The campaign files of this repository, and those among them that reproduce a paper's artefact.

An artefact's campaign is `experiments/PAPER/*.yaml` with the field `artefact`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TypeVar

from analysis import choices
from analysis.campaign_file import block_for
from experiments.defaults import default_values
from experiments.language import registry
from experiments.language.campaign import Plan, expand
from experiments.language.problems import CampaignError
from experiments.language.source import BACKENDS, Source, read

T = TypeVar("T")

#: Contains the campaign files; each paper has a folder in it.
FOLDER = Path(__file__).parent
#: Published values, and what the papers leave open.
NOT_CAMPAIGNS = ("targets.yaml", choices.FILE)


def campaign_files() -> list[str]:
    """The names of all campaign files, relative to their folder, sorted."""
    return sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.yaml") if path.name not in NOT_CAMPAIGNS)


@cache
def campaign_titles() -> dict[str, str]:
    """The title of each of `campaign_files`; of a file without one, its name."""
    titles = {}
    for name in campaign_files():
        text = (FOLDER / name).read_text(encoding="utf-8")
        title = re.search(r"^title: *(.+)$", text, re.MULTILINE)
        titles[name] = title[1].strip("\"' ") if title else Path(name).stem
    return titles


def campaign_text(name: str) -> str:
    """A campaign file's text with the files that it includes, so that it needs no folder.

    Args:
        name: as `campaign_files` lists it; any other name is rejected, so a request cannot name a path.

    Raises:
        ValueError: no campaign file has this name.
    """
    if name not in campaign_files():
        raise ValueError(registry.unknown("campaign file", name, campaign_files()))
    try:
        return read(FOLDER / name).text
    except CampaignError:
        return (FOLDER / name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Reproduction:
    """A campaign file that reproduces an artefact."""

    artefact: str
    paper: str
    file: Path
    source: Source

    def plan(self, backend: str | None, *, defaults: bool = False) -> Plan:
        """Its runs on its default backend (None) or on another; `defaults` undoes what was chosen for it.

        Raises:
            CampaignError: the file is invalid, or cannot run on that backend.
        """
        overrides = [] if backend is None else [f"backend={backend}"]
        if not defaults:
            return expand(self.source, overrides)
        values = default_values(self.source.values, self.artefact, choices.choices(self.chosen))
        values["name"] += choices.SUFFIX
        plan = expand(replace(self.source, values=values), overrides)
        # `--set` rejects this field, so the unchanged file cannot run under this name.
        return replace(plan, overrides={**plan.overrides, choices.OVERRIDE: choices.FILE})

    @property
    def chosen(self) -> Path:
        """The file that lists what was chosen for the artefacts of its paper."""
        return self.file.with_name(choices.FILE)

    def supports(self, backend: str | None) -> bool:
        """Whether the file is written for a backend: its default (None), or one that it has a `backends` block for."""
        default = str(self.source.values.get("backend", "emulated"))
        if backend in (None, default):
            return True
        return backend is not None and block_for(self.source.values.get(BACKENDS) or {}, backend) is not None


def reproductions() -> list[Reproduction]:
    """Every campaign file with the field `artefact`, sorted by paper and file name.

    Raises:
        CampaignError: a file cannot be read.
    """
    reproductions_ = []
    for path in sorted(FOLDER.glob("*/*.yaml")):
        if path.name in NOT_CAMPAIGNS:
            continue
        source = read(path)
        artefact = source.values.get("artefact")
        if artefact is not None:
            reproductions_.append(Reproduction(str(artefact), path.parent.name, path, source))
    return reproductions_


def select_named(
    items: Sequence[T], names: Sequence[str], names_of: Callable[[T], tuple[str, str]], kind: str
) -> list[T]:
    """The items of some papers and artefacts; all items without a name.

    Args:
        items: to choose from.
        names: of papers and artefacts.
        names_of: returns an item's paper and artefact.
        kind: of such a name, for the error message.

    Raises:
        ValueError: no item has that name.
    """
    papers, artefacts = zip(*map(names_of, items), strict=True)
    for name in names:
        if name not in papers + artefacts:
            raise ValueError(registry.unknown(kind, name, dict.fromkeys(papers + artefacts)))
    return [item for item in items if not names or not set(names).isdisjoint(names_of(item))]


def select_reproductions(
    names: Sequence[str] = (), backend: str | None = None, *, defaults: bool = False
) -> list[Reproduction]:
    """The reproductions of some papers and artefacts; all without a name.

    With a backend, files that are not written for it are left out, unless their artefact is named. `defaults` leaves
    out those for which nothing with a default was chosen.

    Raises:
        ValueError: no paper or artefact has that name, or none of them supports the backend.
        CampaignError: a file cannot be read.
    """
    selected = select_named(
        reproductions(), names, lambda item: (item.paper, item.artefact), "paper or artefact with a campaign file"
    )
    fitting = [item for item in selected if item.artefact in names or item.supports(backend)]
    if defaults:
        affected = choices.with_defaults(FOLDER)
        fitting = [item for item in fitting if item.artefact in affected]
    if not fitting and defaults:
        raise ValueError(f"nothing that was chosen for {' or '.join(names)} has a default")
    if not fitting:
        raise ValueError(f"no artefact of {' or '.join(names) or 'any paper'} has fields for the {backend} backend")
    return fitting
