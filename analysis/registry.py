"""Registries of what a run or campaign can be given: metrics, figures, exports.

An entry registers itself by a decorator. Packages outside the checkout add theirs: they name a module in their metadata
as an entry point of the registry's group, and its import registers what it declares. In the `pyproject.toml` of such a
package:

    [project.entry-points."backchannel.metrics"]
    mine = "my_package.metrics"
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from analysis.errors import AnalysisError, unknown
from analysis.runs import Unmeasured
from analysis.store.documents import Plugin
from testbed.node_binary import PACKAGE

#: Our packages.
OURS = tuple(f"{PACKAGE}{name}." for name in ("agents", "analysis", "experiments", "testbed", "web"))


#: The module of what is typed into a notebook or an interpreter.
NOTEBOOK = "__main__"


class Declared:
    """What a registry holds: a function and the name by which people ask for it."""

    name: str
    function: Callable[..., Any]

    @property
    def module(self) -> str:
        """Of the function."""
        return self.function.__module__


Entry = TypeVar("Entry", bound=Declared)


class Registry(Mapping[str, Entry]):
    """Entries by name, in the order of their declaration: ours first, then those of other packages.

    Args:
        noun: of an entry, for messages.
        group: of entry points.
        modules: of ours that declare entries, imported on first use.
    """

    def __init__(self, noun: str, group: str, modules: Sequence[str]) -> None:
        self.noun = noun
        self._group = group
        self._modules = modules
        self._entries: dict[str, Entry] = {}
        self._is_loaded = self._is_loading = False
        #: Why a package could not be loaded. A second import would only find its first entries twice.
        self._failure: AnalysisError | None = None
        self._lock = threading.RLock()

    def add(self, entry: Entry) -> None:
        """Registers an entry. A cell of a notebook that runs again replaces its own.

        Raises:
            ValueError: another one has its name.
        """
        known = self._entries.get(entry.name)
        if known is not None and not known.module == entry.module == NOTEBOOK:
            raise ValueError(f"there are two {self.noun}s '{entry.name}'")
        self._entries[entry.name] = entry

    def find(self, name: str) -> Entry:
        """The entry of a name.

        Raises:
            AnalysisError: there is none.
        """
        if name not in self:
            raise unknown(self.noun, name, self)
        return self[name]

    def plugins(self) -> list[Plugin]:
        """The packages outside the checkout that have entries here, by name."""
        plugins = {plugin for entry in self.values() if (plugin := plugin_of(entry.module))}
        return sorted(plugins, key=lambda plugin: plugin.name)

    def __getitem__(self, name: str) -> Entry:
        self._load()
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(self._entries)

    def __len__(self) -> int:
        self._load()
        return len(self._entries)

    def _load(self) -> None:
        if self._is_loaded:
            return
        with self._lock:
            # Modules may look at the registry while they are imported, which must not import them again.
            if self._is_loaded or self._is_loading:
                return
            if self._failure is not None:
                raise self._failure
            self._is_loading = True
            try:
                for module in self._modules:
                    importlib.import_module(module)
                # Somebody may have imported a later one first.
                place = {module: number for number, module in enumerate(self._modules)}
                declared = sorted(self._entries.items(), key=lambda item: place.get(item[1].module, len(place)))
                self._entries = dict(declared)
                for point in importlib.metadata.entry_points(group=self._group):
                    self._load_plugin(point)
                self._is_loaded = True
            finally:
                self._is_loading = False

    def _load_plugin(self, point: importlib.metadata.EntryPoint) -> None:
        try:
            point.load()
        except Exception as error:
            package = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
            uninstall = f": {sys.executable} -m pip uninstall {point.dist.name}" if point.dist else ""
            self._failure = AnalysisError(
                f"the package {package}, which adds {self.noun}s, cannot be loaded: {type(error).__name__}: {error}; "
                f"correct its module {point.module}, or uninstall it{uninstall}"
            )
            raise self._failure from error


@contextmanager
def calling(entry: Declared) -> Iterator[None]:
    """Around a call of an entry's function. A defect of another package's function is not one of ours: it is a sentence
    that names the package and the line.

    Raises:
        Unmeasured: the function of another package failed.
    """
    try:
        yield
    except AnalysisError:
        raise
    except Exception as error:
        plugin = plugin_of(entry.module)
        if plugin is None:
            raise
        frames = traceback.extract_tb(error.__traceback__)
        file = getattr(sys.modules.get(entry.module), "__file__", None)
        # The last line of the author's: what it called may be in a library.
        frame = next((frame for frame in reversed(frames) if frame.filename == file), frames[-1])
        owner = f"the package {plugin.name} {plugin.version}" if plugin.version else f"{entry.name} of {entry.module}"
        raise Unmeasured(
            f"{owner} failed: {type(error).__name__}: {error} ({Path(frame.filename).name}, line {frame.lineno})"
        ) from error


@cache
def plugin_of(module: str) -> Plugin | None:
    """The package outside the checkout that a module belongs to; None for modules of ours."""
    if f"{module}.".startswith(OURS):
        return None
    top = module.partition(".")[0]
    name, version = top, ""
    for group in ("metrics", "figures", "exports"):
        for point in importlib.metadata.entry_points(group=f"backchannel.{group}"):
            if point.module.partition(".")[0] == top and point.dist is not None:
                name, version = point.dist.name, point.dist.version
    return Plugin(name=name, version=version, sha256=_digest(top))


def _digest(top: str) -> str:
    file = getattr(sys.modules.get(top), "__file__", None)
    paths = [] if file is None else [Path(file)]
    if file is not None and Path(file).name == "__init__.py":
        paths = sorted(Path(file).parent.rglob("*.py"))
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    # What was typed into a notebook or an interpreter has no file.
    return digest.hexdigest() if paths else ""
