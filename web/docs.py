"""Every mechanism of the registry, and every metric with its definition."""

from __future__ import annotations

from collections.abc import Sequence

from flask import Blueprint, Response, abort, jsonify, render_template, request, url_for

from analysis.metrics import METRICS
from experiments.api import MECHANISM_KINDS, mechanisms
from experiments.papers.page import PAPERS
from web import guide, studies

blueprint = Blueprint("docs", __name__)


#: The study of what no paper states.
CHOICES = "choices"


@blueprint.get("/docs")
def index() -> str:
    """All of them, filtered by `q`."""
    words = request.args.get("q", "").lower().split()
    sections = []
    for kind, title in MECHANISM_KINDS.items():
        entries = [entry for entry in mechanisms(kind) if _holds(words, entry.name, entry.summary, entry.source)]
        if entries:
            sections.append({"id": kind, "title": title.replace("-", " "), "entries": entries})
    matches = [metric for metric in METRICS.values() if _holds(words, metric.name, metric.title, metric.source)]
    return render_template("docs.html", sections=sections, found=matches, q=request.args.get("q", ""))


@blueprint.get("/docs/guide")
def guide_page() -> str:
    """The guide to campaign files."""
    return render_template("guide.html", parts=guide.parts())


@blueprint.get("/docs/studies/<name>")
def study(name: str) -> str:
    """A page of docs/studies."""
    text = studies.page(name)
    if text is None:
        abort(404, f"Unknown study '{name}'. There are {', '.join(PAPERS)} and {CHOICES}.")
    return render_template("study.html", name=name, text=text)


@blueprint.get("/api/registry")
def as_json() -> Response:
    """Every mechanism, as `./backchannel list --json` prints them."""
    return jsonify([entry.as_json() for entry in mechanisms()])


@blueprint.get("/api/metrics")
def metrics_as_json() -> Response:
    """Every metric with its definition."""
    columns = ("name", "title", "unit", "per", "source", "definition")
    return jsonify([{column: getattr(metric, column) for column in columns} for metric in METRICS.values()])


def with_words(words: Sequence[str]) -> list[tuple[str, str, str]]:
    """Title, summary and address of each mechanism, metric and section of guide and studies with all words; those whose
    title has them come first.
    """
    page = url_for("docs.index")
    entries = [
        (entry.name, f"{kind.replace('-', ' ')}: {entry.summary}", f"{page}#{kind}-{entry.name}", entry.source)
        for kind in MECHANISM_KINDS
        for entry in mechanisms(kind)
    ]
    entries += [
        (metric.title, f"metric {metric.name}, per {metric.per}", f"{page}#metric-{metric.name}", metric.definition)
        for metric in METRICS.values()
    ]
    entries += [
        (section.title, "how to write a campaign", f"{url_for('docs.guide_page')}#{section.anchor}", section.text)
        for section in guide.sections()
    ]
    entries += [
        (section.heading, f"study: {name}", f"{url_for('docs.study', name=name)}#{section.anchor}", section.text)
        for name in (*PAPERS, CHOICES)
        for section in studies.sections(name)
    ]
    held = [entry for entry in entries if _holds(words, *entry)]
    return [entry[:3] for entry in sorted(held, key=lambda entry: not _holds(words, entry[0]))]


def _holds(words: Sequence[str], *texts: str) -> bool:
    text = " ".join(texts).lower()
    return all(word in text for word in words)
