"""Reference pages that are made from code: commands with their options, documents of `--json`, the Python handle.

`python -m tests.tables --update` writes them into the pages of docs/.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Literal, Union, get_args, get_origin
from unittest.mock import patch

from pydantic import TypeAdapter
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_plain_validator_function
from typing_extensions import get_type_hints, is_typeddict

from analysis import handle
from experiments.cli import application, with_kinds
from experiments.commands import documents
from experiments.commands.answer import Answer, has_answer
from testbed.documents import Model

#: Commands without an answer for scripts, and why.
WITHOUT_JSON = {
    "shell": "its standard output is the command's; with --json it reports on standard error",
    "shell watch": "prints until it is interrupted; `shell status --json` is one look",
    "shell enter": "becomes the command that it starts",
    "gateway": "shows devices until it is interrupted; with --json it reports on standard error",
    "mcp": "its standard output is the protocol's",
    "serve": "serves until it is interrupted; the API answers scripts",
    "serve runner": "serves until it is interrupted",
    "dask scheduler": "serves until it is interrupted",
    "dask worker": "serves until it is interrupted",
    "dask jobs": "serves until it is interrupted",
    "testbed site": "Ansible's output; its variable ANSIBLE_STDOUT_CALLBACK chooses JSON",
    "testbed check": "Ansible's output",
    "testbed collect": "Ansible's output",
    "testbed teardown": "Ansible's output",
    "testbed rehearse": "its standard output is the command's",
}


@cache
def commands() -> Mapping[str, Any]:
    """Every command of the application by its words, groups that do something themselves included."""
    return dict(_commands("", application()))


def _commands(before: str, group: Any) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        words = f"{before} {name}".strip()
        inner = getattr(command, "commands", None)
        if inner is None or command.invoke_without_command:
            yield words, command
        if inner is not None:
            yield from _commands(words, command)


def function_of(command: Any) -> Callable[..., object]:
    """The function that a command calls."""
    function = command.callback
    while not has_answer(function) and hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function  # type: ignore[no-any-return]


def document_of(command: Any) -> Any:
    """The type of a command's document; None without one."""
    function = function_of(command)
    if not has_answer(function):
        return None
    names = {"Answer": Answer, "documents": documents, "Sequence": Sequence, "Mapping": Mapping}
    return get_args(eval(function.__annotations__["return"], names))[0]  # noqa: S307 (our own annotations)


# Documents ---------------------------------------------------------------------------------------------------


def json_commands() -> Iterator[str]:
    """The table of commands and their documents."""
    yield "| command | document |\n|---|---|\n"
    for words, command in commands().items():
        if (document := document_of(command)) is not None:
            yield f"| `{words}` | {named(document)} |\n"


def json_exceptions() -> Iterator[str]:
    """The table of commands without a document."""
    yield "| command | reason |\n|---|---|\n"
    for words, reason in WITHOUT_JSON.items():
        yield f"| `{words}` | {reason} |\n"


def json_documents() -> Iterator[str]:
    """Every document with its fields."""
    seen: dict[str, Any] = {}
    for command in commands().values():
        _collect(document_of(command), seen)
    _collect(documents.Failure, seen)
    for name, document in sorted(seen.items()):
        yield f"\n### {name}\n\n{_text(document)}"


def reader(kind: Any) -> TypeAdapter[Any]:
    """What checks a JSON document against a type of ours. The product reads its own types without pydantic."""

    def schema(model: type[Model], handler: Any) -> CoreSchema:
        return no_info_plain_validator_function(model.read)

    with patch.object(Model, "__get_pydantic_core_schema__", staticmethod(schema), create=True):
        return TypeAdapter(kind)


def document_text(kind: Any) -> str:
    """The documents that a type has, with their fields.

    Raises:
        KeyError: a field is of a type that JSON does not have.
    """
    seen: dict[str, Any] = {}
    _collect(kind, seen)
    return named(kind) + "".join(map(_text, seen.values()))


def _text(document: Any) -> str:
    """What a document is, and the table of its fields."""
    meanings, optional = _meanings(document), getattr(document, "__optional_keys__", ())
    rows = [
        f"| `{field}` | {named(kind)}{', may be absent' if field in optional else ''} | {meanings.get(field, '')} |\n"
        for field, kind in _fields(document).items()
    ]
    head = "| field | type | meaning |\n|---|---|---|\n"
    return f"{(inspect.getdoc(document) or '').strip()}\n\n{head}{''.join(rows)}"


def _is_document(kind: Any) -> bool:
    return is_typeddict(kind) or dataclasses.is_dataclass(kind) or (isinstance(kind, type) and issubclass(kind, Model))


def _fields(document: Any) -> Mapping[str, Any]:
    return {name: kind for name, kind in get_type_hints(document).items() if get_origin(kind) is not ClassVar}


def _collect(kind: Any, seen: dict[str, Any]) -> None:
    if _is_document(kind) and kind.__name__ not in seen:
        seen[kind.__name__] = kind
        for inner in _fields(kind).values():
            _collect(inner, seen)
    for inner in get_args(kind):
        _collect(inner, seen)


_PLAIN = {str: "text", int: "integer", float: "number", bool: "true or false", types.NoneType: "null", Any: "any"}


def named(kind: Any) -> str:
    """A type in words, with links to documents."""
    if _is_document(kind):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(map(named, inner))
    if origin in (list, tuple) or (isinstance(origin, type) and issubclass(origin, Sequence)):
        return f"list of {named(inner[0])}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "object" if inner[1] is Any else f"object of {named(inner[1])}"
    if origin is Literal:
        return "text"
    return _PLAIN[kind]


def _meanings(document: Any) -> dict[str, str]:
    """The comments `#:` above fields, inherited ones included."""
    found: dict[str, str] = {}
    for base in (*getattr(document, "__orig_bases__", ()), document):
        if not _is_document(base) or (base is not document and base.__module__ != document.__module__):
            continue
        if base is not document:
            found |= _meanings(base)
            continue
        for match in re.finditer(r"((?: {4}#: .*\n)+) {4}(\w+):", inspect.getsource(base)):
            found[match[2]] = " ".join(line.strip().removeprefix("#: ") for line in match[1].splitlines())
    return found


# Commands ----------------------------------------------------------------------------------------------------


def options() -> Iterator[str]:
    """Every command with its arguments and options."""
    for words, command in commands().items():
        text = inspect.cleandoc(command.help or "").replace("\n", " ")
        arguments = [given for given in command.params if given.param_type_name == "argument"]
        usage = " ".join(piece for given in arguments for piece in given.get_usage_pieces(None))
        yield f"\n### {words}\n\n    ./backchannel {words}{' ' + usage if usage else ''}\n\n{_prose(text)}\n\n"
        shown = [given for given in command.params if not getattr(given, "hidden", False)]
        yield "| argument or option | meaning | default |\n|---|---|---|\n"
        for given in shown:
            name = given.display_name_raw if given in arguments else _option_name(given)
            default = ", or ".join(filter(None, [f"`${given.envvar}`" if given.envvar else "", _default(given)]))
            yield f"| `{name}` | {_prose(with_kinds(given.help or ''))} | {default} |\n"


def _option_name(given: Any) -> str:
    names = ", ".join([*given.opts, *given.secondary_opts])
    return names if given.is_flag else f"{names} {given.metavar or ''}".strip()


def _prose(text: str) -> str:
    """Help in a table: paragraphs in one line, and nothing that Markdown takes for a table, tag or link."""
    return re.sub(r"([|<>\[\]])", r"\\\1", " ".join(text.split()))


def _default(given: Any) -> str:
    value = given.default
    if value is None or value is False or value == "" or not getattr(given, "show_default", True):
        return ""
    return "" if given.required else f"`{value}`"


# Python ------------------------------------------------------------------------------------------------------


def python_handle() -> Iterator[str]:
    """The classes of `analysis.open` with their public members."""
    for owner in (handle.OpenResults, handle.StoredCampaign, handle.StoredRun):
        yield f"\n### {owner.__name__}\n\n{_first(owner)}\n\n| member | meaning |\n|---|---|\n"
        for name, member in vars(owner).items():
            target = member.fget if isinstance(member, property) else getattr(member, "func", member)
            if isinstance(target, classmethod | staticmethod):
                target = target.__func__
            if name.startswith("_") or not inspect.isfunction(target):
                continue
            yield f"| `{name}{'' if target is not member else _signature(target)}` | {_prose(_first(target))} |\n"


def _signature(function: Callable[..., object]) -> str:
    names = [
        f"{given.name}" if given.default is inspect.Parameter.empty else f"{given.name}={given.default!r}"
        for given in list(inspect.signature(function).parameters.values())[1:]
    ]
    return f"({', '.join(names)})"


def _first(documented: Any) -> str:
    """The first paragraph of a docstring."""
    return " ".join((inspect.getdoc(documented) or "").partition("\n\n")[0].split())
