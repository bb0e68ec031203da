"""docs/versions.md states the versions that the code has, and the release has one version."""

from __future__ import annotations

import re
import tomllib

import pytest

from analysis.exports import crate
from analysis.store.database import MIGRATIONS, revisions_of
from experiments.language.campaign import load
from experiments.language.problems import CampaignError
from experiments.language.schema import FORMAT
from testbed.node_binary import ROOT
from web import api

RELEASE = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
NODE = re.search(r"VERSION: u32 = (\d+);", (ROOT / "testbed/core/src/scenario.rs").read_text())


def test_the_release_has_one_version() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == RELEASE
    assert f"\nversion: {RELEASE}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {RELEASE}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_page_states_the_versions() -> None:
    assert NODE is not None
    rows = dict(re.findall(r"^\| ([\w' ]+) \| ([^|]+) \|", (ROOT / "docs/versions.md").read_text(), re.MULTILINE))
    assert {name: rows[name].strip(" `") for name in rows if name not in ("interface", "agents' requests")} == {
        "release": RELEASE,
        "campaign format": FORMAT,
        "store": revisions_of(MIGRATIONS)[-1],
        "bundle": str(crate.VERSION),
        "JSON API": api.VERSION,
        "node protocol": NODE[1],
    }


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        ("0.2", "is written in format 0.2, and this version of Backchannel reads up to 0.1: install a newer one"),
        ("1.0", "is written in format 1.0"),
        ("two", "'two' is not a version of the format, such as 0.1"),
    ],
)
def test_a_campaign_of_a_newer_format_is_refused(version: str, sentence: str) -> None:
    with pytest.raises(CampaignError, match=re.escape(sentence)) as refused:
        load(ROOT / "experiments/tutorial.yaml", [f"format={version}"])
    assert [problem.field for problem in refused.value.problems] == ["format"]


def test_a_file_that_states_its_format_has_the_same_runs() -> None:
    file = ROOT / "experiments/tutorial.yaml"
    assert load(file, ["format=0.1"]).run_ids == load(file, []).run_ids
