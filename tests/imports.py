"""Draws the imports between the Python packages, and fails on circles and on arrows that point upwards.

    python -m tests.imports              # a Mermaid graph of the folders, for docs and README
    python -m tests.imports --files      # of all files
    python -m tests.imports --check      # only the check, as `tests/run lint` calls it

The order of the packages is that of the contract "Imports point downwards" in pyproject.toml. Imports inside functions
and under TYPE_CHECKING count.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
Edges = Mapping[str, set[str]]


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
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
