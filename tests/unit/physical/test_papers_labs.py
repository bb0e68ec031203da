"""The papers' artefacts in a lab: which its hosts can play, and what a real link would leave out."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments import lab
from experiments.language import campaign
from experiments.language.problems import CampaignError
from experiments.papers.reproduction import select_reproductions
from testbed import node_binary

LABS = node_binary.ROOT / "experiments/labs"
#: One artefact of each inventory in experiments/labs.
OF_LAB = {
    "modem.yml": "asym-fig20", "packet-radio.yml": "asym-fig6", "hybrid.yml": "asym-fig15",
    "hybrid-modem.yml": "asym-fig15", "wireless.yml": "ton-table2", "wireless-radio.yml": "ton-claim-peak",
}  # fmt: skip


def test_every_inventory_of_the_papers_can_play_its_artefacts() -> None:
    assert {path.name for path in LABS.glob("*.yml")} == set(OF_LAB)
    for name, artefact in OF_LAB.items():
        [item] = select_reproductions([artefact], "physical", inventory=LABS / name)
        lab.require_fit(LABS / name, item.plan("physical"))


def test_without_a_name_only_artefacts_that_fit_are_chosen() -> None:
    chosen = {
        item.artefact for item in select_reproductions(["ton"], "physical", inventory=LABS / "wireless-radio.yml")
    }
    assert chosen == {"ton-claim-peak"}, "the others lose packets or have a base station that helps"
    with pytest.raises(ValueError, match="can play the topology of no artefact of aq; name one to see why"):
        select_reproductions(["aq"], "physical", inventory=LABS / "hybrid.yml")


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("errors: [{model: uniform, probability: 1 %}]", "errors (forward)"),
        ("jitter: 1 ms, delay: 5 ms", "jitter (forward)"),
        ("changes: [{at: 1 s, rate: 2 Mbit/s}]", "changes (forward)"),
        ("queue: {policy: red}", "the queue policy red (forward)"),
    ],
)
def test_a_real_link_is_not_asked_for_what_only_a_box_can_do(tmp_path: Path, line: str, missing: str) -> None:
    (tmp_path / "line.yaml").write_text(
        "name: line\nbackend: physical\nnetwork:\n  nodes: [{name: a}, {name: b}]\n"
        f"  links: [{{name: line, ends: [a, b], forward: {{rate: 1 Mbit/s, {line}}}, reverse: {{rate: 1 Mbit/s}}}}]\n"
        "workload: [{name: bulk, from: a, to: b}]\nduration: 2 s\n"
    )
    inventory = tmp_path / "hosts.yml"
    entry = "plugin: backchannel\ncampaign: line.yaml\nhosts: {a: {address: 192.0.2.1}, b: {address: 192.0.2.2}}\n"
    inventory.write_text(entry + "links: {line: {real: wire}}\n")
    plan = campaign.load(tmp_path / "line.yaml")
    with pytest.raises(CampaignError) as caught:
        lab.require_fit(inventory, plan)
    assert f"link 'line' is real (wire) and the campaign gives it {missing}; name a 'box'" in str(caught.value)
    # The queue before a real link is the agent's where the lab says so.
    inventory.write_text(entry + "links: {line: {real: wire, queue_at: a}}\n")
    if "policy" in line:
        lab.require_fit(inventory, plan)
    else:
        with pytest.raises(CampaignError):
            lab.require_fit(inventory, plan)
