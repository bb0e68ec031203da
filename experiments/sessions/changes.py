"""Changes of a line while it runs, as people write them: `rate=2 Mbit/s forward.delay=20 ms loss=1%`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import ValidationError

from experiments.language.messages import rejected
from experiments.language.network import Change as FileChange, LineFields
from experiments.language.problems import CampaignError, Problem, dotted
from experiments.language.source import parse
from testbed.scenario import DIRECTIONS, Change, Direction

#: What a word before `=` may be, after an optional `forward.` or `reverse.`.
FIELDS = ("rate", "delay", "jitter", "loss", "policy", "queue", "errors")
_HINT = (
    f"write FIELD=VALUE, with a field of {', '.join(FIELDS[:-1])} or {FIELDS[-1]}, in both directions or in one: "
    "rate='2 Mbit/s' forward.delay='20 ms' reverse.loss=1% policy=codel"
)


def parse_changes(words: Sequence[str]) -> dict[Direction, LineFields]:
    """The changes of each direction that the words name, as fields of a campaign file's `changes`.

    Raises:
        CampaignError: a word or a value is invalid.
    """
    if not words:
        raise _problem("", f"there is nothing to change: {_HINT}")
    found: dict[Direction, LineFields] = {}
    for word in words:
        name, equals, text = word.partition("=")
        way, dot, field = name.strip().rpartition(".")
        if not equals or not text.strip() or field not in FIELDS or (dot and way not in DIRECTIONS):
            raise _problem(word, f"'{word}' is not a change: {_HINT}")
        if field == "rate" and "0" in text and not any(digit in text for digit in "123456789"):
            raise _problem(
                "rate", "a link with a rate of 0 carries nothing; to cut the link for a while, use loss=100%"
            )
        value = parse("the change", f"value: {text}").values["value"]
        for direction in DIRECTIONS:
            if way in ("", direction):
                found.setdefault(direction, {}).update(_fields(field, value))
    for fields in found.values():
        typed(fields, 0.0)
    return found


def _fields(field: str, value: Any) -> LineFields:
    if field == "loss":
        return {"errors": [] if value in (0, "0%", "0 %") else [{"model": "uniform", "probability": value}]}
    if field == "policy":
        return {"queue": {"policy": value}}
    return cast("LineFields", {field: value})


def typed(fields: Mapping[str, Any], at_s: float) -> Change:
    """The change as the emulator takes it.

    Raises:
        CampaignError: a value is invalid.
    """
    try:
        change = FileChange.model_validate({"at": f"{at_s} s", **fields})
    except ValidationError as error:
        problems = [Problem(0, dotted(path), text, "set") for path, text in rejected(error, FileChange)]
        raise CampaignError("set", problems) from None
    return change.as_scenario()


def _problem(field: str, message: str) -> CampaignError:
    return CampaignError("set", [Problem(0, field, message, "set")])
