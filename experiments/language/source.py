"""A YAML file as plain values, each with its file and line. Applies `include`, `defaults` and `backends`.

`include` names files relative to the file that includes them. The including file overrides their fields: mappings are
merged key by key, other values are replaced, and null removes a field. A mechanism that gets another name loses its
included options. `defaults` holds the fields of flows, links, nodes and directions that do not set them.
"""

from __future__ import annotations

import contextlib
import copy
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.backend_blocks import block_for
from experiments.language import files, mechanisms, packed, registry, renamed, yaml_text
from experiments.language.problems import CampaignError, Problem, dotted
from experiments.language.yaml_text import FieldPath
from testbed import own_crates, own_nodes
from testbed.errors import BadRequest, no_file
from testbed.own_crates import Crate

#: File and line of a value.
FileLine = tuple[str, int]
INCLUDE, DEFAULTS, BACKENDS = "include", "defaults", "backends"
#: Maximum depth of includes.
MAX_DEPTH = 10
#: Ends the comment above an attached text. Texts that the attached text includes are comments within it.
_HEAD = ", which is included above:"
_ATTACHED = re.compile(rf"# (?!# )(.+){re.escape(_HEAD)}")
#: The field, and the option of mechanisms, that names a file whose content becomes part of the scenario.
TRACE = "trace"
#: The field of a command that lists its files, whose content becomes part of the scenario too.
FILES = "files"
#: Fields that hold a mechanism, with the key of its name when it is written as a mapping.
MECHANISMS = {"queue": "policy", "stack": "name", "link": "kind", "middlebox": "middlebox"}
#: Keys of `defaults` in the order of their application: a default link may contain directions.
_KINDS = ("flow", "node", "link", "direction")


@dataclass(frozen=True)
class Source:
    """The values of a file and of the files that it includes."""

    name: str
    #: The file, with included files attached as comments: the text is complete without them (`parse` finds them).
    text: str
    values: dict[str, Any]
    places: Mapping[FieldPath, FileLine]
    #: Folder of the files that it names; None for a text without a folder.
    folder: Path | None = None
    #: Warnings about names of earlier versions, with their places.
    notes: tuple[str, ...] = ()

    def file(self, name: str) -> str:
        """The text of a file that this one names: attached to its text, or in its folder.

        Raises:
            ValueError: the file cannot be read.
        """
        attached = packed.body_of(self.text, name)
        if attached is not None:
            return attached
        return files.no_file(name) if self.folder is None else files.read_path(self.folder / name)

    def place(self, path: FieldPath) -> FileLine:
        """File and line of a value, or of the innermost mapping or list around it that a file contains."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.places:
                return self.places[path[:end]]
        return self.name, 0

    def problem(self, path: FieldPath, message: str, field: str = "") -> Problem:
        """A problem with the place of a value; `field` is its name, if not the path's."""
        file, line = self.place(path)
        return Problem(line, field or dotted(path), message, "" if file == self.name else f"{file}:{line}")


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
    return _with_defaults(_with_crates(_with_traces(_from_file(path)), trust_code))


def attached_crates(path: Path) -> Iterator[tuple[str, Crate]]:
    """The crates whose sources are attached to a campaign file, by the names that it has for them. Builds nothing.

    Raises:
        CampaignError: the file cannot be read.
        BadRequest: attached sources are damaged.
    """
    source = _from_file(path)
    for folder in dict.fromkeys(folder for _, folder in _folders(source.values, ())):
        attached = packed.body_of(source.text, folder)
        if attached is not None:
            yield folder, own_crates.from_text(attached, folder)


def parse(name: str, text: str) -> Source:
    """Reads a campaign's text. Opens no file: included files and traces must be attached to the text as comments, as
    they are in `Source.text`.

    Raises:
        CampaignError: the text is invalid YAML, is not a mapping, or lacks a file that it includes.
    """
    return _with_defaults(_with_includes(name, text, _from_nowhere, ()))


def _from_file(path: Path) -> Source:
    """A file with its includes."""
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


def _from_text(attached: str) -> Include:
    """Finds an attached text, which contains the texts that it includes."""
    return lambda name: (f"{name}\n{attached}", attached, _from_nowhere)


def _from_nowhere(name: str) -> tuple[str, str, Include]:
    raise Absent(
        f"files cannot be included here, and {name} is not attached to this text: copy the fields of {name} into it, "
        "or run the file in its folder (./backchannel run)"
    )


def _attached(text: str) -> dict[str, str]:
    """Attached texts by the name under which they are included."""
    attached: dict[str, list[str]] = {}
    lines: list[str] | None = None
    for line in text.splitlines():
        head = _ATTACHED.fullmatch(line)
        if head is not None:
            lines = attached.setdefault(head[1], [])
        elif packed.begins(line):
            lines = None
        elif lines is not None and line.startswith("#"):
            lines.append(line.removeprefix("#").removeprefix(" "))
    return {name: "\n".join(lines).strip("\n") + "\n" for name, lines in attached.items()}


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
    attached = _attached(text)
    for number, file in enumerate(names):
        at: FieldPath = (INCLUDE, number) if isinstance(wanted, list) else (INCLUDE,)
        try:
            key, body, inner = (_from_text(attached[file]) if file in attached else include)(file)
        except Absent as error:
            raise fail(at, str(error)) from None
        if key in ancestors or len(ancestors) >= MAX_DEPTH:
            raise fail(at, f"{file} includes itself through this file")
        included = _with_includes(str(Path(name).parent / file), body, inner, (*ancestors, key))
        values = _merge(values, included.values, (), places, included.places)
        notes += included.notes
        if file not in attached:
            commented = "".join(f"# {line}".rstrip() + "\n" for line in included.text.splitlines())
            text = f"{text.rstrip()}\n\n# {file}{_HEAD}\n{commented}"
    values = _merge(values, including.values, (), places, including.places)
    places.setdefault((), (including.name, 0))
    return Source(including.name, text, values, places, notes=(*notes, *including.notes))


def _with_traces(source: Source) -> Source:
    """Attaches traces and programs' files to the text that names them, so that it is complete without its folder."""
    text = source.text
    for name in sorted(set(_traces(source.values, ""))):
        if packed.body_of(text, name) is None:
            # Validation of the field that names the trace reports an unreadable file.
            with contextlib.suppress(ValueError):
                text = packed.attach(text, name, source.file(name))
    return replace(source, text=text)


def _with_crates(source: Source, trust_code: bool) -> Source:
    """Attaches the crates that a file names to its text, and lets this process use a node with them."""
    text, crates = source.text, []
    for path, name in _folders(source.values, ()):
        try:
            attached = packed.body_of(text, name)
            if attached is None:
                crate = own_crates.read((source.folder or Path()) / name, own_nodes.lockfile())
                text = packed.attach(text, name, crate.text)
            else:
                crate = own_crates.from_text(attached, name)
                came_along = packed.body_of(source.text, name) is not None
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
    return replace(source, text=packed.attach(source.text, folder, crate.text))


def with_crates_in_use(text: str) -> str:
    """A text without a folder, such as a visitor of the site writes, with the sources of crates that this process uses
    attached. `from: ./mine` there names the crate mine. The text is not parsed, because it may be anybody's.
    """
    for crate in own_nodes.in_use():
        named = rf"""\bfrom['"]?:\s*['"]?(\.{{0,2}}/(?:[^\s,}}'"]+/)?{re.escape(crate.name)})(?=[\s,}}'"]|$)"""
        for folder in dict.fromkeys(re.findall(named, text)):
            if packed.body_of(text, folder) is None:
                text = packed.attach(text, folder, crate.text)
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


def _traces(value: Any, field: str) -> Iterator[str]:
    """Names of all traces and programs' files in a file. A sweep names fields with dots and holds lists of names."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _traces(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from _traces(item, field)
    elif isinstance(value, str) and field.rpartition(".")[2] in (TRACE, FILES):
        yield value


def _merge(
    under: Any, over: Any, path: FieldPath, places: dict[FieldPath, FileLine], over_places: Mapping[FieldPath, FileLine]
) -> Any:
    """`under` overridden by `over`. `places` holds the places of `under` and receives those of the result."""
    name_key = MECHANISMS.get(str(path[-1])) if path else None
    if name_key is not None and isinstance(under, str) and isinstance(over, dict) and name_key not in over:
        under = {name_key: under}
    if isinstance(under, dict) and isinstance(over, dict):
        same = name_key is None or over.get(name_key, under.get(name_key)) == under.get(name_key)
        if same:
            merged = dict(under)
            for key, value in over.items():
                inner = (*path, key)
                if value is None:
                    merged.pop(key, None)
                    _drop(inner, places)
                else:
                    merged[key] = _merge(under.get(key), value, inner, places, over_places)
            if path in over_places:
                places[path] = over_places[path]
            return merged
    _drop(path, places)
    places |= _below(path, over_places)
    return over


def _below(path: FieldPath, places: Mapping[FieldPath, FileLine]) -> dict[FieldPath, FileLine]:
    return {known: place for known, place in places.items() if known[: len(path)] == path}


def _moved(path: FieldPath, target: FieldPath, places: Mapping[FieldPath, FileLine]) -> dict[FieldPath, FileLine]:
    """The places below `path`, as paths below `target`."""
    return {(*target, *known[len(path) :]): place for known, place in _below(path, places).items()}


def _drop(path: FieldPath, places: dict[FieldPath, FileLine]) -> None:
    for known in _below(path, places):
        del places[known]


def _take_blocks(source: Source, section: str, kind: str, allowed: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The mappings of a section by their keys.

    Raises:
        CampaignError: unknown keys, or values that are not mappings; `kind` names the keys in messages.
    """
    blocks = source.values[section]
    if not isinstance(blocks, dict):
        message = f"expected a mapping with these keys: {', '.join(allowed)}"
        raise CampaignError(source.name, [source.problem((section,), message)])
    problems = []
    for name, block in blocks.items():
        if name not in allowed:
            problems.append(source.problem((section, name), registry.unknown(kind, name, allowed)))
        elif not isinstance(block, dict):
            problems.append(source.problem((section, name), "expected a mapping of fields"))
        elif section == BACKENDS and (BACKENDS in block or "backend" in block):
            problems.append(source.problem((section, name), "the fields of a backend cannot set the backend"))
    if problems:
        raise CampaignError(source.name, problems)
    return blocks


def _with_defaults(source: Source) -> Source:
    """Merges `defaults` into every flow, link, node and direction."""
    if DEFAULTS not in source.values:
        return source
    defaults = _take_blocks(source, DEFAULTS, "default", _KINDS)
    values, places = copy.deepcopy(source.values), dict(source.places)
    del values[DEFAULTS]
    for kind in _KINDS:
        if kind not in defaults:
            continue
        at: FieldPath = (DEFAULTS, kind)
        for path, holder in _entries(kind, values):
            explicit = _below(path, places)
            _drop(path, places)
            places |= _moved(at, path, source.places)
            places.pop(path, None)
            holder[path[-1]] = _merge(copy.deepcopy(defaults[kind]), holder[path[-1]], path, places, explicit)
    return replace(source, values=values, places=places)


def for_backend(source: Source, backend: str, known: Iterable[str]) -> Source:
    """The file with the fields that it has under `backends` for a backend.

    Raises:
        CampaignError: the file names a backend that is not `known`.
    """
    if BACKENDS not in source.values:
        return source
    blocks = _take_blocks(source, BACKENDS, "backend", list(known))
    values, places = copy.deepcopy(source.values), dict(source.places)
    del values[BACKENDS]
    if (block := block_for(blocks, backend)) is not None:
        values = _merge(values, blocks[block], (), places, _moved((BACKENDS, block), (), source.places))
    _drop((BACKENDS,), places)
    return replace(source, values=values, places=places)


def _entries(kind: str, values: dict[str, Any]) -> list[tuple[FieldPath, Any]]:
    """Every mapping of a kind: its path, and the list or mapping that holds it."""
    network = values.get("network")
    network = network if isinstance(network, dict) else {}
    nodes, links, flows = (
        _list(value) for value in (network.get("nodes"), network.get("links"), values.get("workload"))
    )
    places: list[tuple[FieldPath, Any]]
    match kind:
        case "flow":
            places = [(("workload", number), flows) for number in range(len(flows))]
        case "node":
            places = [(("network", "nodes", number), nodes) for number in range(len(nodes))]
        case "link":
            places = [(("network", "links", number), links) for number in range(len(links))]
        case _:
            around = [
                (("network",), network),
                *((("network", "links", n), link) for n, link in enumerate(links) if isinstance(link, dict)),
            ]
            places = [
                ((*path, side), holder) for path, holder in around for side in ("forward", "reverse") if side in holder
            ]
    return [(path, holder) for path, holder in places if isinstance(holder[path[-1]], dict)]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


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
