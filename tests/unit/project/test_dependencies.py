"""pyproject.toml declares what the code imports and nothing else, and requirements*.txt pin what it declares."""

from __future__ import annotations

import ast
import hashlib
import re
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from testbed.node_binary import ROOT
from tests.notices import crates

_FILE = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT, BUILD = _FILE["project"], _FILE["build-system"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
OURS = {"agents", "analysis", "distribution", "experiments", "testbed", "tests", "benchmarks", "web"}
#: From Debian's package; the launcher links it into the environment.
FROM_DEBIAN = {"mininet"}
#: Of a campaign's programs, which run in environments of their own (docs/quic.md).
OF_PROGRAMS = {"aioquic"}
#: Distribution by import, where the names differ.
DISTRIBUTIONS = {
    "ansible": "ansible-core",
    "ansible_collections": "ansible-core",
    "markdown_it": "markdown-it-py",
    "mkdocs": "mkdocs-material",
    "PIL": "pillow",
    "ruamel": "ruamel.yaml",
    "yaml": "pyyaml",
}
#: Programs, types of libraries, and libraries that Mininet, moto's server and fsspec import.
NOT_IMPORTED = {
    "ansible-lint", "flask-cors", "import-linter", "mypy", "pytest-xdist", "ruff", "s3fs",
    "setuptools", "types-regex",
}  # fmt: skip


def name(requirement: str) -> str:
    """The distribution's name in its canonical form."""
    result = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert result is not None, requirement
    return re.sub(r"[-_.]+", "-", result.group()).lower()


def declared(*groups: list[str]) -> set[str]:
    return {name(requirement) for group in groups for requirement in group}


def imported(folders: set[str]) -> dict[str, Path]:
    """Distributions that the Python files of these folders import, each with one file that does."""
    return {name: path for folder in sorted(folders) for name, path in imported_in(folder).items()}


@cache
def imported_in(folder: str) -> dict[str, Path]:
    """The same of one folder."""
    result: dict[str, Path] = {}
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                modules = [node.module or ""]
            for module in modules:
                top = module.split(".")[0]
                # The module that a template's test is about.
                if top == "my_crate" and path.parent == ROOT / "analysis/templates":
                    continue
                if top not in sys.stdlib_module_names | OURS | FROM_DEBIAN | OF_PROGRAMS:
                    result[name(DISTRIBUTIONS.get(top, top))] = path
    return result


def test_every_import_is_declared() -> None:
    extras = (EXTRAS[extra] for extra in ("lab", "pandas", "search", "jobs", "mcp"))
    program = declared(PROJECT["dependencies"], *extras)
    assert imported(OURS - {"tests", "benchmarks", "distribution"} | {"ansible"}).keys() <= program
    assert imported({"tests", "benchmarks", "docs"}).keys() <= program | declared(EXTRAS["dev"])
    build = {name(package) for package in BUILD["requires"]}
    assert imported({"distribution"}).keys() <= program | declared(EXTRAS["dev"], EXTRAS["docs"]) | build


def test_every_declaration_is_used() -> None:
    used = imported(OURS | {"ansible", "docs"}).keys()
    everything = declared(PROJECT["dependencies"], *EXTRAS.values())
    unused = everything - used - NOT_IMPORTED
    assert unused == set()


def pinned(file: str) -> list[str]:
    """The packages of a list of requirements, each with its version, marker and hashes on one line."""
    text = re.sub(r"^ *#.*\n", "", (ROOT / file).read_text(), flags=re.MULTILINE)
    return re.sub(r" *\\\n *", " ", text).splitlines()


@pytest.mark.parametrize(("file", "extras"), [("requirements.txt", ["lab"]), ("requirements-dev.txt", ["lab", "dev"])])
def test_every_declaration_is_pinned(file: str, extras: list[str]) -> None:
    pins = pinned(file)
    assert all(re.match(r"[a-z0-9.-]+==[0-9]", pin) for pin in pins)
    # With one hash in the file pip demands that of every package.
    assert all(re.search(r" --hash=sha256:[0-9a-f]{64}\b", pin) for pin in pins)
    names = {name(pin) for pin in pins}
    assert declared(PROJECT["dependencies"], *(EXTRAS[extra] for extra in extras)) <= names
    assert "mininet" not in names


@pytest.mark.parametrize(
    "where", ["analysis/figures/static/uplot", "web/static/codemirror", "tests/system/browser/axe"]
)
def test_vendored_scripts_are_those_that_were_published(where: str) -> None:
    folder = ROOT / where
    listed = {}
    for line in (folder / "SHA256SUMS").read_text().splitlines():
        digest, _, file = line.partition("  ")
        listed[file] = digest
    files = {path.name: path for path in folder.iterdir() if path.name not in ("SHA256SUMS", "VERSION.md")}
    assert {file: hashlib.sha256(path.read_bytes()).hexdigest() for file, path in files.items()} == listed


def noticed() -> list[tuple[str, str, str]]:
    """Name, version and licence of the crates in the notices."""
    text = (ROOT / "THIRD-PARTY-NOTICES").read_text()
    return re.findall(r"^([A-Za-z0-9_-]+) ([0-9][^ ]*) \((.+)\)$", text, re.MULTILINE)


def test_notices_name_every_crate_of_the_binary_with_its_version() -> None:
    named = {name: version for name, version, _ in noticed()}
    assert named == crates(), "python -m tests.notices >THIRD-PARTY-NOTICES"


#: Licences that ask for no more than a notice.
PERMISSIVE = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT",
    "MIT-0", "Unicode-3.0", "Unlicense", "Zlib",
}  # fmt: skip


def is_permissive(licence: str) -> bool:
    """Whether an SPDX expression of OR, / and AND can be satisfied by permissive licences."""
    parts = [re.split(" OR |/", part.strip("() ")) for part in licence.split(" AND ")]
    return all(any(one in PERMISSIVE for one in part) for part in parts)


def test_the_binary_may_be_passed_on_with_notices_alone() -> None:
    assert not is_permissive("MIT AND LGPL-2.1-or-later")
    assert not [entry for entry in noticed() if not is_permissive(entry[2])]


def test_every_crate_comes_from_one_registry_with_a_checksum() -> None:
    packages = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    published = [package for package in packages if "source" in package]
    assert len({package["source"] for package in published}) == 1
    assert published[0]["source"].startswith("registry+")
    assert not [package["name"] for package in published if "checksum" not in package]


def test_supported_ansible_for_each_python() -> None:
    pins = [pin.partition(" --hash")[0] for pin in pinned("requirements.txt") if pin.startswith("ansible-core")]
    assert len(pins) == 2
    assert pins[0].startswith("ansible-core==2.19.")
    assert pins[0].endswith("< '3.12'")
    assert pins[1].endswith(">= '3.12'")
