"""The check of imports finds what it is there to find, and finds nothing in the code."""

from __future__ import annotations

from tests import imports


def test_the_code_has_no_circle_and_no_arrow_upwards() -> None:
    order, allowed = imports.layers()
    edges = imports.read(order)
    assert imports.circles(edges) == []
    assert imports.upward(edges, order, allowed) == []
    # Every exception is in use.
    assert all(target in edges[module] for module, target in allowed)


def test_a_circle_is_found_through_several_modules() -> None:
    edges = {"a.x": {"a.y"}, "a.y": {"a.z"}, "a.z": {"a.x", "b"}, "b": set[str]()}
    assert imports.circles(edges) == [["a.x", "a.y", "a.z"]]
    assert imports.circles({"a": {"b", "c"}, "b": {"c"}}) == []


def test_an_arrow_upwards_is_found() -> None:
    edges = {"high.x": {"low.y"}, "low.y": {"high.z"}, "high.z": set[str]()}
    assert imports.upward(edges, ["high", "low"], set()) == [("low.y", "high.z")]
    assert imports.upward(edges, ["high", "low"], {("low.y", "high.z")}) == []


def test_the_drawing_is_of_folders() -> None:
    edges = {"experiments.api": {"experiments.language.source"}, "web.app": {"experiments.api"}}
    edges["experiments.language"] = set()
    drawn = imports.mermaid(imports.folders(edges))
    assert drawn.splitlines() == ["graph TD", "    experiments --> experiments.language", "    web --> experiments"]
