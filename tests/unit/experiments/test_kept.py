"""Defaults of the language that the papers' campaigns keep: experiments/chosen.yaml."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from experiments.language.campaign import load
from experiments.papers.reproduction import reproductions
from tests.kept import KeptDefault, Origin, kept, origin_of, origins


def test_every_default_that_a_campaign_of_a_paper_keeps_has_an_origin_and_every_entry_is_about_one() -> None:
    papers = defaultdict(set)
    for reproduction in reproductions():
        for default in kept(reproduction.plan("sim")):
            papers[default].add(reproduction.paper)
    unlisted, used = [], set()
    for default, of in papers.items():
        for paper in of:
            if (origin := origin_of(default, paper)) is None:
                unlisted.append((paper, default))
                continue
            number = origins().index(origin)
            used |= {(number, default.option, repr(default.value)), (number, default.mechanism), (number, paper)}
    assert not unlisted, unlisted
    for number, origin in enumerate(origins()):
        stated = [(option, repr(value)) for option, value in _as_kept(origin, papers)]
        wanted = {(number, *pair) for pair in stated} | {
            (number, name) for name in (*origin.mechanisms, *origin.papers)
        }
        assert wanted <= used, (origin, wanted - used)


def _as_kept(origin: Origin, found: dict[KeptDefault, set[str]]) -> list[tuple[str, object]]:
    """An entry's options with their values as the registry writes them: 8 is 8.0 there."""
    spelled = {
        (default.option, default.value): default.value
        for default in found
        if default.kind == origin.of and not isinstance(default.value, bool | list)
    }
    return [(option, value if isinstance(value, bool) else spelled.get((option, value), value))
            for option, value in origin.values()]  # fmt: skip


SMALL = """
name: small
title: A small campaign
backend: sim
network:
  topology: asymmetric-path
  forward: {rate: 1 Mbit/s, delay: 10 ms, framing: ppp}
  reverse: {rate: 1 Mbit/s, delay: 10 ms, queue: {policy: ack-filtering, child: {policy: codel, target: 100 ms}}}
stack: {name: reno-bsd, ack_every: 1}
workload:
  - {name: download, from: server, to: client, kind: established}
duration: 5 s
variation: none
sweep:
  stack.timestamps: [true, false]
"""


def test_what_a_campaign_keeps_is_what_neither_its_base_nor_all_of_its_points_set(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(SMALL)
    found = kept(load(file))
    named = {(default.kind, default.mechanism, default.option) for default in found}
    # Children of policies, workloads and fields of a direction are looked at.
    assert KeptDefault("policy", "codel", "interval", 0.1) in found
    assert KeptDefault("stack", "reno-bsd", "ack_delay", 0.2) in found
    assert KeptDefault("workload", "established", "opened", 0) in found
    assert KeptDefault("direction", "", "queue", "droptail") in found
    assert ("policy", "codel", "target") not in named
    assert ("stack", "reno-bsd", "ack_every") not in named
    assert ("stack", "reno-bsd", "timestamps") not in named
    # The reverse direction keeps it, and so does the access.
    assert KeptDefault("direction", "", "framing", "none") in found
    assert not any(default.option in ("title", "capture", "figure") for default in found)


def test_an_entry_covers_its_own_values_mechanisms_and_papers() -> None:
    entry = Origin(of="stack", mechanisms=("sa",), papers=("asym",), defaults={"d": [1, 2], "on": True}, by="ours",
                   reason="")  # fmt: skip
    assert entry.covers(KeptDefault("stack", "sa", "d", 2.0), "asym")
    assert entry.covers(KeptDefault("stack", "sa", "on", True), "asym")
    for kind, mechanism, option, value, paper in (
        ("policy", "sa", "d", 1, "asym"), ("stack", "acc", "d", 1, "asym"), ("stack", "sa", "d", 3, "asym"),
        ("stack", "sa", "d", True, "asym"), ("stack", "sa", "on", 1, "asym"), ("stack", "sa", "d", 1, "ton"),
    ):  # fmt: skip
        assert not entry.covers(KeptDefault(kind, mechanism, option, value), paper), (kind, mechanism, option, value)
