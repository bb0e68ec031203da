"""The scenarios of every campaign, read as types and written again: the same documents with the same run ids. And each
can be searched for traps (tests/unit/language/test_traps.py): expanding all of them takes longest, so it is done once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.catalogue import NOT_CAMPAIGNS
from experiments.language import campaign, identity, source, traps
from experiments.language.problems import CampaignError
from testbed.node_binary import ROOT

CAMPAIGNS = sorted(
    path for folder in ("experiments", "tests/equality") for path in (ROOT / folder).rglob("*.yaml")
    if path.name not in NOT_CAMPAIGNS
)  # fmt: skip


@pytest.mark.parametrize("count", [3, pytest.param(20, marks=pytest.mark.slow("more runs of each"))])
@pytest.mark.parametrize("path", CAMPAIGNS, ids=lambda path: path.stem)
def test_scenarios_round_trip(path: Path, count: int) -> None:
    read = source.read(path)
    try:
        plan = campaign.expand(read)
    except CampaignError as error:
        assert "the kernel of this machine" in str(error)  # noqa: PT017 (it has no scenarios here)
        return
    traps.warnings(plan, read)
    runs = plan.runs
    for run in runs[:: max(1, len(runs) // count)]:
        given, again = run.document.document, run.scenario.as_json()
        assert again == given
        assert repr(_sorted(again)) == repr(_sorted(given))  # 50 is not 50.0
        assert identity.run_identity(run.backend, again) == run.id


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value
