"""Names of earlier versions that campaign files and command lines may still have (docs/renamed.md).

Metrics are in `analysis.results.RENAMED`, because stores and bundles have them too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analysis import results

if TYPE_CHECKING:
    from experiments.language.yaml_text import FieldPath

#: Options of mechanisms, in any place of a campaign file.
FIELDS = {"asks_acks_per_win": "requested_acks_per_window"}
#: Options of commands.
OPTIONS = {"--tries": "--attempts"}
VARIABLES = {"BACKCHANNEL_TRIES": "BACKCHANNEL_ATTEMPTS"}
METRIC = "--metric"


def sentence(before: str, now: str) -> str:
    """What a person reads who writes an old name."""
    return f"'{before}' is called '{now}' now; the old name is still accepted"


def field(name: str) -> str:
    """A field's current name. A sweep names fields with dots."""
    path, dot, last = name.rpartition(".")
    return path + dot + FIELDS.get(last, last)


def fields(value: Any) -> Any:
    """A file's values under the current names of their fields."""
    if isinstance(value, dict):
        return {field(key) if isinstance(key, str) else key: fields(item) for key, item in value.items()}
    return [fields(item) for item in value] if isinstance(value, list) else value


def path(place: FieldPath) -> FieldPath:
    """A place in the current names of its fields."""
    return tuple(field(part) if isinstance(part, str) else part for part in place)


def notes(lines: Mapping[FieldPath, int]) -> Iterator[tuple[int, str]]:
    """Line and sentence for each old name of a file."""
    for place, line in lines.items():
        if place and path(place[-1:]) != place[-1:]:
            before = str(place[-1]).rpartition(".")[2]
            yield line, sentence(before, FIELDS[before])


def command_line(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of a command with current names, and a sentence for each old one."""
    metrics: Mapping[str, str] = {}
    if any(word.partition("=")[0] == METRIC for word in words):
        # Its import takes longer than most commands.
        metrics = results.RENAMED
    current: list[str] = []
    told: list[str] = []
    for number, word in enumerate(words):
        if word == "--":
            return [*current, *words[number:]], told
        name, equals, value = word.partition("=")
        now = OPTIONS.get(name, field(name))
        if METRIC in (name, *words[number - 1 : number]):
            metric = value or name
            renamed = metrics.get(metric, metric)
            now, value = (name, renamed) if equals else (renamed, "")
            told += [sentence(metric, renamed)] if renamed != metric else []
        elif now != name:
            told.append(sentence(name.rpartition(".")[2], now.rpartition(".")[2]))
        current.append(now + equals + value)
    return current, told


def environment(variables: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Variables to add under current names, and a sentence for each old one."""
    old = {before: now for before, now in VARIABLES.items() if before in variables and now not in variables}
    return {now: variables[before] for before, now in old.items()}, [sentence(*names) for names in old.items()]
