"""An installation: its modules are parts of one package, find each other there, and leave other names alone."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from distribution import rewrite, tree
from testbed import sources
from testbed.node_binary import ROOT
from tests.support.command_line import backchannel

#: Imports every module of an installation but those that start something, and prints what else was imported of our
#: folders' names.
IMPORT_ALL = """
import pkgutil, sys
import backchannel
for module in pkgutil.walk_packages(backchannel.__path__, "backchannel."):
    if not {"__main__", "ansible_collections", "migrations", "pytest", "scripted"} & set(module.name.split(".")):
        __import__(module.name)
        print(module.name)
ours = {name for name in sys.modules if name.split(".")[0] in ("agents", "analysis", "experiments", "testbed", "web")}
assert not ours, ours
"""
#: What a package of one of our folders' names has, as `openai-agents` and `web.py` do.
FOREIGN = "raise AssertionError('a package of somebody else was imported')\n"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder `site-packages` of an installation, beside packages of others."""
    folder = tmp_path_factory.mktemp("installed")
    tree.fill(ROOT, folder / "backchannel")
    for name in rewrite.FOLDERS:
        (folder / f"{name}.py").write_text(FOREIGN)
    return folder


def python(installed: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "BACKCHANNEL_ROOT"}
    environment["PYTHONPATH"] = str(installed)
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from testbed import node_binary\n", "from backchannel.testbed import node_binary\n"),
        ("if a:\n  from web import (\n    b)\n", "if a:\n  from backchannel.web import (\n    b)\n"),
        ("import analysis\n", "from backchannel import analysis\n"),
        ("import os, analysis.runs as runs\n", "import os, backchannel.analysis.runs as runs\n"),
        ("x = 'ä'; from agents import a\n", "x = 'ä'; from backchannel.agents import a\n"),
        ("from distribution.package.command import main\n", "from backchannel.command import main\n"),
        ("from . import agents\nimport webbrowser\n", "from . import agents\nimport webbrowser\n"),
        ("text = './backchannel run'\n", "text = 'backchannel run'\n"),
    ],
)  # fmt: skip
def test_only_imports_change(before: str, after: str) -> None:
    assert rewrite.installed(before, "a.py") == after


@pytest.mark.parametrize("source", ["import analysis.runs\n", "import os, analysis\n"])
def test_another_form_of_import_is_rejected_with_its_place(source: str) -> None:
    with pytest.raises(ValueError, match=r"^a\.py:1: write 'from analysis"):
        rewrite.installed(source, "a.py")


def test_every_module_imports_only_what_is_in_the_package(installed: Path) -> None:
    done = python(installed, "-c", IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) > 300


def test_no_string_names_a_module_of_a_checkout(installed: Path) -> None:
    """Modules that are named at run time have the package before their name, by `node_binary.module` or PACKAGE."""
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for folder in rewrite.FOLDERS
        for path in (ROOT / folder).rglob("*.py")
    }
    wrong = []
    for path in sorted((installed / "backchannel").rglob("*.py")):
        source = ast.parse(path.read_text())
        named: set[ast.expr] = set()
        for node in ast.walk(source):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "node_binary.module":
                named.update(node.args)
            elif isinstance(node, ast.JoinedStr) and "PACKAGE" in ast.unparse(node):
                named.update(node.values)
        for node in ast.walk(source):
            if isinstance(node, ast.Constant) and node not in named and node.value in modules and "." in node.value:
                wrong.append(f"{path.relative_to(installed)}:{node.lineno}: {node.value}")
    # The name in a usage message, and where PACKAGE comes from.
    assert [place for place in wrong if not place.endswith((" agents.service", " testbed.node_binary"))] == []


def test_roles_start_modules_and_read_files_that_a_release_of_an_installation_has(installed: Path) -> None:
    collection = installed / "backchannel" / tree.COLLECTION
    for path in collection.rglob("*.yml"):
        text = path.read_text()
        for module in re.findall(r"-m'?,? *\n? *[-'] ?'?([a-z_.]+)'?", text):
            assert module in ("venv",) or module.startswith("backchannel."), path
        assert "current/requirements.txt" not in text, path
    assert (collection / "plugins/plugin_utils/checkout.py").exists()


def test_an_installation_has_the_digest_of_the_checkout(installed: Path) -> None:
    assert (installed / "backchannel" / sources.RELEASED).read_text().strip() == sources.digest()


def plan(text: str) -> list[Any]:
    return [run["id"] for run in json.loads(text)["runs"]]


@pytest.mark.parametrize("backend", ["sim", "virtual-kernel"])
def test_runs_have_the_ids_of_a_checkout(installed: Path, tmp_path: Path, backend: str) -> None:
    words = ("plan", "quickstart", "--backend", backend, "--set", "stack=newreno", "--json", "--results", str(tmp_path))
    there = python(installed, "-m", "backchannel", *words)
    assert there.returncode == 0, there.stderr
    here = backchannel(*words)
    assert plan(there.stdout) == plan(here.stdout) != []


def test_commands_of_a_checkout_are_those_of_its_launcher(installed: Path) -> None:
    from distribution.package.command import OF_A_CHECKOUT

    launcher = (ROOT / "backchannel").read_text()
    first = launcher[launcher.index("case ${1:-} in") : launcher.index("# Commands are known by")]
    assert set(re.findall(r"^([a-z]+)\)$", first, re.MULTILINE)) == OF_A_CHECKOUT
    for word in OF_A_CHECKOUT:
        done = python(installed, "-m", "backchannel", word)
        assert (done.returncode, "needs a checkout" in done.stderr) == (2, True)


def test_a_name_that_is_close_to_a_campaign_is_suggested(tmp_path: Path) -> None:
    done = backchannel("validate", "quikstart", "asym-fig4", status=2)
    assert "quikstart: cannot be read: No such file or directory; did you mean quickstart?" in done.stderr
    (tmp_path / "quickstart").write_text("name: [\n")
    assert "asym-fig4: good" in done.stdout
    assert "quickstart:" in backchannel("validate", tmp_path / "quickstart").stderr


def test_a_user_whose_cache_cannot_be_written_has_commands_without_mininet(monkeypatch: pytest.MonkeyPatch) -> None:
    from distribution.package import command

    def refused(_: Path) -> None:
        raise PermissionError(13, "Permission denied", "/nonexistent")

    def begun(_: str) -> None:
        raise SystemExit(0)

    monkeypatch.setattr(command, "show_mininet", refused)
    monkeypatch.setattr("importlib.import_module", begun)
    for name in ("PATH", "BACKCHANNEL_ROOT"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.setattr(sys, "argv", ["backchannel", "list"])
    with pytest.raises(SystemExit):
        command.main()
