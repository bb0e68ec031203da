"""What the registries hold, for lists, help, docs and the site: metrics, figures, exports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from analysis.exports.registry import EXPORTS
from analysis.figures.registry import CAMPAIGN_FIGURES, FIGURES
from analysis.metrics import METRICS
from analysis.registry import plugin_of


@dataclass(frozen=True)
class Listed:
    """An entry of a registry."""

    name: str
    summary: str
    #: What it is of: "flow", "line", "link" or "run"; "run" or "campaign"; or "Flent file".
    of: str
    unit: str
    #: Paper or RFC of a metric; the package that adds the entry, if it is not Backchannel.
    source: str

    def as_json(self) -> dict[str, Any]:
        """For `list --json`."""
        return asdict(self)


def listed(word: str) -> list[Listed]:
    """The entries of a word of `./backchannel list`, in their order."""
    return list({"metrics": _metrics, "figures": _figures, "exports": _exports}[word]())


def _metrics() -> Iterator[Listed]:
    for metric in METRICS.values():
        yield Listed(metric.name, metric.title, metric.per, metric.unit, _package(metric.module) or metric.source)


def _figures() -> Iterator[Listed]:
    for figure in FIGURES.values():
        yield Listed(figure.name, figure.summary, "run", "", _package(figure.module))
    for kind in CAMPAIGN_FIGURES.values():
        yield Listed(kind.name, kind.summary, "campaign", "", _package(kind.module))


def _exports() -> Iterator[Listed]:
    for export in EXPORTS.values():
        yield Listed(export.name, export.summary, export.of, "", _package(export.module))


def _package(module: str) -> str:
    plugin = plugin_of(module)
    return f"{plugin.name} {plugin.version}".rstrip() if plugin else ""


def sentence(word: str) -> str:
    """ "Of a run: sequence, ... Of a campaign: ..." """
    names: dict[str, list[str]] = {}
    for entry in listed(word):
        names.setdefault(entry.of, []).append(entry.name)
    return " ".join(f"Of a {of}: {', '.join(of_kind)}." for of, of_kind in names.items())
