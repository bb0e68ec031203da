"""No code decides by the text of an error: a type or a field says what happened, and texts may change."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from testbed.node_binary import ROOT

PACKAGES = ("testbed", "agents", "analysis", "experiments", "web", "ansible")
#: The dynamic loader has no exception of its own for a library without room.
OF_OTHERS = {"experiments/limits.py"}
ASKING = {"startswith", "endswith", "find", "index", "search", "match", "fullmatch"}


def deciding(text: str) -> Iterator[int]:
    """Lines of a module in which a handler asks what is in the text of its exception."""
    for handler in ast.walk(ast.parse(text)):
        if not isinstance(handler, ast.ExceptHandler) or handler.name is None:
            continue
        shown = {f"str({handler.name})", f"{handler.name}.args[0]"}
        for node in ast.walk(handler):
            match node:
                case ast.Compare(left=left, comparators=others):
                    asked: list[ast.expr] = [left, *others]
                case ast.Call(func=ast.Attribute(value=value, attr=name), args=args) if name in ASKING:
                    asked = [value, *args]
                case _:
                    continue
            if any(ast.unparse(part) in shown for part in asked):
                yield node.lineno


def test_no_handler_decides_by_the_text_of_an_exception() -> None:
    found = {
        str(path.relative_to(ROOT)): lines
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if (lines := list(deciding(path.read_text(encoding="utf-8"))))
    }
    assert set(found) == OF_OTHERS, found


def test_a_decision_by_text_is_found() -> None:
    text = """
try: work()
except ValueError as error:
    if "no route" in str(error): retry()
    if str(error).startswith("busy"): wait()
    if re.search("lost", str(error)): give_up()
    if error.args[0] == "x": again()
    raise Problem(f"{error}; try again") from None
"""
    assert list(deciding(text)) == [4, 5, 6, 7]
