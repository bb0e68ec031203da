"""The facade that the site and notebooks use."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.errors import message_of
from experiments import api, exits


def test_a_campaign_file_becomes_a_plan_with_an_estimate(tmp_path: Path) -> None:
    text = api.campaign_text("quickstart.yaml")
    plan = api.expand("quickstart.yaml", text, ["backend=sim", "stack=newreno"])
    result = api.estimate(plan, str(tmp_path / "results"))
    assert result.known == 0
    assert result.runs == len(plan.run_ids)
    assert result.text.startswith(f"{result.runs} runs, about ")


def test_problems_carry_their_place() -> None:
    with pytest.raises(api.CampaignError) as error:
        api.expand("mine.yaml", "name: mine\nstacks: reno\n")
    assert any(problem.line == 2 and problem.field == "stacks" for problem in error.value.problems)


@pytest.mark.parametrize("name", ["nothing.yaml", "../pyproject.toml", "/etc/passwd", "aq/targets.yaml"])
def test_only_listed_campaign_files_can_be_read(name: str) -> None:
    assert name not in api.campaign_files()
    with pytest.raises(ValueError, match="unknown campaign file"):
        api.campaign_text(name)


def test_mechanisms_are_those_of_the_registry() -> None:
    assert {entry.kind for entry in api.mechanisms()} == set(api.MECHANISM_KINDS)
    assert "droptail" in [entry.name for entry in api.mechanisms("policy")]


def test_the_import_command_reports_an_error_that_can_be_read(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pcap"
    empty.write_bytes(b"")
    done = subprocess.run(
        api.import_command([empty], "empty", 8.0, 60.0), capture_output=True, text=True, check=False,
        env={**os.environ, "BACKCHANNEL_RESULTS": str(tmp_path / "results")},
    )  # fmt: skip
    assert done.returncode == exits.BAD_INPUT
    message = message_of(done.stderr)
    assert message is not None
    assert not message.startswith(exits.MESSAGE_PREFIX)
    assert message_of("Killed") is None


def test_an_imported_run_is_read_from_the_output() -> None:
    assert api.imported_run(json.dumps({"run": "abc"})) == "abc"
    for output in ("", "[]", "{}"):
        with pytest.raises(ValueError):
            api.imported_run(output)


def test_importing_the_facade_loads_no_dispatcher() -> None:
    heavy = "('experiments.engine.scheduling', 'dask')"
    code = f"import sys, experiments.api; print([m for m in sys.modules if m.startswith({heavy})])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd())
    assert done.stdout.strip() == "[]"
