"""Campaigns of the tests that run by name only (`./backchannel test --vm`) are valid, which the whole suite sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.language.campaign import load
from tests.vm import test_machines, test_modems

CAMPAIGNS = {"machines": test_machines.CAMPAIGN, "dial-up": test_modems.DIALUP, "WaveLAN": test_modems.WAVELAN}


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_a_campaign_of_virtual_machines_is_valid(name: str, tmp_path: Path) -> None:
    path = tmp_path / "campaign.yaml"
    path.write_text(CAMPAIGNS[name])
    assert load(path).runs
