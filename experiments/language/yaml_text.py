"""YAML text as plain values with their lines, within bounds that hold before anything is built."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionStartEvent, Event, ScalarEvent
from ruamel.yaml.scanner import Scanner

from experiments.language.problems import CampaignError, Problem

#: Keys and list indices from the top of the file to a value.
FieldPath = tuple[str | int, ...]
#: Bounds of a text without its comment lines. The parser reads about 10,000 values in a second.
MAX_CHARACTERS, MAX_LINES_AND_COMMAS = 500_000, 30_000
#: Bounds of the values: how deep they are nested, and how many there are once aliases are replaced by their values.
MAX_DEPTH, MAX_VALUES = 30, 50_000
#: Texts that are kept as they were read, for what many campaigns include, and the greatest length of such a text.
KEPT, KEPT_CHARACTERS = 256, 20_000
#: More characters than any number needs.
MAX_NUMBER_CHARACTERS = 400

#: A line of its own that is a comment: attached files are such lines, and may be long.
_COMMENT_LINE = re.compile(r"^#.*", re.MULTILINE)
_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq"))
#: Parts of the YAML reader's messages, and what to do about them.
_HINTS = {
    "duplicate key": "keep one of the two fields",
    "mapping values are not allowed": "check the indentation, and quote a value that contains ': '",
    "could not find expected ':'": "write 'field: value' with a space after the colon",
    "cannot start any token": "indent with spaces, and quote a value that starts with a special character",
    "expected ',' or": "close the bracket, or separate entries by commas",
    "expected <block end>": "align this line with the other fields or entries",
    "did not find expected node": "close the bracket, or write the missing value",
}


class _OutOfBounds(MarkedYAMLError):
    """A text that is valid YAML and that no campaign needs."""


class _BoundedComposer(Composer):
    """Counts while the values are composed, one event after the other."""

    def __init__(self, loader: Any = None) -> None:
        super().__init__(loader=loader)
        self._depth = 0
        self._values = 0
        #: Number of values below each anchor; None while it is being read.
        self._sizes: dict[str, int | None] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        """The next value."""
        event = self.parser.peek_event()
        if isinstance(event, AliasEvent):
            size = self._sizes.get(event.anchor, 1)
            if size is None:
                raise _error(event, f"'*{event.anchor}' refers to a value that contains it; write the value out")
            self._count(size, event)
            return super().compose_node(parent, index)
        _check(event)
        self._count(1, event)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _error(event, f"values are nested more than {MAX_DEPTH} deep; a campaign needs fewer than 10 levels")
        before = self._values
        if event.anchor is not None:
            self._sizes[event.anchor] = None
        node = super().compose_node(parent, index)
        if event.anchor is not None:
            self._sizes[event.anchor] = self._values - before + 1
        self._depth -= 1
        return node

    def _count(self, values: int, event: Event) -> None:
        self._values += values
        if self._values > MAX_VALUES:
            raise _error(event, f"the file has more than {MAX_VALUES} values once its aliases are written out")


def _error(event: Event, message: str) -> _OutOfBounds:
    return _OutOfBounds(problem=message, problem_mark=event.start_mark)


def _check(event: Event) -> None:
    if not isinstance(event, ScalarEvent | CollectionStartEvent):
        return
    if event.tag is not None and str(event.tag) not in _TAGS | {"!"}:
        raise _error(event, f"the tag {str(event.tag)[:60]} is not allowed; write a plain value")
    text = event.value if isinstance(event, ScalarEvent) and event.style is None else ""
    if len(text) > MAX_NUMBER_CHARACTERS and re.match(r"[-+.]?\d\S*$", text):
        raise _error(event, f"a number has at most {MAX_NUMBER_CHARACTERS} characters")


def parse(name: str, text: str) -> tuple[dict[str, Any], dict[FieldPath, int]]:
    """The values of a YAML mapping, and the line of each.

    Raises:
        CampaignError: the text is too large or invalid; the message names the file `name`.
    """
    # Emptied, not removed: every value keeps its line.
    shortened = _COMMENT_LINE.sub("", text)
    if len(shortened) > MAX_CHARACTERS or shortened.count("\n") + shortened.count(",") > MAX_LINES_AND_COMMAS:
        limit = f"{MAX_CHARACTERS} characters, {MAX_LINES_AND_COMMAS} lines and commas together"
        raise CampaignError(name, [Problem(0, "", f"is too large for a campaign file; at most {limit}")])
    # Attached files leave empty lines at the end, without which the text is the one that was read before.
    shortened = shortened.rstrip("\n") + "\n"
    try:
        document = (_load if len(shortened) > KEPT_CHARACTERS else _kept)(shortened)
    except YAMLError as error:
        raise CampaignError(name, [_problem(error)]) from None
    except (ValueError, OverflowError) as error:
        # Of a value that only looks like a date or a number.
        raise CampaignError(name, [Problem(0, "", f"invalid YAML: {error}; quote the value")]) from None
    if not isinstance(document, CommentedMap):
        problem = "is empty" if document is None else "does not contain a mapping of fields"
        message = (
            f"the file {problem}; it needs fields such as 'name: quickstart' (example: experiments/quickstart.yaml)"
        )
        raise CampaignError(name, [Problem(1, "", message)])
    lines: dict[FieldPath, int] = {(): 1}
    return _plain(document, (), lines), lines


def _load(text: str) -> Any:
    yaml = YAML()
    yaml.allow_duplicate_keys = False
    yaml.Composer = _BoundedComposer
    # Nobody writes the text again, so that its comments are passed over.
    yaml.Scanner = Scanner
    return yaml.load(text)


_kept = lru_cache(KEPT)(_load)


def _problem(error: YAMLError) -> Problem:
    mark = (error.problem_mark or error.context_mark) if isinstance(error, MarkedYAMLError) else None
    line = mark.line + 1 if mark else 0
    text = (error.problem if isinstance(error, MarkedYAMLError) else str(error)) or "the text cannot be parsed"
    if isinstance(error, _OutOfBounds):
        return Problem(line, "", text)
    reason = " ".join(text.split("\n")[0].split())
    hint = next((f"; {hint}" for part, hint in _HINTS.items() if part in reason), "")
    return Problem(line, "", f"invalid YAML: {reason}{hint}")


def _plain(value: Any, path: FieldPath, lines: dict[FieldPath, int]) -> Any:
    if isinstance(value, CommentedMap):
        for key in value:
            # Keys merged in by "<<" have no line here. `Source.place` uses the line of the mapping around them.
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
