"""Crates of the user's that a campaign file names by their folders (`from: ./mine`).

Their sources are attached to the file's text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
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
        if (body := attached.body_of(source.text, folder)) is not None:
            yield folder, own_crates.from_text(body, folder)


def with_crates(source: Source, trust_code: bool) -> Source:
    """Attaches the crates that a file names to its text, and lets this process use a node with them.

    Args:
        source: the file.
        trust_code: whether sources that came attached to the file may be built.

    Raises:
        CampaignError: a crate cannot be read, or its code came with the file and is not trusted.
        TestbedError: as testbed.own_nodes.use.
    """
    text, crates = source.text, []
    for path, name in _folders(source.values, ()):
        try:
            body = attached.body_of(text, name)
            if body is None:
                crate = own_crates.read((source.folder or Path()) / name, own_nodes.lockfile())
                text = attached.attach(text, name, crate.text)
            else:
                crate = own_crates.from_text(body, name)
                came_along = attached.body_of(source.text, name) is not None
                if came_along and not trust_code and own_nodes.lack([crate.used]):
                    raise ValueError(
                        f"the code of {name} came with this file. It would be compiled and run with your rights. Read "
                        "it first: './backchannel unpack FILE' writes it to a folder. 'run --trust-code' builds it"
                    )
        except (ValueError, BadRequest) as error:
            raise CampaignError(source.name, [source.problem(path, str(error))]) from None
        crates.append(crate)
    own_nodes.use(crates)
    return replace(source, text=text)


def with_crate(source: Source, folder: str, crate: Crate) -> Source:
    """The source with the crate of a folder attached, so that an override of one of its fields may name the folder."""
    return replace(source, text=attached.attach(source.text, folder, crate.text))


def with_crates_in_use(text: str) -> str:
    """A text without a folder, such as a visitor of the site writes, with the sources of crates that this process uses
    attached. `from: ./mine` there names the crate mine. The text is not parsed, because it may be anybody's.
    """
    for crate in own_nodes.in_use():
        named = rf"""\bfrom['"]?:\s*['"]?(\.{{0,2}}/(?:[^\s,}}'"]+/)?{re.escape(crate.name)})(?=[\s,}}'"]|$)"""
        for folder in dict.fromkeys(re.findall(named, text)):
            if attached.body_of(text, folder) is None:
                text = attached.attach(text, folder, crate.text)
    return text


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
