"""Every campaign that the documentation shows is one that can be run."""

from __future__ import annotations

import re

import pytest

from experiments.language import source
from experiments.language.campaign import expand
from experiments.language.schema import Campaign
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
