"""The simulator gives the bytes that golden.json records: captures, telemetry and tables of this folder's campaigns.

A difference is a changed result. If it is intended, write the new digests and say in the commit what changed and why:

    python -m tests.equality record . /tmp/now.json --only equality/ && python -m tests.equality golden /tmp/now.json
"""

from __future__ import annotations

import json

import pytest

from tests.equality.__main__ import GOLDEN, HERE, campaign as recorded, digests
from tests.support.command_line import backchannel

CAMPAIGNS = sorted(path.stem for path in HERE.glob("*.yaml"))


def test_every_campaign_of_the_corpus_is_recorded() -> None:
    assert sorted(json.loads(GOLDEN.read_text())) == CAMPAIGNS


@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_results_are_those_that_were_recorded(campaign: str) -> None:
    result = digests({campaign: recorded(backchannel, str(HERE / f"{campaign}.yaml"))})
    assert result[campaign] == json.loads(GOLDEN.read_text())[campaign]
