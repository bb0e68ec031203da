"""Every campaign that the documentation shows is one that can be run."""

from __future__ import annotations

import re

import pytest

from experiments.language import registry, source
from experiments.language.campaign import expand
from experiments.language.schema import Campaign
from experiments.language.traps import TRAPS
from testbed import units
from testbed.node_binary import ROOT

PAGE = (ROOT / "docs/campaigns.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
POINTS = {
    "smallest": 1,
    "by-topology": 1,
    "dumbbell": 1,
    "spelled-out": 1,
    "parallel-lines": 1,
    "strict": 1,
    "flows": 1,
    "two-families": 1,
    "varied": 1,
    "sweeps": 7,
    "labelled": 4,
    "listed": 2,
    "drawn": 6,
    "on-both": 1,
    "with-defaults": 1,
}


def test_every_block_is_expected() -> None:
    assert [re.match(r"name: (\S+)", block)[1] for block in BLOCKS] == list(POINTS)  # type: ignore[index]


@pytest.mark.parametrize("block", BLOCKS, ids=list(POINTS))
def test_block(block: str) -> None:
    planned = expand(source.parse("docs/campaigns.md", block))
    assert len(planned.points) == POINTS[planned.name]


#: Whole campaigns on the other pages.
OTHERS = {
    f"{page.stem}: {block.splitlines()[0]}": (page, block)
    for page in sorted((ROOT / "docs").glob("*.md"))
    for block in re.findall(r"^```yaml\n(name: .*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    if page.name != "campaigns.md"
}


@pytest.mark.parametrize("name", OTHERS)
def test_campaigns_of_other_pages(name: str) -> None:
    page, block = OTHERS[name]
    assert expand(source.parse(page.name, block)).runs


def test_every_field_and_unit_is_told() -> None:
    for name in Campaign.model_fields:
        assert f"`{name}`" in PAGE, name
    for kind in ("rate", "time"):
        for unit in units.UNITS[kind]:
            assert f"`{unit}`" in PAGE, unit


def test_every_trap_is_told() -> None:
    told = PAGE.partition("\n## Traps\n")[2]
    assert [name for name in TRAPS if name not in told] == []


def test_what_draws_during_a_run_is_told() -> None:
    rows = PAGE.partition("What draws during a run:")[2].partition("`./backchannel list --json`")[0]
    kinds = {"links": "link", "error models": "error-model", "policies": "policy", "workloads": "workload"}
    for name, kind in kinds.items():
        row = re.search(rf"^\| {name} \| (.*) \|$", rows, re.MULTILINE)
        random = {entry.name for entry in registry.entries() if entry.kind == kind and entry.random}
        mechanisms = {entry.name for entry in registry.entries() if entry.kind == kind}
        assert set(re.findall(r"`([^`]+)`", row[1])) & mechanisms == random, name  # type: ignore[index]


@pytest.mark.parametrize("name", [entry.name for entry in registry.entries() if entry.kind == "topology"])
def test_nodes_and_links_of_topologies_are_told(name: str) -> None:
    row = re.search(rf"^\| `{name}` \| (.*) \|$", PAGE, re.MULTILINE)
    ends = {"packet-radio": ("server", "mobile"), "wireless": ("server", "mobile"), "line": ("left", "right")}
    sender, receiver = ends.get(name, ("server", "client"))
    text = (
        "name: told\nbackend: sim\nstack: newreno\nduration: 1 s\n"
        f"workload: [{{name: f, from: {sender}, to: {receiver}}}]\n"
        f"network: {{topology: {name}, forward: {{rate: 100 kbit/s, delay: 1 ms}}}}\n"
    )
    scenario = expand(source.parse("told.yaml", text)).runs[0].scenario
    names = [*(node.name for node in scenario.nodes), *(link.name for link in scenario.links)]
    assert [part for part in names if f"`{part}`" not in row[1]] == []  # type: ignore[index]
