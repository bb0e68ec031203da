"""The modules of each crate: none imports one that imports it, directly or through others.

`pytest -s tests/unit/project/test_modules.py` prints the graph of crates and modules.
"""

from __future__ import annotations

import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.project.test_crates import LAYER, MANIFESTS, dependencies

Graph = dict[str, set[str]]
#: Names of a path that begins at the root of the crate: one, or a list in braces.
_PATHS = r"\b{root}::(?:(\w+)|\{{([^;]*?)\}};)"
_OF_MODULES = re.compile(_PATHS.format(root="crate"))
#: Of a module at the root, which is next to the others.
_AT_ROOT = re.compile(_PATHS.format(root=r"(?:crate|super(?=::[A-Z{]))"))


def module_graph(folder: Path) -> Graph:
    """For each module at the root of a crate, those that it names. The root itself is `lib`."""
    root = next(path for name in ("lib.rs", "main.rs") if (path := folder / name).exists())
    sources: dict[str, str] = {}
    named: dict[str, set[str]] = {}
    for path in sorted(folder.rglob("*.rs")):
        parts = path.relative_to(folder).with_suffix("").parts
        if "tests" not in parts and parts[0] != "testing":
            name = "lib" if path == root else parts[0]
            source = _without_tests(path.read_text())
            sources[name] = sources.get(name, "") + source
            named.setdefault(name, set()).update(_named(source, _AT_ROOT if len(parts) == 1 else _OF_MODULES))
    exported = {name: module for module, name in _exported(sources["lib"]) if module in sources}
    graph: Graph = {}
    for module in sources:
        names = named[module] if module != "lib" else set()
        graph[module] = {name if name in sources else exported.get(name, "lib") for name in names} - {module}
    items = re.sub(r"(?m)^(?:pub )?(?:mod \w+;|use [^;]*;)", "", sources["lib"])
    graph["lib"] = {module for module in sources if re.search(rf"\b{module}::", items)}
    return graph


def _without_tests(source: str) -> str:
    source = re.split(r"(?m)^#\[cfg\(test\)\]\nmod \w+ \{", source)[0]
    return re.sub(r"(?m)^\s*//.*$", "", source)


def _exported(source: str) -> Iterator[tuple[str, str]]:
    """The modules of a root with each name that the root has from them."""
    for module, names in re.findall(r"(?m)^(?:pub )?use (\w+)::([^;]*);", source):
        yield from ((module, name) for name in re.findall(r"\w+", names))


def _named(source: str, paths: re.Pattern[str]) -> Iterator[str]:
    for name, names in paths.findall(source):
        if name:
            yield name
        else:
            yield from (part.split("::")[0].strip() for part in _parts(names))


def _parts(names: str) -> list[str]:
    """The parts of a list in braces, without the lists within."""
    while "{" in names:
        names = re.sub(r"\{[^{}]*\}", "", names)
    return [part for part in names.split(",") if part.strip()]


def circle(graph: Graph) -> list[str]:
    """Modules of which each names the next one, the last being the first; none if there is no circle."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_the_graph_of_crates_has_an_order() -> None:
    graph = {path.parent.name: {name.removeprefix("backchannel-") for name in dependencies(path) & LAYER.keys()}
             for path in MANIFESTS}  # fmt: skip
    for crate in graphlib.TopologicalSorter(graph).static_order():
        print(f"{crate}: {', '.join(sorted(graph[crate]))}")


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.parent.name)
def test_no_module_imports_one_that_imports_it(manifest: Path) -> None:
    graph = module_graph(manifest.parent / "src")
    print(*(f"{module} -> {', '.join(sorted(names))}" for module, names in graph.items() if names), sep="\n")
    assert not (found := circle(graph)), f"{manifest.parent.name}: {' imports '.join(found)}"


def test_a_circle_is_found(tmp_path: Path) -> None:
    (tmp_path / "lib.rs").write_text("mod a;\nmod b;\nmod c;\npub use c::Third;\n")
    (tmp_path / "a.rs").write_text("use crate::b;\n")
    (tmp_path / "b.rs").write_text("use crate::{other, Third};\n")
    (tmp_path / "c.rs").write_text("// crate::a\n#[cfg(test)]\nmod tests {\n    use crate::a;\n}\n")
    assert circle(module_graph(tmp_path)) == []
    (tmp_path / "c.rs").write_text("use crate::{\n    a::{First, Second},\n};\n")
    assert sorted(set(circle(module_graph(tmp_path)))) == ["a", "b", "c"]


def test_a_nested_file_names_its_own_module_by_super(tmp_path: Path) -> None:
    (tmp_path / "lib.rs").write_text("mod a;\nfn main() {\n    a::run();\n}\n")
    (tmp_path / "a").mkdir()
    (tmp_path / "a.rs").write_text("mod inner;\n")
    (tmp_path / "a/inner.rs").write_text("use super::First;\n")
    assert circle(module_graph(tmp_path)) == []
    (tmp_path / "a.rs").write_text("mod inner;\nuse super::First;\n")
    assert sorted(set(circle(module_graph(tmp_path)))) == ["a", "lib"]
