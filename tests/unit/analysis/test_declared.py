"""What a stored text declares, with the files that it includes."""

from __future__ import annotations

from pathlib import Path

from analysis.declared import on_backend, values_of
from experiments.language.campaign import load

BASE = """\
question: {metric: throughput, of: a}
measures:
  up: {metric: throughput, of: a}
  down: {metric: throughput, of: b}
backends:
  emulated: {measures: {down: {metric: goodput, of: b}}}
"""
OWN = "include: base.yaml\nquestion: {of: b}\nmeasures: {up: null, delay: {metric: latency_p50, of: c}}\n"


def attached(tmp_path: Path, base: str, own: str) -> str:
    """The text that a store keeps."""
    common = (
        "name: {}\nstack: reno\nduration: 9 s\nwarm_up: 1 s\n"
        "network: {{topology: asymmetric-path, forward: {{rate: 1 Mbit/s, delay: 1 ms}}, "
        "reverse: {{rate: 1 Mbit/s, delay: 1 ms}}}}\nworkload: [{{name: a, from: server, to: client}}, "
        "{{name: b, from: client, to: server}}, {{name: c, kind: probe, from: client, to: server}}]\n"
    )
    (tmp_path / "base.yaml").write_text(common.format("base") + base)
    (tmp_path / "own.yaml").write_text(own)
    return load(tmp_path / "own.yaml").text


def test_included_fields_count_and_are_overridden_key_by_key(tmp_path: Path) -> None:
    text = attached(tmp_path, BASE, OWN)
    assert on_backend(text, "question", "sim") == {"metric": "throughput", "of": "b"}
    assert on_backend(text, "measures", "sim") == {
        "down": {"metric": "throughput", "of": "b"},
        "delay": {"metric": "latency_p50", "of": "c"},
    }
    assert on_backend(text, "measures", "virtual-kernel")["down"] == {"metric": "goodput", "of": "b"}
    assert values_of(text)["stack"] == "reno"


def test_a_variant_of_a_papers_campaign_is_not_that_campaign() -> None:
    body = "# artefact: aq-fig4\n# title: Figure 4\n"
    text = f"include: aq-fig4.yaml\nname: mine\n\n# aq-fig4.yaml, which is included above:\n{body}"
    assert values_of(text) == {"title": "Figure 4", "name": "mine"}


def test_any_other_text_declares_nothing() -> None:
    for text in ("", "- 1", "a: [", "include: absent.yaml", "include: {a: b}", "include: [[a], 1]"):
        assert values_of(text) == {}
        assert on_backend(text, "measures", "sim") == {}
