"""Readers that turn parsed JSON into values of annotated types. Standard library only.

This is less than pydantic does, whose import would take a third of the start of a run in virtual time, and which a bare
host does not have.
"""

from __future__ import annotations

import difflib
import sys
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

Reader = Callable[[Any], Any]


class MistypedValue(Exception):
    """A JSON value that its type does not allow.

    Args:
        reason: what was expected and found.
        path: fields and indices from the document to the value.
    """

    def __init__(self, reason: str, path: Sequence[str | int] = ()) -> None:
        super().__init__()
        self.reason = reason
        self.path = list(path)

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.path))}: {self.reason}" if self.path else self.reason


def unexpected(expected: str, value: Any) -> MistypedValue:
    """The error for a value that is not `expected`."""
    kinds = {dict: "an object", list: "a list", str: f"'{value}'", type(None): "null"}
    text = kinds.get(type(value), str(value))
    return MistypedValue(f"expected {expected}, found {text if len(text) <= 80 else text[:80] + '...'}")


def _at(place: str | int, reader: Reader, value: Any) -> Any:
    try:
        return reader(value)
    except MistypedValue as error:
        error.path.insert(0, place)
        raise


def object_reader(
    members: Mapping[str, tuple[str, Reader]],
    required: Collection[str],
    make: Callable[[dict[str, Any]], Any],
    keeps_unknown: bool = False,
) -> Reader:
    """The reader of an object.

    Args:
        members: for each name in JSON, the name in Python and the reader of the value.
        required: names in JSON.
        make: gets the values by their names in Python.
        keeps_unknown: members without a reader are kept as they are; otherwise they are errors.
    """

    def read(document: Any) -> Any:
        if not isinstance(document, Mapping):
            raise unexpected("an object", document)
        values = {}
        for key, value in document.items():
            member = members.get(key)
            if member is not None:
                values[member[0]] = _at(key, member[1], value)
            elif keeps_unknown:
                values[key] = value
            else:
                near = difflib.get_close_matches(key, members, 1)
                raise MistypedValue("unknown field" + (f"; did you mean '{near[0]}'?" if near else ""), [key])
        if missing := required - document.keys():
            raise MistypedValue("missing", [min(missing)])
        return make(values)

    return read


def reader(hint: Any) -> Reader:
    """The function that takes a JSON value of a type, and raises MistypedValue for another."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        (allowed,) = hint.__metadata__
        read: Reader = allowed.read
        return read
    if origin in (Union, types.UnionType):
        return _union([argument for argument in arguments if argument is not type(None)], type(None) in arguments)
    if origin is Literal:
        return _literal(arguments)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return _record([reader(argument) for argument in arguments])
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(reader(arguments[1]))
    if origin is not None and issubclass(origin, Sequence):
        return _list(reader(arguments[0]), list if origin is list else tuple)
    if hasattr(hint, "json_reader"):
        # Made when it is first needed.
        return lambda value: hint.json_reader()(value)
    if hasattr(hint, "__dataclass_fields__"):
        return lambda value: _dataclass_reader(hint)(value)
    return PLAIN[hint]


@cache
def _dataclass_reader(cls: Any) -> Reader:
    hints = get_type_hints(cls)
    required = {field.name for field in fields(cls) if field.default is field.default_factory is MISSING}
    members = {field.name: (field.name, reader(hints[field.name])) for field in fields(cls)}
    return object_reader(members, required, lambda values: cls(**values))


@cache
def parameters(function: Callable[..., Any]) -> dict[str, Parameter]:
    """The parameters of a method, without the object."""
    _, *rest = signature(function).parameters.items()
    return dict(rest)


@cache
def parameters_reader(function: Callable[..., Any]) -> Reader:
    """The reader of an object with the parameters of a method, as a dictionary. Every parameter has an annotation."""
    hints = get_type_hints(function, include_extras=True)
    members = {name: (name, reader(hints[name])) for name in parameters(function)}
    required = {name for name, each in parameters(function).items() if each.default is Parameter.empty}
    return object_reader(members, required, lambda values: values)


@cache
def result_reader(function: Callable[..., Any]) -> Reader:
    """The reader of what a method returns."""
    return reader(get_type_hints(function, include_extras=True)["return"])


def _plain(type_: type, expected: str) -> Reader:
    def read(value: Any) -> Any:
        # A bool is an int to isinstance.
        if type(value) is not type_:
            raise unexpected(expected, value)
        return value

    return read


def _number(value: Any) -> Any:
    if type(value) not in (int, float) or not abs(value) <= sys.float_info.max:
        raise unexpected("a number", value)
    return value


def _any(value: Any) -> Any:
    return value


#: Readers of types without parts.
PLAIN: dict[Any, Reader] = {
    str: _plain(str, "a text"),
    bool: _plain(bool, "true or false"),
    int: _plain(int, "an integer"),
    type(None): _plain(type(None), "null"),
    float: _number,
    Path: lambda value: Path(PLAIN[str](value)),
    object: _any,
    Any: _any,
}


def _literal(allowed: tuple[Any, ...]) -> Reader:
    def read(value: Any) -> Any:
        if value not in allowed:
            raise unexpected(" or ".join(map(str, allowed)), value)
        return value

    return read


def _list(item: Reader, kind: type[list[Any]] | type[tuple[Any, ...]]) -> Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise unexpected("a list", value)
        return kind(_at(index, item, element) for index, element in enumerate(value))

    return read


def _record(items: list[Reader]) -> Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, list | tuple) or len(value) != len(items):
            raise unexpected(f"a list of {len(items)}", value)
        return tuple(_at(index, item, element) for index, (item, element) in enumerate(zip(items, value, strict=True)))

    return read


def _mapping(item: Reader) -> Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise unexpected("an object", value)
        return {name: _at(name, item, element) for name, element in value.items()}

    return read


def _union(choices: list[Any], nullable: bool) -> Reader:
    readers = [reader(choice) for choice in choices]

    def read(value: Any) -> Any:
        if value is None and nullable:
            return None
        for each in readers[:-1]:
            try:
                return each(value)
            except MistypedValue:
                continue
        return readers[-1](value)

    return read
