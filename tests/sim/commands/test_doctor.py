"""`doctor` tries what it reports."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.command_line import backchannel


def test_the_simulator_is_tried_and_each_subject_reported() -> None:
    # The place of a team's artefacts says nothing of this machine.
    done = backchannel("doctor", "--json", BACKCHANNEL_ARTEFACTS="s3://team/results", status=0)
    found = {finding["subject"]: finding for finding in json.loads(done.stdout)}
    assert list(found)[4:] == ["sim", "virtual-kernel", "emulated", "physical"]
    assert found["sim"]["works"] is True
    assert "a run of 1 s took" in found["sim"]["detail"]
    # Whatever does not work says why.
    assert all(finding["works"] or finding["works"] is None or finding["missing"] for finding in found.values())


def test_a_machine_whose_simulator_fails_gets_status_3(tmp_path: Path) -> None:
    broken = tmp_path / "backchannel-node"
    broken.write_text("#!/bin/sh\necho 'error: no such luck' >&2\nexit 1\n")
    broken.chmod(0o755)
    done = backchannel("doctor", BACKCHANNEL_NODE=str(broken), status=3)
    assert "no  sim" in done.stdout
    assert "no such luck" in done.stdout
    # What the run says is a JSON document.
    assert "{" not in done.stdout
