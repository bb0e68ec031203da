"""Crates of the user's that a campaign file names by their folders (`from: ./mine`), or has attached to its text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analysis import attached
from experiments.language import mechanisms
from experiments.language.located import Source
from experiments.language.problems import CampaignError
from experiments.language.yaml_text import FieldPath
from testbed import own_crates, own_nodes
from testbed.errors import BadRequest
from testbed.own_crates import Crate


def attached_crates(source: Source) -> Iterator[tuple[str, Crate]]:
    """The crates whose sources are attached to a campaign file, by the names that it has for them. Builds nothing.

    Raises:
        BadRequest: attached sources are damaged.
    """
    for folder in dict.fromkeys(folder for _, folder in _folders(source.values, ())):
        if (crate := _attached(source, folder)) is not None:
            yield folder, crate


def crates(source: Source, trust_code: bool) -> dict[str, Crate]:
    """The crates that a file names, by the names that it has for them. Builds nothing.

    Args:
        source: the file.
        trust_code: whether sources that are attached to the file may be built.

    Raises:
        CampaignError: a crate cannot be read, or its code came with the file and is not trusted.
    """
    found: dict[str, Crate] = {}
    for path, name in _folders(source.values, ()):
        try:
            crate = _attached(source, name)
            if crate is None:
                crate = own_crates.read((source.folder or Path()) / name, own_nodes.lockfile())
            elif not trust_code and own_nodes.lack([crate.used]):
                raise ValueError(
                    f"the code of {name} came with this file. It would be compiled and run with your rights. Read "
                    "it first: './backchannel unpack FILE' writes it to a folder. 'run --trust-code' builds it"
                )
        except (ValueError, BadRequest) as error:
            raise CampaignError(source.name, [source.problem(path, str(error))]) from None
        found[name] = crate
    return found


def with_crates_in_use(text: str) -> str:
    """A text without a folder, such as a visitor of the site writes, with the sources of crates that this process uses
    attached. `from: ./mine` there names the crate mine. The text is not parsed, because it may be anybody's.
    """
    for crate in own_nodes.in_use():
        named = rf"""\bfrom['"]?:\s*['"]?(\.{{0,2}}/(?:[^\s,}}'"]+/)?{re.escape(crate.name)})(?=[\s,}}'"]|$)"""
        text = attached.attach(text, dict.fromkeys(re.findall(named, text), crate.text))
    return text


def _attached(source: Source, folder: str) -> Crate | None:
    """The crate whose sources a campaign file has attached for a folder."""
    body = attached.body_of(source.text, folder)
    return None if body is None else own_crates.from_text(body, folder)


def _folders(value: Any, path: FieldPath) -> Iterator[tuple[FieldPath, str]]:
    """Folders of crates in a file, with their fields."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key == mechanisms.FROM and mechanisms.is_folder(item):
                yield (*path, key), item
            else:
                yield from _folders(item, (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _folders(item, (*path, number))
