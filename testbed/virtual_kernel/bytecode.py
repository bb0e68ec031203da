"""Python's compiled modules for the programs inside, in one file (testbed.virtual_kernel.bundled reads it).

What Python does to import a module depends on whether there is compiled bytecode beside it and how old it is. That
takes readings of the clock, which are virtual time, so two runs of one seed would differ if somebody imported something
in between. The guest's modules are therefore compiled to a file of their own, anew when one has changed.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import marshal
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path

from testbed import build_cache, node_binary
from testbed.errors import TestbedError
from testbed.virtual_kernel import bundled

#: Size and time of change of each module's source.
Stamps = Mapping[str, list[int]]
STAMPS, MODULES = "modules.json", "modules"
ROOM_BYTES = 1 << 28
#: Packages of this software that run inside.
PACKAGES = ("agents", "testbed")


def file(environment: Mapping[str, str]) -> Path:
    """The file of modules, made anew if one has changed.

    Args:
        environment: of the guest's Python.

    Raises:
        TestbedError: the guest's modules cannot be imported or the file not be made.
    """
    place = build_cache.place("bytecode")
    parts = (sys.executable, sys.version, str(node_binary.ROOT), environment["PYTHONPATH"])
    result = place / hashlib.sha256("|".join(parts).encode()).hexdigest()[:12]
    if _is_current(result):
        build_cache.used(result)
        return result / MODULES
    with build_cache.locked(place, f"lock-{result.name}"):
        if not _is_current(result):
            with build_cache.scratch(place, "compiling Python modules", ROOM_BYTES) as new:
                _compile(new / build_cache.BUILT, environment)
                shutil.rmtree(result, ignore_errors=True)
                (new / build_cache.BUILT).rename(result)
    return result / MODULES


def _is_current(result: Path) -> bool:
    try:
        stamps: Stamps = json.loads((result / STAMPS).read_text())
        return all(_stamp(Path(path)) == stamp for path, stamp in stamps.items())
    except (OSError, ValueError):
        return False


def _stamp(source: Path) -> list[int]:
    status = source.stat()
    return [status.st_size, status.st_mtime_ns]


def _compile(new: Path, environment: Mapping[str, str]) -> None:
    """Fills a folder in a process that has the guest's environment, because the modules depend on it."""
    done = subprocess.run(
        [*node_binary.module("testbed.virtual_kernel.bytecode"), str(new)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = "".join(done.stderr.strip().splitlines()[-1:])
        raise TestbedError(f"the guest's Python modules cannot be compiled: {last}")


def _specs() -> Iterator[ModuleSpec]:
    """Of the modules that the guest imports, and of what it may import later."""
    importlib.import_module(f"{node_binary.PACKAGE}testbed.virtual_kernel.guest")
    found = {}
    for module in list(sys.modules.values()):
        spec = getattr(module, "__spec__", None)
        if spec is not None and spec.has_location:
            found[spec.name] = spec
    for package in PACKAGES:
        root = node_binary.ROOT / package
        for path in root.glob("**/*.py"):
            name = ".".join((package, *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
            name = f"{node_binary.PACKAGE}{name}"
            if name not in found and (spec := importlib.util.find_spec(name)) is not None:
                found[name] = spec
    yield from (found[name] for name in sorted(found))


def _code(source: Path) -> bytes:
    """A module's code without the texts that document it, which are a fifth of what a start reads."""
    tree = ast.parse(source.read_bytes(), str(source))
    for node in ast.walk(tree):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef() if ast.get_docstring(node):
                node.body = node.body[1:] or [ast.copy_location(ast.Pass(), node.body[0])]
    return marshal.dumps(compile(tree, str(source), "exec", dont_inherit=True))


def main(new: Path) -> None:
    """Writes the file and the stamps of its sources."""
    index: dict[str, bundled.Found] = {}
    stamps, codes, place = {}, [], 0
    for spec in _specs():
        assert spec.origin is not None
        source, folders, code = Path(spec.origin), spec.submodule_search_locations, b""
        if source.suffix == ".py":
            code = _code(source)
        index[spec.name] = (spec.origin, None if folders is None else list(folders), place, len(code))
        codes.append(code)
        place += len(code)
        stamps[spec.origin] = _stamp(source)
    head = marshal.dumps((sys.path, index))
    (new / MODULES).write_bytes(b"".join([len(head).to_bytes(bundled.HEAD, "little"), head, *codes]))
    (new / STAMPS).write_text(json.dumps(stamps))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
