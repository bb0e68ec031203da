"""Python's compiled modules for the programs inside, apart from all others.

What Python does to import a module depends on whether there is compiled bytecode beside it and how old it is. That
takes readings of the clock, which are virtual time, so two runs of one seed would differ if somebody imported something
in between. The guest therefore reads bytecode from a folder of its own, which is made when a module has changed and is
never written otherwise.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from testbed import build_cache, node_binary
from testbed.errors import TestbedError

#: Size and time of change of each module's source.
Stamps = Mapping[str, list[int]]
STAMPS = "modules.json"
ROOM_BYTES = 1 << 28
#: Packages of this software that run inside.
PACKAGES = ("agents", "testbed")


def folder(environment: Mapping[str, str]) -> Path:
    """The folder for PYTHONPYCACHEPREFIX, made anew if a module has changed.

    Args:
        environment: of the guest's Python.

    Raises:
        TestbedError: the guest's modules cannot be imported or the folder not be made.
    """
    place = build_cache.place("bytecode")
    parts = (sys.executable, sys.version, str(node_binary.ROOT), environment["PYTHONPATH"])
    result = place / hashlib.sha256("|".join(parts).encode()).hexdigest()[:12]
    if _is_current(result):
        return result
    with build_cache.locked(place, f"lock-{result.name}"):
        if not _is_current(result):
            with build_cache.scratch(place, "compiling Python modules", ROOM_BYTES) as new:
                _compile(new / build_cache.BUILT, result, environment)
                shutil.rmtree(result, ignore_errors=True)
                (new / build_cache.BUILT).rename(result)
    return result


def _is_current(result: Path) -> bool:
    try:
        stamps: Stamps = json.loads((result / STAMPS).read_text())
        return all(_stamp(Path(path)) == stamp for path, stamp in stamps.items())
    except (OSError, ValueError):
        return False


def _stamp(source: Path) -> list[int]:
    status = source.stat()
    return [status.st_size, status.st_mtime_ns]


def _compile(new: Path, final: Path, environment: Mapping[str, str]) -> None:
    """Fills a folder in a process that has the guest's environment, because the modules depend on it."""
    done = subprocess.run(
        [sys.executable, "-m", "testbed.virtual_kernel.bytecode", str(new)],
        env={**environment, "PYTHONPYCACHEPREFIX": str(final)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        last = "".join(done.stderr.strip().splitlines()[-1:])
        raise TestbedError(f"the guest's Python modules cannot be compiled: {last}")


def _sources() -> Iterator[Path]:
    """Of the modules that the guest imports, and of what it may import later."""
    importlib.import_module("testbed.virtual_kernel.guest")
    specs = [getattr(module, "__spec__", None) for module in list(sys.modules.values())]
    found = {Path(spec.origin) for spec in specs if spec is not None and spec.origin and spec.cached}
    for package in PACKAGES:
        found.update((node_binary.ROOT / package).glob("**/*.py"))
    yield from sorted(path for path in found if path.suffix == ".py")


def main(new: Path) -> None:
    """Compiles into `new` what will be read in the folder that PYTHONPYCACHEPREFIX names."""
    prefix = Path(os.environ["PYTHONPYCACHEPREFIX"])
    stamps = {}
    for source in _sources():
        cached = Path(importlib.util.cache_from_source(str(source)))
        try:
            # Nothing is checked inside: `folder` does it, and the time of change of a clone's files is another.
            py_compile.compile(
                str(source), str(new / cached.relative_to(prefix)), doraise=True,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )  # fmt: skip
        except py_compile.PyCompileError:
            continue
        stamps[str(source)] = _stamp(source)
    (new / STAMPS).write_text(json.dumps(stamps))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
