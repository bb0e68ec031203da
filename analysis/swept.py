"""Which swept field a name means, and which of its values FIELD=VALUE means."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from analysis.errors import AnalysisError, unknown
from analysis.results import Parameters


def matching(name: str, fields: Iterable[str]) -> list[str]:
    """The fields that a name can mean: the one that is called so, or else those whose last words it has."""
    known = list(fields)
    return [field for field in known if field == name] or [field for field in known if field.endswith(f".{name}")]


def field_of(name: str, fields: Iterable[str]) -> str:
    """The swept field of its name or of its last words: "rate" of "network.forward.rate".

    Raises:
        AnalysisError: there is none, or there are several.
    """
    matches = matching(name, known := list(fields))
    if not matches:
        # As many last words of each as were written, so that a misspelt one is near. Labels with blanks stay whole.
        words = name.count(".") + 1
        ends = (field if " " in field else ".".join(field.split(".")[-words:]) for field in known)
        raise unknown("swept field", name, dict.fromkeys(ends))
    if len(matches) > 1:
        raise AnalysisError(f"'{name}' is ambiguous; use one of {', '.join(matches)}")
    return matches[0]


def axes_of(points: Iterable[Parameters]) -> dict[str, list[str]]:
    """Swept fields and their values, in the order of the sweep."""
    values_of: dict[str, dict[str, None]] = {}
    for point in points:
        for name, value in point.items():
            values_of.setdefault(name, {})[value] = None
    return {name: list(values) for name, values in values_of.items()}


def condition(text: str, axes: Mapping[str, Collection[str]]) -> tuple[str, str]:
    """Field and value of FIELD=VALUE. Both may have equals signs: it is split where both exist.

    Args:
        text: as somebody wrote it.
        axes: swept fields and their values.

    Raises:
        AnalysisError: it has another form, or the field or the value does not exist.
    """
    splits = [(text[: at.start()].strip(), text[at.end() :].strip()) for at in re.finditer("=", text)]
    if not splits:
        raise AnalysisError(f"'{text}' is not FIELD=VALUE, such as policy=droptail")

    def exists(split: tuple[str, str]) -> tuple[bool, bool]:
        matches = matching(split[0], axes)
        return bool(matches), any(split[1] in axes[field] for field in matches)

    name, value = max(splits, key=exists)
    field = field_of(name, axes)
    if value not in axes[field]:
        raise unknown(f"value of {field}", value, axes[field])
    return field, value
