"""Quantities as people write them ("28.8 kbit/s", "10 packets", "5 ms") and as the software keeps them (SI units)."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache

#: Per unit kind of the registry: every accepted spelling and its size in the SI unit (bit/s, s, bytes, packets).
UNITS: Mapping[str, Mapping[str, Decimal]] = {
    "rate": {"bit/s": Decimal(1), "kbit/s": Decimal(10) ** 3, "Mbit/s": Decimal(10) ** 6, "Gbit/s": Decimal(10) ** 9},
    "time": {
        "s": Decimal(1),
        "ms": Decimal("1e-3"),
        "us": Decimal("1e-6"),
        "ns": Decimal("1e-9"),
        "min": Decimal(60),
        "h": Decimal(3600),
    },
    "bytes": {
        "B": Decimal(1),
        "byte": Decimal(1),
        "bytes": Decimal(1),
        "kB": Decimal(10) ** 3,
        "MB": Decimal(10) ** 6,
        "GB": Decimal(10) ** 9,
        "KiB": Decimal(2) ** 10,
        "MiB": Decimal(2) ** 20,
        "GiB": Decimal(2) ** 30,
    },
    "packets": {"packet": Decimal(1), "packets": Decimal(1)},
    "segments": {"segment": Decimal(1), "segments": Decimal(1)},
    "fraction": {"": Decimal(1), "%": Decimal("0.01")},
    "number": {"": Decimal(1)},
    "count": {"": Decimal(1)},
}
#: Kinds whose bare number is understood, beside those that have the empty spelling.
BARE_ALLOWED = frozenset({"packets", "segments"})
#: Names of the kinds in messages. Other kinds are their own names.
NOUNS = {"packets": "number of packets", "segments": "number of segments", "bytes": "size", "count": "number"}
EXAMPLES = {
    "rate": "28.8 kbit/s",
    "time": "5 ms",
    "bytes": "64 KiB",
    "packets": "10 packets",
    "segments": "4 segments",
    "fraction": "0.5 or 50 %",
    "number": "1.5",
    "count": "3",
}
#: In any SI unit; 64-bit integers hold it.
GREATEST = Decimal(2) ** 62
WHOLE = frozenset({"bytes", "packets", "segments", "count"})

_QUANTITY = re.compile(r"\s*([-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)\s*(\S*)\s*\Z")


def parse(value: object, kind: str) -> float | int:
    """A quantity in SI units; whole kinds (bytes, packets, segments, count) give an int.

    Args:
        value: from the file: a text such as "28.8 kbit/s", or a number where the kind has no unit.
        kind: a unit kind of the registry (the keys of UNITS).

    Raises:
        ValueError: with a sentence that says what is allowed.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"expected a {NOUNS.get(kind, kind)} such as {EXAMPLES[kind]}")
    text = str(value)
    return _cached(text, kind) if len(text) <= _SHORT else _parse(text, kind)


def _parse(text: str, kind: str) -> float | int:
    units, noun = UNITS[kind], NOUNS.get(kind, kind)
    foreign = next(
        (character for character in text if not character.isascii() and (character.isspace() or character.isdigit())),
        None,
    )
    if foreign is not None:
        name = unicodedata.name(foreign, "a control character")
        raise ValueError(f"'{_short(text)}' contains {name} (U+{ord(foreign):04X}); write ASCII digits and spaces")
    match = _QUANTITY.match(text)
    shown = _short(text)
    if match is None:
        raise ValueError(f"'{shown}' is not a {noun}; write it like {EXAMPLES[kind]}")
    number_text, unit = match.groups()
    if unit == "" and "" not in units and kind not in BARE_ALLOWED:
        raise ValueError(f"'{shown}' has no unit; write a {noun} like {EXAMPLES[kind]}")
    if unit and unit not in units:
        raise ValueError(_wrong_unit(unit, kind))
    try:
        number = Decimal(number_text) * units.get(unit, Decimal(1))
    except ArithmeticError:
        raise ValueError(f"'{shown}' is not a {noun}; write it like {EXAMPLES[kind]}") from None
    if abs(number) > GREATEST:
        raise ValueError(f"'{shown}' is out of range: a {noun} must be at most 2^62")
    if kind in WHOLE:
        if number != number.to_integral_value():
            raise ValueError(f"'{shown}' is not a whole number{'' if kind == 'count' else f' of {kind}'}")
        return int(number)
    return float(number)


#: The points of a sweep have most values in common.
_cached = lru_cache(maxsize=4096)(_parse)
#: Length of a text that is cached, and shown whole in messages.
_SHORT = 60


def _short(text: str) -> str:
    """A value as messages show it."""
    return text if len(text) <= _SHORT else f"{text[:40]}..."


def _wrong_unit(unit: str, kind: str) -> str:
    unit = _short(unit)
    allowed = ", ".join(spelling for spelling in UNITS[kind] if spelling) or "none"
    owner = next((other for other, units in UNITS.items() if unit in units), None)
    if owner is not None and owner != kind:
        return f"'{unit}' is a unit of {owner}, but this is a {NOUNS.get(kind, kind)}; its units are {allowed}"
    written = unit.lower().replace("\N{MICRO SIGN}", "u").replace("\N{GREEK SMALL LETTER MU}", "u")
    # A unit of another letter is another power: bytes are not meant by megabytes.
    alike = {spelling.lower(): spelling for spelling in UNITS[kind] if spelling.lower()[:1] == written[:1]}
    near = difflib.get_close_matches(written, alike, n=1, cutoff=0.5)
    hint = f" (did you mean '{alike[near[0]]}'?)" if near else ""
    return f"'{unit}' is not a unit of a {NOUNS.get(kind, kind)}{hint}; its units are {allowed}"


_SCALES: Mapping[str, tuple[tuple[float, str], ...]] = {
    "rate": ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")),
    "time": ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")),
    "bytes": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
    "fraction": ((0.01, "%"),),
}


#: Times from which seconds are hard to read, with the unit that is not, in s.
_LONG_TIMES = ((7200.0, 3600.0, "h"), (600.0, 60.0, "min"))


def scale_of(value: float, kind: str) -> tuple[float, str]:
    """Size and name of the unit in which a value reads best; (1, "") for kinds without a unit."""
    scale = _SCALES.get(kind, ((1.0, ""),))
    rounded = abs(float(f"{value:.3g}"))
    return next((step for step in scale if rounded >= step[0]), scale[0] if kind == "time" else scale[-1])


def show(value: float | None, kind: str) -> str:
    """A quantity as people read it: "28.8 kbit/s", "59 ms", "20 min", to three digits.

    Args:
        value: in the SI unit; None gives an en dash.
        kind: a unit kind of the registry.
    """
    if value is None:
        return "–"
    if kind == "count":
        return f"{value:.0f}" if float(value).is_integer() else f"{value:.1f}"
    long = ((size, name) for least, size, name in _LONG_TIMES if kind == "time" and abs(value) >= least)
    size, name = next(long, scale_of(value, kind))
    number = float(f"{value / size:.3g}")
    return f"{number:.0f} {name}".strip() if abs(number) >= 1000 else f"{number:.3g} {name}".strip()


def exact(value: float, kind: str) -> str:
    """A bound or default to all its digits: "64 us", "1048575 B". Kinds without a prefix stay bare numbers.

    Args:
        value: in the SI unit.
        kind: a unit kind of the registry.
    """
    if kind not in ("rate", "time", "bytes"):
        return f"{value:.15g}"
    spelled = (f"{value / size:.15g} {name}" for size, name in _SCALES[kind])
    return min(spelled, key=lambda text: ("e" in text, len(text)))


def show_delay(delay_s: float, jitter_s: float) -> str:
    """A line's delay with its jitter, both in s: "20 ms ± 5 ms"."""
    return show(delay_s, "time") + (f" ± {show(jitter_s, 'time')}" if jitter_s else "")


def in_unit(value: float | None, unit: str, reference: float) -> str:
    """A value in the unit in which a reference reads best: 698321 bit/s beside 700000 is "698.3 kbit/s".

    Args:
        value: in `unit`; None: nothing was measured.
        unit: of the paper, such as bit/s or s.
        reference: the published value.
    """
    if value is None:
        return "nothing"
    factor, name = readable(unit, reference)
    return f"{plain(value * factor)} {name}".strip()


def readable(unit: str, reference: float) -> tuple[float, str]:
    """The unit in which a reference reads best: what to multiply a value in `unit` by, and the unit's name."""
    kind = next((kind for kind in ("rate", "time", "bytes") if unit in UNITS[kind]), "")
    if not kind or not reference:
        return 1.0, unit if unit != "1" else ""
    size = float(UNITS[kind][unit])
    scale, name = scale_of(reference * size, kind)
    return size / scale, name


def number_of(count: int, noun: str) -> str:
    """ "1 packet", "3 packets": a noun whose plural ends in s."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def rough(value: float) -> str:
    """A positive number with two digits, and without an exponent: a pace, which changes all the time."""
    return f"{value:.2g}" if value < 99.5 else f"{value:.0f}"


def plain(value: float | None) -> str:
    """A number with four digits and without an exponent, as far as people read it."""
    if value is None:
        return "nothing"
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
