"""JSON documents as frozen objects: scenarios, reports, manifests.

A class declares its fields by annotations; a class attribute is the default of its field. A field that the JSON lacks
is absent from `as_json()` too, an integer stays an integer, and null is not the same as absent. A document that is read
and written again is therefore equal, and so is the digest of it.

`agents.typed_json` reads the fields.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from functools import cache
from keyword import iskeyword
from typing import Annotated, Any, ClassVar, Self, dataclass_transform, get_type_hints

from agents.typed_json import PLAIN, MistypedValue, Reader, object_reader, reader, unexpected
from testbed.errors import TestbedError

#: A parsed JSON object.
Document = Mapping[str, Any]
#: The default of a field that is an object.
NOTHING: Mapping[str, Any] = types.MappingProxyType({})


class Bounds:
    """Smallest and largest value of an integer."""

    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most

    def read(self, value: Any) -> Any:
        """The value, if it is within."""
        if not self.least <= PLAIN[int](value) <= self.most:
            raise unexpected(f"an integer from {self.least} to {self.most}", value)
        return value


class Matches:
    """Pattern of a text, and how to say it."""

    def __init__(self, pattern: str, said: str) -> None:
        self.pattern, self.said = re.compile(pattern), said

    def read(self, value: Any) -> Any:
        """The text, if it matches as a whole."""
        if not self.pattern.fullmatch(PLAIN[str](value)):
            raise unexpected(self.said, value)
        return value


UInt16 = Annotated[int, Bounds(0, 2**16 - 1)]
UInt32 = Annotated[int, Bounds(0, 2**32 - 1)]
UInt64 = Annotated[int, Bounds(0, 2**64 - 1)]


class DocumentError(TestbedError, MistypedValue):
    """A document that its type does not allow. The message has the path of the field."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Model:
    """An object that has only the fields that it declares."""

    #: Whether it keeps fields that it does not declare, and writes them again.
    keeps_unknown: ClassVar[bool] = False
    _fields: ClassVar[frozenset[str]] = frozenset()
    _required: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        own = {name for name, hint in cls.__annotations__.items() if not str(hint).startswith("ClassVar")}
        cls._fields = cls._fields | own
        cls._required = frozenset(name for name in cls._fields if not hasattr(cls, name))

    def __init__(self, **fields: Any) -> None:
        if (unknown := fields.keys() - self._fields) and not self.keeps_unknown:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(sorted(unknown))}")
        if missing := self._required - fields.keys():
            raise TypeError(f"{type(self).__name__} needs {', '.join(sorted(missing))}")
        self.__dict__.update(fields)

    @classmethod
    def make(cls, **fields: Any) -> Self:
        """The object with these fields. None leaves a field out, so that it is absent from `as_json()`."""
        return cls(**{name: value for name, value in fields.items() if value is not None})

    @classmethod
    def read(cls, document: object) -> Self:
        """The object of a parsed JSON document.

        Raises:
            DocumentError: it has an unknown field, lacks one, or has one of another type.
        """
        try:
            result: Self = cls.json_reader()(document)
        except MistypedValue as error:
            raise DocumentError(error.reason, error.path) from None
        return result

    @classmethod
    @cache
    def json_reader(cls) -> Reader:
        """Reads an object of this class (agents.typed_json)."""
        hints = get_type_hints(cls, include_extras=True)
        members = {_json_name(name): (name, reader(hints[name])) for name in cls._fields}

        def make(values: dict[str, Any]) -> Model:
            result = cls.__new__(cls)
            result.__dict__.update(values)
            return result

        return object_reader(members, set(map(_json_name, cls._required)), make, cls.keeps_unknown)

    @classmethod
    def field_names(cls) -> frozenset[str]:
        """Names of its fields in JSON."""
        return frozenset(map(_json_name, cls._fields))

    def as_json(self) -> dict[str, Any]:
        """The JSON object that this one was made from."""
        return {_json_name(name): _as_json(value) for name, value in self._given()}

    def replace(self, **changes: Any) -> Self:
        """A copy with other values for some fields; these are not validated."""
        result = type(self).__new__(type(self))
        result.__dict__.update(self._given())
        if unknown := changes.keys() - self._fields:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(sorted(unknown))}")
        result.__dict__.update(changes)
        return result

    def complete(self) -> dict[str, Any]:
        """All declared fields by name, with the defaults of absent ones."""
        return {name: getattr(self, name) for name in sorted(self._fields)}

    def _given(self) -> list[tuple[str, Any]]:
        # Cached properties begin with an underscore.
        return [(name, value) for name, value in self.__dict__.items() if name[0] != "_"]

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.complete() == other.complete()

    def __hash__(self) -> int:
        # The values may have none. Dataclasses take nothing for a default that cannot be hashed.
        return hash(type(self))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._given())})"


class Part(Model):
    """An object that may have further fields, which it keeps as they came."""

    keeps_unknown: ClassVar[bool] = True


def _json_name(name: str) -> str:
    return name[:-1] if name[-1] == "_" and iskeyword(name[:-1]) else name


def _as_json(value: Any) -> Any:
    # Most values are these, and asking whether something is a mapping takes longest.
    if type(value) in (str, int, float, bool, type(None)):
        return value
    if isinstance(value, Model):
        return value.as_json()
    if isinstance(value, Mapping):
        return {name: _as_json(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_as_json(item) for item in value]
    return value
