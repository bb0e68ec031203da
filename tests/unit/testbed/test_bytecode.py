"""Modules of the guest in one file."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.errors import TestbedError
from testbed.virtual_kernel import bundled, bytecode

FIND = """
import sys
sys.path.insert(0, {folder!r})
import bundled
sys.meta_path.insert(0, bundled.Modules({file!r}))
sys.path.clear()
{then}
"""


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{folder}:{os.environ['PYTHONPATH']}", "SETUPTOOLS_USE_DISTUTILS": "stdlib"}


def found(file: Path, then: str) -> str:
    """What a program prints that has modules of this file only."""
    program = FIND.format(folder=str(Path(bundled.__file__).parent), file=str(file), then=then)
    done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Has the cache of the tests of `file`."""
    folder = tmp_path_factory.mktemp("bytecode")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        yield folder


@pytest.fixture(scope="module")
def file(folder: Path) -> Path:
    return bytecode.file(environment(folder))


def test_every_module_of_a_run_comes_from_the_file(file: Path) -> None:
    then = """
import testbed.virtual_kernel.guest as guest
from testbed.scenario import Scenario
loaders = {type(m.__spec__.loader).__name__ for n, m in sys.modules.items() if n.startswith(("testbed", "mininet"))}
print(loaders, guest.__file__, guest.__doc__, Scenario.node.__doc__, sys.modules["testbed"].__path__)
# Its import would take a third of the start.
assert "pydantic" not in sys.modules"""
    root = Path(bytecode.__file__).parents[1]
    assert found(file, then) == f"{{'Modules'}} {root}/virtual_kernel/guest.py None None ['{root}']"


def test_a_line_of_a_traceback_is_that_of_its_source(file: Path) -> None:
    then = """
import traceback
from testbed import scenario
try:
    scenario._find("node", {}, "a")
except Exception as error:
    print(traceback.extract_tb(error.__traceback__)[-1].line)"""
    assert found(file, then).startswith("raise TestbedError(")


def test_a_file_is_made_anew_when_a_module_has_changed(file: Path, folder: Path) -> None:
    made = environment(folder)
    first = file.stat().st_mtime_ns
    assert bytecode.file(made) == file
    assert file.stat().st_mtime_ns == first
    stamps = file.parent / bytecode.STAMPS
    stamps.write_text(stamps.read_text().replace("[", "[1", 1))
    assert bytecode.file(made) == file
    assert file.stat().st_mtime_ns > first


def test_modules_that_cannot_be_imported_are_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "mininet.py").write_text("raise ImportError('broken')\n")
    with pytest.raises(TestbedError, match=r"modules cannot be compiled: ImportError: broken"):
        bytecode.file(environment(tmp_path))
    assert not list((tmp_path / "cache/backchannel/bytecode").glob("new-*"))
