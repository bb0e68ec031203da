"""JSON documents as frozen objects: scenarios, reports, manifests.

A class declares its fields by annotations; a class attribute is the default of its field. A field that the JSON lacks
is absent from `as_json()` too, an integer stays an integer, and null is not the same as absent. A document that is read
and written again is therefore equal, and so is the digest of it.

This is less than pydantic does, whose import would take a third of the start of a run in virtual time.
"""

from __future__ import annotations

import difflib
import re
import sys
import types
from collections.abc import Callable, Mapping
from keyword import iskeyword
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

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
        if not self.least <= _PLAIN[int](value) <= self.most:
            raise _unexpected(f"an integer from {self.least} to {self.most}", value)
        return value


class Matches:
    """Pattern of a text, and how to say it."""

    def __init__(self, pattern: str, said: str) -> None:
        self.pattern, self.said = re.compile(pattern), said

    def read(self, value: Any) -> Any:
        """The text, if it matches as a whole."""
        if not self.pattern.fullmatch(_PLAIN[str](value)):
            raise _unexpected(self.said, value)
        return value


UInt16 = Annotated[int, Bounds(0, 2**16 - 1)]
UInt32 = Annotated[int, Bounds(0, 2**32 - 1)]
UInt64 = Annotated[int, Bounds(0, 2**64 - 1)]


class DocumentError(TestbedError):
    """A document that its type does not allow. The message has the path of the field."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason
        #: Fields and indices from the document to the value.
        self.path: list[str | int] = []

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.path))}: {self.reason}" if self.path else self.reason


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
        result: Self = _reader_of(cls)(document)
        return result

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


# Reading -------------------------------------------------------------------------------------------------------

Reader = Callable[[Any], Any]


def _json_name(name: str) -> str:
    return name[:-1] if name[-1] == "_" and iskeyword(name[:-1]) else name


def _as_json(value: Any) -> Any:
    if isinstance(value, Model):
        return value.as_json()
    if isinstance(value, Mapping):
        return {name: _as_json(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_as_json(item) for item in value]
    return value


_readers: dict[type[Model], Reader] = {}


def _reader_of(cls: type[Model]) -> Reader:
    if cls not in _readers:
        _readers[cls] = _make_reader(cls)
    return _readers[cls]


def _make_reader(cls: type[Model]) -> Reader:
    hints = get_type_hints(cls, include_extras=True)
    fields = {_json_name(name): (name, _reader(hints[name])) for name in cls._fields}

    def read(document: Any) -> Model:
        if not isinstance(document, Mapping):
            raise _unexpected("an object", document)
        result = cls.__new__(cls)
        values = result.__dict__
        for key, value in document.items():
            field = fields.get(key)
            if field is not None:
                values[field[0]] = _at(key, field[1], value)
            elif cls.keeps_unknown:
                values[key] = value
            else:
                near = difflib.get_close_matches(key, fields, 1)
                raise _misfit(key, "unknown field" + (f"; did you mean '{near[0]}'?" if near else ""))
        if missing := cls._required - values.keys():
            raise _misfit(_json_name(min(missing)), "missing")
        return result

    return read


def _reader(hint: Any) -> Reader:
    """The function that takes a JSON value of a type, and raises DocumentError for another."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        (allowed,) = hint.__metadata__
        read: Reader = allowed.read
        return read
    if origin in (Union, types.UnionType):
        return _union([argument for argument in arguments if argument is not type(None)], type(None) in arguments)
    if origin is Literal:
        return _literal(arguments)
    if origin is tuple and arguments[-1] is Ellipsis:
        return _list(_reader(arguments[0]))
    if origin is tuple:
        return _record([_reader(argument) for argument in arguments])
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(_reader(arguments[1]))
    if isinstance(hint, type) and issubclass(hint, Model):
        # Its own reader is made when it is first needed.
        return lambda value: _reader_of(hint)(value)
    return _PLAIN[hint]


def _at(place: str | int, reader: Reader, value: Any) -> Any:
    try:
        return reader(value)
    except DocumentError as error:
        error.path.insert(0, place)
        raise


def _misfit(field: str, reason: str) -> DocumentError:
    error = DocumentError(reason)
    error.path.append(field)
    return error


def _unexpected(expected: str, value: Any) -> DocumentError:
    kinds = {dict: "an object", list: "a list", str: f"'{value}'", type(None): "null"}
    text = kinds.get(type(value), str(value))
    return DocumentError(f"expected {expected}, found {text if len(text) <= 80 else text[:80] + '...'}")


def _plain(types_: tuple[type, ...], expected: str) -> Reader:
    def read(value: Any) -> Any:
        # A bool is an int to isinstance.
        if type(value) not in types_:
            raise _unexpected(expected, value)
        return value

    return read


def _number(value: Any) -> Any:
    if type(value) not in (int, float) or not abs(value) <= sys.float_info.max:
        raise _unexpected("a number", value)
    return value


_PLAIN: dict[Any, Reader] = {
    str: _plain((str,), "a text"),
    bool: _plain((bool,), "true or false"),
    int: _plain((int,), "an integer"),
    float: _number,
    Any: lambda value: value,
}


def _literal(allowed: tuple[Any, ...]) -> Reader:
    def read(value: Any) -> Any:
        if value not in allowed:
            raise _unexpected(" or ".join(map(str, allowed)), value)
        return value

    return read


def _list(item: Reader) -> Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise _unexpected("a list", value)
        return tuple(_at(index, item, element) for index, element in enumerate(value))

    return read


def _record(items: list[Reader]) -> Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, list | tuple) or len(value) != len(items):
            raise _unexpected(f"a list of {len(items)}", value)
        return tuple(_at(index, item, element) for index, (item, element) in enumerate(zip(items, value, strict=True)))

    return read


def _mapping(item: Reader) -> Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise _unexpected("an object", value)
        return {name: _at(name, item, element) for name, element in value.items()}

    return read


def _union(choices: list[Any], nullable: bool) -> Reader:
    readers = [_reader(choice) for choice in choices]

    def read(value: Any) -> Any:
        if value is None and nullable:
            return None
        for reader in readers[:-1]:
            try:
                return reader(value)
            except DocumentError:
                continue
        return readers[-1](value)

    return read
