"""What a command answers: a document for scripts, and the same as text for people.

A command that returns an `Answer` has the option `--json`, which prints the document. Its type, as in
`-> Answer[documents.Backup]`, is the schema in docs/json.md.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Generic, TypeVar, get_type_hints

import typer

from experiments import exits
from experiments.commands import shared
from experiments.commands.options import JsonOption

Document = TypeVar("Document", covariant=True)


@dataclass(frozen=True)
class Answer(Generic[Document]):
    """The answer of a command."""

    #: Mappings, lists, numbers, texts and data classes, in SI units. tests/sim/commands/test_json.py holds answers
    #: against their types.
    document: Any
    #: Lines, or what prints them.
    text: Sequence[str] | Callable[[], object]
    status: int = exits.OK

    def print(self) -> None:
        """Prints the text."""
        if callable(self.text):
            self.text()
            return
        for line in self.text:
            typer.echo(line)

    def as_json(self) -> str:
        """The document as JSON."""
        return json.dumps(self.document, indent=2, default=_plain)


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def has_answer(function: Callable[..., object]) -> bool:
    """Whether a command returns an `Answer`. Annotations are texts, as resolving them imports what they name."""
    return str(function.__annotations__.get("return", "")).startswith("Answer[")


def answered(function: Callable[..., Any]) -> Callable[..., Any]:
    """A command that prints its answer and has the option `--json`. One without an answer stays as it is."""
    if not has_answer(function):
        return function

    @functools.wraps(function)
    def command(*args: Any, as_json: bool = False, **options: Any) -> None:
        if as_json:
            shared.wants_json.set(True)
        answer = function(*args, **options)
        if shared.wants_json.get():
            typer.echo(answer.as_json())
        else:
            answer.print()
        if answer.status != exits.OK:
            raise typer.Exit(answer.status)

    # typer reads annotations and signature. That of the answer stays a text: its type is slow to import.
    texts = {name: text for name, text in function.__annotations__.items() if name != "return"}
    types = get_type_hints(SimpleNamespace(__annotations__=texts), function.__globals__, include_extras=True)
    signature = inspect.signature(function)
    parameters = [given.replace(annotation=types[name]) for name, given in signature.parameters.items()]
    option = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption)
    command.__annotations__ = {**types, "as_json": JsonOption}
    command.__signature__ = inspect.Signature([*parameters, option])  # type: ignore[attr-defined]
    return command
