"""Draws the imports between the Python packages, and fails on circles, on arrows that point upwards, and on imports
inside functions that save no time.

    python -m tests.imports              # a Mermaid graph of the folders, for docs and README
    python -m tests.imports --files      # of all files
    python -m tests.imports --check      # only the check, as `tests/run lint` calls it

The order of the packages is that of the contract "Imports point downwards" in pyproject.toml. Imports inside functions
and under TYPE_CHECKING count.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
Edges = Mapping[str, set[str]]
#: Libraries that are slow to import (`python -X importtime`). An import inside a function spares them those who do not
#: need them.
SLOW = {
    "alembic", "ansible", "asyncio", "ctypes", "dask", "dask_jobqueue", "distributed", "flask", "fsspec", "matplotlib",
    "mcp", "mininet", "numpy", "optuna", "pandas", "polars", "pydantic", "regex", "rich", "ruamel", "scipy",
    "sqlalchemy",
}  # fmt: skip


def layers() -> tuple[list[str], set[tuple[str, str]]]:
    """The packages, highest first, and the arrows that are allowed all the same."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    contract = next(contract for contract in contracts if contract["name"] == "Imports point downwards")
    allowed = {(source, target) for source, _, target in map(str.split, contract["ignore_imports"])}
    return contract["layers"], allowed


def read(packages: Iterable[str]) -> dict[str, set[str]]:
    """Each file's module with the modules that it imports."""
    graph = grimp.build_graph(*packages)
    return {module: set(graph.find_modules_directly_imported_by(module)) for module in sorted(graph.modules)}


def folders(edges: Edges) -> dict[str, set[str]]:
    """The same between folders: a module of a package's top folder counts as its package's."""
    names = {module for module in edges if (ROOT / module.replace(".", "/")).is_dir()}

    def folder(module: str) -> str:
        return module if module in names else module.rpartition(".")[0]

    result: dict[str, set[str]] = {}
    for module, targets in edges.items():
        for target in targets:
            if folder(module) != folder(target):
                result.setdefault(folder(module), set()).add(folder(target))
    return result


def circles(edges: Edges) -> list[list[str]]:
    """Groups of modules that import each other, directly or through others (Tarjan's strong components)."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    result: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = lowest[module] = len(index)
        stack.append(module)
        for target in sorted(edges.get(module, ())):
            if target not in index:
                visit(target)
                lowest[module] = min(lowest[module], lowest[target])
            elif target in stack:
                lowest[module] = min(lowest[module], index[target])
        if lowest[module] == index[module]:
            group = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(group) > 1:
                result.append(sorted(group))

    for module in sorted(edges):
        if module not in index:
            visit(module)
    return result


def upward(edges: Edges, order: list[str], allowed: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Imports of a package that stands higher."""
    rank = {package: number for number, package in enumerate(order)}
    return [
        (module, target)
        for module, targets in edges.items()
        for target in sorted(targets)
        if rank[target.partition(".")[0]] < rank[module.partition(".")[0]] and (module, target) not in allowed
    ]


@cache
def _imports(module: str) -> tuple[set[str], list[tuple[int, set[str]]]]:
    """What a module of ours imports when it is imported, and its imports inside functions by line."""
    place = ROOT / module.replace(".", "/")
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    at_once: set[str] = set()
    inside: list[tuple[int, set[str]]] = []

    def visit(parent: ast.AST, in_function: bool) -> None:
        for node in ast.iter_child_nodes(parent):
            names: set[str] = set()
            if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
                continue
            if isinstance(node, ast.Import):
                names = {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            if names and in_function:
                inside.append((getattr(node, "lineno", 0), names))
            at_once.update(() if in_function else names)
            visit(node, in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))

    if file.is_file():
        visit(ast.parse(file.read_text()), False)
    return at_once, inside


def loaded(names: Iterable[str], packages: Iterable[str]) -> set[str]:
    """Everything that is loaded by an import of these names, ours and others'."""
    result: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        parents = [name.rsplit(".", count)[0] for count in range(name.count(".") + 1)]
        for each in set(parents) - result:
            result.add(each)
            if each.partition(".")[0] in packages:
                waiting += _imports(each)[0]
    return result


def needless(modules: Iterable[str], packages: list[str]) -> Iterator[str]:
    """Places of imports inside functions that load no slow library: they belong to the top of the file."""
    for module in modules:
        inside = _imports(module)[1]
        present = loaded([module], packages) & SLOW if inside else set()
        for line, names in inside:
            if not (loaded(names, packages) & SLOW) - present:
                yield f"{module.replace('.', '/')}.py:{line}"


def mermaid(edges: Edges) -> str:
    """The graph in Mermaid's language."""
    lines = ["graph TD"]
    lines += [f"    {module} --> {target}" for module in sorted(edges) for target in sorted(edges[module])]
    return "\n".join(lines)


def main() -> int:
    """Draws and checks; 1 when something is wrong."""
    parser = argparse.ArgumentParser(description="Draw and check the imports between the Python packages.")
    parser.add_argument("--files", action="store_true", help="draw files instead of folders")
    parser.add_argument("--check", action="store_true", help="draw nothing")
    options = parser.parse_args()
    order, allowed = layers()
    edges = read(order)
    if not options.check:
        print(mermaid(edges if options.files else folders(edges)))
    problems = [f"circle: {' - '.join(group)}" for group in circles(edges)]
    problems += [f"upwards: {module} imports {target}" for module, target in upward(edges, order, allowed)]
    problems += [f"{place}: import this at the top of the file: it is not slow" for place in needless(edges, order)]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
