"""Values of a campaign file, each with its file and line, and how one file's values override another's.

Mappings are merged key by key, other values are replaced, and null removes a field. A mechanism that gets another name
loses its options.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis import attached
from experiments.language import files
from experiments.language.problems import Problem, dotted
from experiments.language.yaml_text import FieldPath

#: File and line of a value.
FileLine = tuple[str, int]
#: Fields that hold a mechanism, with the key of its name when it is written as a mapping.
MECHANISMS = {"queue": "policy", "stack": "name", "link": "kind", "middlebox": "middlebox"}


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
        body = attached.body_of(self.text, name)
        if body is not None:
            return body
        return files.no_file(name) if self.folder is None else files.read_path(self.folder / name)

    def holding(self, bodies: Mapping[str, str]) -> Source:
        """It with files attached to its text, so that the text is complete without the folder."""
        return replace(self, text=attached.attach(self.text, bodies))

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


def merge(
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
                    drop(inner, places)
                else:
                    merged[key] = merge(under.get(key), value, inner, places, over_places)
            if path in over_places:
                places[path] = over_places[path]
            return merged
    drop(path, places)
    places |= below(path, over_places)
    return over


def below(path: FieldPath, places: Mapping[FieldPath, FileLine]) -> dict[FieldPath, FileLine]:
    """The places of a field and of all in it."""
    return {known: place for known, place in places.items() if known[: len(path)] == path}


def moved(path: FieldPath, target: FieldPath, places: Mapping[FieldPath, FileLine]) -> dict[FieldPath, FileLine]:
    """The places below `path`, as paths below `target`."""
    return {(*target, *known[len(path) :]): place for known, place in below(path, places).items()}


def drop(path: FieldPath, places: dict[FieldPath, FileLine]) -> None:
    """Removes the places of a field and of all in it."""
    for known in below(path, places):
        del places[known]
