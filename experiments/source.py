"""A YAML file as plain values, with the line of every one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from experiments.problems import CampaignError, Problem

#: Keys and indices from the top of the file to a value.
Path_ = tuple[str | int, ...]


@dataclass(frozen=True)
class Source:
    """What a file says."""

    name: str
    text: str
    values: dict[str, Any]
    lines: Mapping[Path_, int]

    def line(self, path: Path_) -> int:
        """The line of a value, or of the innermost thing around it that the file has."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return 0


def read(path: Path) -> Source:
    """Reads a campaign file.

    Raises:
        CampaignError: it cannot be read, is no YAML, or is no mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CampaignError(str(path), [Problem(0, "", f"cannot be read: {error.strerror}")]) from None
    except UnicodeDecodeError as error:
        raise CampaignError(str(path), [Problem(0, "", f"is no UTF-8 text (byte {error.start})")]) from None
    return parse(str(path), text)


def parse(name: str, text: str) -> Source:
    """The same for a text."""
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
    return Source(name, text, values, lines)


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
