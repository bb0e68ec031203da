"""The campaign files of this repository."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

from experiments.language import registry
from experiments.language.located import Source
from experiments.language.problems import CampaignError
from experiments.language.source import read
from testbed.errors import nearest

#: Contains the campaign files; each paper has a folder in it.
FOLDER = Path(__file__).parent
#: Published values, what the papers leave open, and what report cards ask.
NOT_CAMPAIGNS = ("targets.yaml", "chosen.yaml", "criteria.yaml")


def campaign_files() -> list[str]:
    """The names of all campaign files, relative to their folder, sorted."""
    return sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.yaml") if path.name not in NOT_CAMPAIGNS)


def read_named(path: Path, trust_code: bool = False) -> Source:
    """Reads a campaign file; a path that does not exist may also be the name of one of ours, such as quickstart,
    asym/asym-fig8 or experiments/asym/asym-fig8.yaml. Arguments are those of `read`.

    Raises:
        CampaignError: as `read`; it suggests the closest name of a file in that folder, or of ours.
    """
    if path.exists():
        return read(path, trust_code)
    names = {name.removesuffix(".yaml"): name for name in campaign_files()}
    asked = str(path).removeprefix("experiments/").removesuffix(".yaml")
    found = [asked] if asked in names else [name for name in names if asked == name.rpartition("/")[2]]
    if len(found) == 1:
        return read(FOLDER / names[found[0]])
    try:
        return read(path)
    except CampaignError as error:
        beside = nearest(path.name, [other.name for other in path.parent.glob("*.y*ml")])
        near = found or nearest(asked, names)
        hint = "no campaign of that name comes with Backchannel"
        if beside and not found:
            hint = f"did you mean {path.parent / beside[0]}?"
        elif near:
            hint = f"did you mean {' or '.join(near)}? Those names come with Backchannel"
        raise CampaignError(
            error.file, [replace(problem, message=f"{problem.message}; {hint}") for problem in error.problems]
        ) from None


@cache
def campaign_titles() -> dict[str, str]:
    """The title of each of `campaign_files`; of a file without one, its name."""
    titles = {}
    for name in campaign_files():
        text = (FOLDER / name).read_text(encoding="utf-8")
        title = re.search(r"^title: *(.+)$", text, re.MULTILINE)
        titles[name] = title[1].strip("\"' ") if title else Path(name).stem
    return titles


def fields_in_use() -> set[str]:
    """Fields that the campaign files have. What they include is among them."""
    # To parse them takes seconds.
    texts = [(FOLDER / name).read_text(encoding="utf-8") for name in campaign_files()]
    return {field for text in texts for field in re.findall(r"(?:^|[{\s,])([a-z][\w.-]*):\s", text, re.MULTILINE)}


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
