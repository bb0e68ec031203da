"""A paper's artefact on the hosts of a lab, scored beside the other backends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from testbed import node_binary
from tests.support.ansible_lab import in_lab, write_yaml

pytestmark = [
    pytest.mark.slow("provisions a lab over SSH and makes three runs in real time"),
    pytest.mark.emulated,
    pytest.mark.usefixtures("sshd"),
]

STORY = """
cd "$LAB"
backchannel testbed site -i hosts.yml >site.log || cat site.log
backchannel papers run asym-table4 asym-fig2 -i hosts.yml --results results --plan | tee before
backchannel papers run asym-table4 -i hosts.yml --results results --attempts 10
echo "status $?"
backchannel papers run asym-table4 -i hosts.yml --results results --plan >after
backchannel papers score asym-table4 --results results --json >score.json
"""


def test_the_radios_parameters_are_scored_on_hosts(tmp_path: Path) -> None:
    given = YAML().load(node_binary.ROOT / "experiments/labs/packet-radio.yml")
    given["campaign"] = str(node_binary.ROOT / "experiments/asym/asym-table4.yaml")
    inventory = write_yaml(tmp_path / "hosts.yml", given)
    done = in_lab(inventory, STORY, timeout_s=900, LAB=str(tmp_path))
    assert "status 0" in done.stdout, done.stdout
    to_run = []
    for name in ("before", "after"):
        [row] = [line for line in (tmp_path / name).read_text().splitlines() if line.startswith("asym-table4 ")]
        to_run.append(row.split()[3])
    assert to_run == ["3", "0"], done.stdout
    assert "asym-fig2: not run: " in done.stdout
    [artefact] = json.loads((tmp_path / "score.json").read_text())["artefacts"]
    assert artefact["scores"]["physical"]["valid"] == 3, artefact
