"""Types of the values in a campaign file. Numbers are in SI units once they are read."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from testbed import units


def quantity(
    kind: str, least: float | None = 0, above: float | None = None, most: float | None = None
) -> BeforeValidator:
    """Reads a quantity with its unit.

    Args:
        kind: a key of `units.UNITS`.
        least: the smallest value allowed, in SI units.
        above: the value must be greater.
        most: the greatest value allowed.
    """

    def read(value: object) -> float | int:
        number = units.parse(value, kind)
        if above is not None and number <= above:
            allowed = f"at least {above + 1:g}" if kind in units.WHOLE else f"greater than {above:g}"
            raise ValueError(f"'{value}' is out of range: it must be {allowed}")
        if least is not None and number < least:
            allowed = "it must not be negative" if least == 0 else f"it must be at least {units.exact(least, kind)}"
            raise ValueError(f"'{value}' is out of range: {allowed}")
        if most is not None and number > most:
            raise ValueError(f"'{value}' is out of range: it must be at most {units.exact(most, kind)}")
        return number

    return BeforeValidator(read)


def time_range(value: object, what: str) -> tuple[float, float]:
    """A time, or a pair of times that bound a uniform draw, in s.

    Raises:
        ValueError: neither; `what` names the value in the message.
    """
    pair = value if isinstance(value, list | tuple) else [value, value]
    if len(pair) != 2:
        raise ValueError(f"{what} is a time such as 5 s, or a range such as [5 s, 6 s]")
    low, high = (float(units.parse(time, "time")) for time in pair)
    if low < 0 or high < low:
        raise ValueError(f"{what} must not be negative, and a range [from, to] must not end before it begins")
    return low, high


M = TypeVar("M", bound=BaseModel)


def default(model: type[M], value: Any) -> Callable[[], M]:
    """A factory of a frozen model's default, which is validated once."""
    return cache(lambda: model.model_validate(value))


#: bit/s. Scenarios have whole bit/s.
Rate = Annotated[float, quantity("rate", above=0, least=1, most=1e12)]
#: At most about eleven days, the longest duration of a run.
Seconds = Annotated[float, quantity("time", most=1e6)]
PositiveSeconds = Annotated[float, quantity("time", above=0, most=1e6)]
#: Relative to the declared value.
Deviation = Annotated[float, quantity("fraction", above=0, most=1)]
Share = Annotated[float, quantity("fraction", most=1)]
Bytes = Annotated[int, quantity("bytes", above=0, most=2**62)]

#: Names in a scenario become interface names and file names.
LONGEST_NAME = 40
NAME = r"^[a-z][a-z0-9-]*$"
Name = Annotated[str, Field(pattern=NAME, max_length=LONGEST_NAME)]


class Model(BaseModel):
    """A mapping of a file. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
