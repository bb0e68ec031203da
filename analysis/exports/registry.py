"""The registry of exports: what writes a run, a campaign or a file for other programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import polars as pl

from analysis.exports import tables
from analysis.registry import Declared, Registry, calling
from testbed.node_binary import PACKAGE

#: What is exported: the function gets a StoredRun, a StoredCampaign (analysis/handle.py) or a path.
Of = Literal["run", "campaign", "Flent file"]


@dataclass(frozen=True)
class Target:
    """Where an export goes."""

    path: Path
    #: Author and licence of a bundle's runs; "": no author, the default licence.
    author: str = ""
    licence: str = ""


#: Returns a table, which is written as the ending of the target's name says, or writes and returns lines to print.
Function = Callable[[Any, Target], pl.DataFrame | Sequence[str]]
AnyFunction = TypeVar("AnyFunction", bound=Function)


@dataclass(frozen=True)
class Export(Declared):
    """A kind of export."""

    name: str
    of: Of
    #: For lists and help.
    summary: str
    #: Name of the file without a request for another: `{name}` is the campaign's, the run's id, or the file's.
    file: str
    function: Function

    def write(self, subject: object, target: Target) -> Sequence[str]:
        """Writes the export. Returns lines to print.

        Raises:
            AnalysisError: there is nothing to write, or the file cannot be written.
        """
        with calling(self):
            made = self.function(subject, target)
        if not isinstance(made, pl.DataFrame):
            # An author who forgot the lines has written the file.
            return [str(target.path)] if made is None else made
        tables.write(made, target.path)
        return [str(target.path)]


EXPORTS: Registry[Export] = Registry("export", "backchannel.exports", [f"{PACKAGE}analysis.exports.kinds"])


def export(name: str, summary: str, *, of: Of, file: str) -> Callable[[AnyFunction], AnyFunction]:
    """Registers the function as an export."""

    def declare(function: AnyFunction) -> AnyFunction:
        EXPORTS.add(Export(name, of, summary, file, function))
        return function

    return declare
