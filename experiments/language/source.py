"""A YAML file as plain values, each with its place; files that it includes, and its defaults, are worked in.

`include` names files, relative to the one that says so, whose fields hold unless the file has its own: mappings are
merged key by key, everything else is replaced, and null removes a field. A mechanism that is given another name keeps
none of the options that were included. `defaults` says what every flow, link, node or direction has unless it says
otherwise.
"""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from experiments.language import packed, registry
from experiments.language.problems import CampaignError, Problem

#: Keys and indices from the top of the file to a value.
Path_ = tuple[str | int, ...]


#: File and line of a value.
Place = tuple[str, int]
INCLUDE, DEFAULTS, BACKENDS = "include", "defaults", "backends"
#: Files that include each other this deep are a slip.
MOST_DEEP = 10
#: Stands above an included text where it follows as comments; those that it includes itself are comments in it.
_HEAD = ", which is included above:"
_ATTACHED = re.compile(rf"# (?!# )(.+){re.escape(_HEAD)}")
#: The field, and the option of mechanisms, that names a file which scenarios hold whole.
TRACE = "trace"
#: Fields that hold a mechanism, and the key of its name when it is written as a mapping.
MECHANISMS = {"queue": "policy", "stack": "name", "link": "kind", "middlebox": "middlebox"}
#: Kinds of entries that `defaults` knows, in the order in which they are worked in: a link's may bring directions.
_KINDS = ("flow", "node", "link", "direction")


@dataclass(frozen=True)
class Source:
    """What a file says, with what it includes."""

    name: str
    #: Of the file; what it includes follows as comments, so that nothing is lost with those files (`parse` finds it).
    text: str
    values: dict[str, Any]
    places: Mapping[Path_, Place]
    #: Where the files lie that it names; a text has no folder.
    folder: Path | None = None

    def file(self, name: str) -> str:
        """The text of a file that it names: one that it brings along, or one of its folder.

        Raises:
            ValueError: with a sentence.
        """
        there = packed.find(self.text, name)
        if there is not None:
            return there
        return registry.no_file(name) if self.folder is None else registry.read_path(self.folder / name)

    def place(self, path: Path_) -> Place:
        """File and line of a value, or of the innermost thing around it that a file has."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.places:
                return self.places[path[:end]]
        return self.name, 0

    def problem(self, path: Path_, field: str, message: str) -> Problem:
        """A mistake at a value."""
        file, line = self.place(path)
        return Problem(line, field, message, "" if file == self.name else f"{file}:{line}")


def read(path: Path) -> Source:
    """Reads a campaign file and what it includes.

    Raises:
        CampaignError: one cannot be read, is no YAML, or is no mapping.
    """
    read_ = _with_includes(str(path), _text(path), _from_files(path), (str(path.resolve()),))
    return _with_defaults(_with_traces(replace(read_, folder=path.parent)))


def parse(name: str, text: str) -> Source:
    """The same for a text: what it includes, and the traces that it names, must follow in it as comments, as in the
    text of a file that was read.

    No file is opened, whatever the text names.
    """
    return _with_defaults(_with_includes(name, text, _nowhere, ()))


class Absent(Exception):
    """What is to be included is not there; the message is a sentence."""


#: Gives for the name of an include: a name that is told from all others, its text, and where it includes from.
Include = Callable[[str], tuple[str, str, "Include"]]


def _from_files(of: Path) -> Include:
    """Files relative to one that includes them."""

    def find(name: str) -> tuple[str, str, Include]:
        file = of.parent / name
        if not file.is_file():
            raise Absent(f"there is no file {file}")
        return str(file.resolve()), _text(file), _from_files(file)

    return find


def _nowhere(name: str) -> tuple[str, str, Include]:
    raise Absent(
        f"no file can be included from here, and this text does not bring {name} along: write the fields of {name} "
        "into it, or run the file where it lies (./backchannel run)"
    )


def _attached(text: str) -> dict[str, str]:
    """Included texts, by the name under which they are included."""
    found: dict[str, list[str]] = {}
    lines: list[str] | None = None
    for line in text.splitlines():
        head = _ATTACHED.fullmatch(line)
        if head is not None:
            lines = found.setdefault(head[1], [])
        elif packed.begins(line):
            lines = None
        elif lines is not None and line.startswith("#"):
            lines.append(line.removeprefix("#").removeprefix(" "))
    return {name: "\n".join(own).strip("\n") + "\n" for name, own in found.items()}


def _with_includes(name: str, text: str, include: Include, around: tuple[str, ...]) -> Source:
    own = _parse(name, text)
    wanted = own.values.pop(INCLUDE, None)
    if wanted is None:
        return own
    names = wanted if isinstance(wanted, list) else [wanted]
    if not names or not all(isinstance(one, str) and one for one in names):
        raise CampaignError(own.name, [own.problem((INCLUDE,), INCLUDE, "this is a file's name, or a list of them")])
    values: dict[str, Any] = {}
    places: dict[Path_, Place] = {}
    there = _attached(text)
    for number, one in enumerate(names):
        at: Path_ = (INCLUDE, number) if isinstance(wanted, list) else (INCLUDE,)
        try:
            # A text that brings along what it includes is whole, wherever it lies. It holds itself nowhere.
            known, more, inner = (f"{one}\n{there[one]}", there[one], _nowhere) if one in there else include(one)
        except Absent as error:
            raise CampaignError(own.name, [own.problem(at, INCLUDE, str(error))]) from None
        if known in around or len(around) >= MOST_DEEP:
            raise CampaignError(own.name, [own.problem(at, INCLUDE, f"{one} includes itself, by way of this file")])
        shown = str(Path(name).parent / one)
        included = _with_includes(shown, more, inner, (*around, known))
        values = _merge(values, included.values, (), places, included.places)
        if one not in there:
            commented = "".join(f"# {line}".rstrip() + "\n" for line in included.text.splitlines())
            text = f"{text.rstrip()}\n\n# {one}{_HEAD}\n{commented}"
    values = _merge(values, own.values, (), places, own.places)
    places.setdefault((), (own.name, 0))
    return Source(own.name, text, values, places)


def _with_traces(source: Source) -> Source:
    """Lets the traces that a file names follow in its text, so that it is whole without its folder."""
    text = source.text
    for name in sorted(set(_traces(source.values, ""))):
        if packed.find(text, name) is None:
            # One that cannot be read is a mistake of the field that names it, which is told where fields are judged.
            with contextlib.suppress(ValueError):
                text = packed.attach(text, name, source.file(name))
    return replace(source, text=text)


def _traces(value: Any, field: str) -> Iterator[str]:
    """Names of traces, wherever in a file they stand: a sweep names its fields with dots, and gives lists."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _traces(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from _traces(item, field)
    elif isinstance(value, str) and field.rpartition(".")[2] == TRACE:
        yield value


def _merge(under: Any, over: Any, path: Path_, places: dict[Path_, Place], over_places: Mapping[Path_, Place]) -> Any:
    """`over` on top of `under`; `places` has those of `under` and gets those of the result."""
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


def _below(path: Path_, places: Mapping[Path_, Place]) -> dict[Path_, Place]:
    return {known: place for known, place in places.items() if known[: len(path)] == path}


def _drop(path: Path_, places: dict[Path_, Place]) -> None:
    for known in _below(path, places):
        del places[known]


def _with_defaults(source: Source) -> Source:
    """Works `defaults` into every flow, link, node and direction."""
    if DEFAULTS not in source.values:
        return source
    values, places = copy.deepcopy(source.values), dict(source.places)
    defaults = values.pop(DEFAULTS)
    problems = []
    for kind, default in defaults.items() if isinstance(defaults, dict) else [("", defaults)]:
        known = f"there are: {', '.join(_KINDS)}"
        if kind not in _KINDS:
            problems.append(source.problem((DEFAULTS, kind), DEFAULTS, f"there is no default for '{kind}'; {known}"))
        elif not isinstance(default, dict):
            problems.append(
                source.problem((DEFAULTS, kind), f"{DEFAULTS}.{kind}", "a mapping of fields is wanted here")
            )
    if problems:
        raise CampaignError(source.name, problems)
    for kind in _KINDS:
        if kind not in defaults:
            continue
        at: Path_ = (DEFAULTS, kind)
        for path, holder in _entries(kind, values):
            own = _below(path, places)
            _drop(path, places)
            places |= {(*path, *one[len(at) :]): place for one, place in _below(at, source.places).items() if one != at}
            holder[path[-1]] = _merge(copy.deepcopy(defaults[kind]), holder[path[-1]], path, places, own)
    return replace(source, values=values, places=places)


def for_backend(source: Source, backend: str, known: Iterable[str]) -> Source:
    """The file as it is on a backend: what it says under `backends` for that one stands above the rest.

    Raises:
        CampaignError: it names a backend that there is not.
    """
    if BACKENDS not in source.values:
        return source
    values, places = copy.deepcopy(source.values), dict(source.places)
    blocks = values.pop(BACKENDS)
    problems = []
    listed = ", ".join(known)
    for name, block in blocks.items() if isinstance(blocks, dict) else [("", blocks)]:
        if name not in known:
            problems.append(
                source.problem((BACKENDS, name), BACKENDS, f"there is no backend '{name}'; there are: {listed}")
            )
        elif not isinstance(block, dict):
            problems.append(
                source.problem((BACKENDS, name), f"{BACKENDS}.{name}", "a mapping of fields is wanted here")
            )
        elif BACKENDS in block or "backend" in block:
            problems.append(
                source.problem((BACKENDS, name), f"{BACKENDS}.{name}", "a backend's fields name no backend")
            )
    if problems:
        raise CampaignError(source.name, problems)
    own = blocks.get(backend)
    if own is not None:
        at: Path_ = (BACKENDS, backend)
        over = {one[len(at) :]: place for one, place in _below(at, source.places).items()}
        values = _merge(values, own, (), places, over)
    _drop((BACKENDS,), places)
    return replace(source, values=values, places=places)


def _entries(kind: str, values: dict[str, Any]) -> list[tuple[Path_, Any]]:
    """Every mapping of a kind: its path, and the list or mapping that holds it."""
    network = values.get("network")
    network = network if isinstance(network, dict) else {}
    links = [(("network", "links", number), one) for number, one in enumerate(_list(network.get("links")))]
    found: list[tuple[Path_, Any]]
    match kind:
        case "flow":
            flows = _list(values.get("workload"))
            found = [(("workload", number), flows) for number in range(len(flows))]
        case "node":
            nodes = _list(network.get("nodes"))
            found = [(("network", "nodes", number), nodes) for number in range(len(nodes))]
        case "link":
            found = [(path, network["links"]) for path, _ in links]
        case _:
            around = [(("network",), network), *links]
            found = [((*path, side), one) for path, one in around for side in ("forward", "reverse") if side in one]
    return [(path, holder) for path, holder in found if isinstance(holder[path[-1]], dict)]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CampaignError(str(path), [Problem(0, "", f"cannot be read: {error.strerror}")]) from None
    except UnicodeDecodeError as error:
        raise CampaignError(str(path), [Problem(0, "", f"is no UTF-8 text (byte {error.start})")]) from None


def _parse(name: str, text: str) -> Source:
    yaml = YAML()
    yaml.allow_duplicate_keys = False
    try:
        document = yaml.load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 0
        what = " ".join((error.problem or "cannot be read as YAML").split("\n")[0].split())
        raise CampaignError(name, [Problem(line, "", f"this is no YAML: {what}")]) from None
    except YAMLError as error:
        raise CampaignError(name, [Problem(0, "", f"this is no YAML: {error}")]) from None
    if not isinstance(document, CommentedMap):
        raise CampaignError(name, [Problem(1, "", "a campaign is a mapping of fields, such as 'name: quickstart'")])
    lines: dict[Path_, int] = {}
    values = _plain(document, (), lines)
    return Source(name, text, values, {path: (name, line) for path, line in lines.items()})


def _plain(value: Any, path: Path_, lines: dict[Path_, int]) -> Any:
    if isinstance(value, CommentedMap):
        for key in value:
            # A key that came in by "<<" stands elsewhere; the mapping around it is the nearest line.
            if key in value.lc.data:
                lines[(*path, str(key))] = value.lc.key(key)[0] + 1
        return {str(key): _plain(item, (*path, str(key)), lines) for key, item in value.items()}
    if isinstance(value, CommentedSeq):
        for index in range(len(value)):
            lines[(*path, index)] = value.lc.item(index)[0] + 1
        return [_plain(item, (*path, index), lines) for index, item in enumerate(value)]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    return str(value)
