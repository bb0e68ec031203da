"""The Rust workspace: crates depend on those below them only, and on nothing that they do not use."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from distribution import diagram
from testbed.node_binary import ROOT

#: A crate may depend on those of earlier layers.
LAYERS = [
    ["core"],
    ["laws"],
    ["policies", "stacks", "traces", "workloads"],
    ["middleboxes", "quic"],
    ["links"],
    ["simulator", "emulator"],
    ["audit"],
    ["node"],
    ["fuzz", "outside", "templates"],
]
LAYER = {f"backchannel-{name}": number for number, names in enumerate(LAYERS) for name in names}
SECTIONS = ("dependencies", "dev-dependencies", "build-dependencies")


def read(manifest: Path) -> dict[str, Any]:
    return tomllib.loads(manifest.read_text())


WORKSPACE = read(ROOT / "Cargo.toml")["workspace"]
MANIFESTS = [ROOT / member / "Cargo.toml" for member in WORKSPACE["members"]]


def dependencies(manifest: Path) -> set[str]:
    return {name for section in SECTIONS for name in read(manifest).get(section, {})}


def test_every_crate_has_a_layer() -> None:
    assert {read(manifest)["package"]["name"] for manifest in MANIFESTS} == set(LAYER)


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.parent.name)
def test_dependencies_point_downwards(manifest: Path) -> None:
    crate = read(manifest)["package"]["name"]
    upward = [name for name in dependencies(manifest) if name in LAYER and LAYER[name] >= LAYER[crate]]
    assert not upward


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.parent.name)
def test_every_dependency_is_used(manifest: Path) -> None:
    folder = manifest.parent
    sources = "\n".join(path.read_text() for path in folder.rglob("*.rs"))
    unused = [
        name
        for section in SECTIONS
        for name in read(manifest).get(section, {})
        if not re.search(rf"\b{name.replace('-', '_')}\b", sources)
    ]
    assert not unused, f"{manifest.relative_to(ROOT)} names crates that its sources do not use"


def test_the_drawing_of_the_architecture_has_the_crates_dependencies() -> None:
    """An arrow is a dependency, and a dependency is an arrow or a way of several."""
    page = (ROOT / "docs/architecture.md").read_text()
    labels, arrows = diagram.parse(page.partition("```mermaid\n")[2].partition("```")[0])
    folder = {name: label.partition(",")[0] for name, label in labels.items()}
    drawn: dict[str, set[str]] = {}
    for above, below in arrows:
        drawn.setdefault(folder[above], set()).add(folder[below])
    crates = {read(manifest)["package"]["name"]: str(manifest.parent.relative_to(ROOT)) for manifest in MANIFESTS}

    def ways(start: str) -> set[str]:
        return {start}.union(*(ways(below) for below in drawn.get(start, ())))

    for manifest in MANIFESTS:
        crate = crates[read(manifest)["package"]["name"]]
        needed = {crates[name] for name in read(manifest).get("dependencies", {}) if name in crates}
        if crate in folder.values():
            assert drawn.get(crate, set()) <= needed <= ways(crate), crate
    assert set(folder.values()) >= set(crates.values()) - {"agents/templates", "tests/fuzz"}


def test_every_dependency_of_the_workspace_is_some_crates() -> None:
    named = set().union(*(dependencies(manifest) for manifest in MANIFESTS))
    assert not set(WORKSPACE["dependencies"]) - named


def test_crates_take_versions_from_the_workspace() -> None:
    for manifest in MANIFESTS:
        for section in SECTIONS:
            for name, value in read(manifest).get(section, {}).items():
                assert value == {"workspace": True}, f"{manifest}: {name}"


def test_policies_do_not_assign_their_parameters() -> None:
    """What the campaign sets stays for the run; what changes is in `Variables`."""
    assigned = re.compile(r"self\.parameters(?:\.\w+)*\s*[-+*/]?=(?!=)|&mut self\.parameters")
    files = sorted((ROOT / "agents/policies/src").rglob("*.rs"))
    assert sum("parameters: Parameters" in file.read_text() for file in files) >= 4
    assert [file.name for file in files if assigned.search(file.read_text())] == []
    assert assigned.search("self.parameters.limit = 3;")
    assert assigned.search("let limit = &mut self.parameters.limit;")
