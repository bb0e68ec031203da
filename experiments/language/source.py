"""Reads a campaign file, or its text, with the files that it names: includes, traces, programs and the user's crates.

`include` names files relative to the file that includes them. The including file overrides their fields.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis import attached
from analysis.declared import INCLUDE
from experiments.language import files, own_code, renamed, yaml_text
from experiments.language.located import FileLine, Source, merge
from experiments.language.problems import CampaignError, Problem
from experiments.language.sections import with_defaults
from experiments.language.yaml_text import FieldPath
from testbed import own_nodes
from testbed.errors import no_file

#: Maximum depth of includes.
MAX_DEPTH = 10
#: The field, and the option of mechanisms, that names a file whose content becomes part of the scenario.
TRACE = "trace"
#: The field of a command that lists its files, whose content becomes part of the scenario too.
FILES = "files"


def read(path: Path, trust_code: bool = False) -> Source:
    """Reads a campaign file and the files that it includes. Where it names crates of the user's, this process uses a
    node with them from here on, which is built if the cache does not have it.

    Args:
        path: the file.
        trust_code: whether sources that are attached to the file may be built too, as those of a bundle are.

    Raises:
        CampaignError: a file cannot be read, is invalid YAML, or is not a mapping.
        TestbedError: as testbed.own_nodes.use.
    """
    source = read_file(path)
    crates = own_code.crates(source, trust_code)
    own_nodes.use(crates.values())
    bodies: dict[str, str] = {}
    for name in sorted(set(_files(source.values, ""))):
        # Validation of the field that names a file reports an unreadable one.
        with contextlib.suppress(ValueError):
            bodies[name] = source.file(name)
    return with_defaults(source.holding(bodies | {name: crate.text for name, crate in crates.items()}))


def parse(name: str, text: str) -> Source:
    """Reads a campaign's text. Opens no file: included files and traces must be attached to the text as comments, as
    they are in `Source.text`.

    Raises:
        CampaignError: the text is invalid YAML, is not a mapping, or lacks a file that it includes.
    """
    return with_defaults(_with_includes(name, text, _from_nowhere, ()))


def read_file(path: Path) -> Source:
    """A file with its includes. Traces, programs and crates that it names are not read, and nothing is built.

    Raises:
        CampaignError: a file cannot be read, is invalid YAML, or is not a mapping.
    """
    # A store keeps the name, and takes texts only.
    name = os.fsencode(path).decode(errors="replace")
    return replace(_with_includes(name, _text(path), _from_files(path), (str(path.resolve()),)), folder=path.parent)


class Absent(Exception):
    """An included file does not exist."""


#: Maps the name in an include to a unique name, the text, and the function for the includes of that text.
Include = Callable[[str], tuple[str, str, "Include"]]


def _from_files(including: Path) -> Include:
    """Finds files relative to the file that includes them."""

    def opened(name: str) -> tuple[str, str, Include]:
        file = including.parent / name
        if not file.is_file():
            raise Absent(no_file(file))
        return str(file.resolve()), _text(file), _from_files(file)

    return opened


def _from_text(body: str) -> Include:
    """Finds an attached text, which contains the texts that it includes."""
    return lambda name: (f"{name}\n{body}", body, _from_nowhere)


def _from_nowhere(name: str) -> tuple[str, str, Include]:
    raise Absent(
        f"files cannot be included here, and {name} is not attached to this text: copy the fields of {name} into it, "
        "or run the file in its folder (./backchannel run)"
    )


def _with_includes(name: str, text: str, include: Include, ancestors: tuple[str, ...]) -> Source:
    including = _parse(name, text)
    wanted = including.values.pop(INCLUDE, None)
    if wanted is None:
        return including

    def fail(path: FieldPath, message: str) -> CampaignError:
        return CampaignError(including.name, [including.problem(path, message, INCLUDE)])

    names = wanted if isinstance(wanted, list) else [wanted]
    if not names or not all(isinstance(file, str) and file for file in names):
        raise fail((INCLUDE,), "expected the name of a file, or a list of names")
    values: dict[str, Any] = {}
    places: dict[FieldPath, FileLine] = {}
    notes: tuple[str, ...] = ()
    bodies = attached.included(text)
    for number, file in enumerate(names):
        at: FieldPath = (INCLUDE, number) if isinstance(wanted, list) else (INCLUDE,)
        try:
            key, body, inner = (_from_text(bodies[file]) if file in bodies else include)(file)
        except Absent as error:
            raise fail(at, str(error)) from None
        if key in ancestors or len(ancestors) >= MAX_DEPTH:
            raise fail(at, f"{file} includes itself through this file")
        included = _with_includes(str(Path(name).parent / file), body, inner, (*ancestors, key))
        values = merge(values, included.values, (), places, included.places)
        notes += included.notes
        if file not in bodies:
            text = attached.include(text, file, included.text)
    values = merge(values, including.values, (), places, including.places)
    places.setdefault((), (including.name, 0))
    return Source(including.name, text, values, places, notes=(*notes, *including.notes))


def _files(value: Any, field: str) -> Iterator[str]:
    """Names of all traces and programs' files in a file. A sweep names fields with dots and holds lists of names."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _files(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from _files(item, field)
    elif isinstance(value, str) and field.rpartition(".")[2] in (TRACE, FILES):
        yield value


def _text(path: Path) -> str:
    try:
        return files.read_path(path)
    except ValueError as error:
        message = str(error).removeprefix(f"{path} ")
        raise CampaignError(str(path), [Problem(0, "", message)]) from None


def _parse(name: str, text: str) -> Source:
    values, lines = yaml_text.parse(name, text)
    notes = tuple(f"{name}:{line}: warning: {note}" for line, note in renamed.notes(lines))
    places = {renamed.path(path): (name, line) for path, line in lines.items()}
    return Source(name, text, renamed.fields(values), places, notes=notes)
