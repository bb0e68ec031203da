"""Changes of a running line as people write them, and a session's lines as a campaign file."""

from __future__ import annotations

from typing import Any

import pytest

from analysis.store.documents import SessionChange, SessionDescription
from experiments.language import campaign, source
from experiments.language.problems import CampaignError
from experiments.sessions import program, record, replay
from experiments.sessions.changes import parse_changes, typed
from experiments.sessions.plan import plan_session
from testbed.report import Report
from testbed.scenario import DIRECTIONS

PROFILE = "asymmetric-access"


def test_a_change_concerns_both_directions_unless_it_names_one() -> None:
    found = parse_changes(["rate=2 Mbit/s", "reverse.delay=20 ms", "reverse.jitter=2 ms", "forward.policy=codel"])
    assert found == {
        "forward": {"rate": "2 Mbit/s", "queue": {"policy": "codel"}},
        "reverse": {"rate": "2 Mbit/s", "delay": "20 ms", "jitter": "2 ms"},
    }
    made = {"at_s": 0.0, "rate_bps": 2_000_000, "delay_s": 0.02, "jitter_s": 0.002}
    assert typed(found["reverse"], 0.0).as_json() == made
    # No loss removes the error models.
    for word in ("loss=0", "loss=0%"):
        assert typed(parse_changes([word])["forward"], 0.0).errors == ()


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("rate=0 bit/s", "to cut the link for a while, use loss=100%"),
        ("rate=5", "has no unit"),
        ("rate", "is not a change"),
        ("sideways.rate=1 Mbit/s", "is not a change"),
        ("colour=red", "is not a change"),
        ("policy=codle", "codel"),
        ("loss=120%", "at most"),
    ],
)
def test_a_bad_change_is_explained(word: str, reason: str) -> None:
    with pytest.raises(CampaignError) as caught:
        parse_changes([word])
    assert reason in str(caught.value)


def described(changes: list[dict[str, Any]]) -> SessionDescription:
    return SessionDescription(
        label=PROFILE, command=("curl",), host="right", internet=False, exit_status=0, lasted_s=9.5,
        changes=tuple(SessionChange.read(change) for change in changes),
    )  # fmt: skip


def test_a_session_replays_as_a_campaign_with_the_same_lines() -> None:
    plan = plan_session(PROFILE, None, ["network.forward.rate=9 Mbit/s"], None, internet=False, seed=5)
    slower = parse_changes(["rate=2 Mbit/s"])["forward"]
    lossy = parse_changes(["loss=3%", "policy=codel"])["reverse"]
    description = described([
        {"at_s": 1.25, "link": "line", "direction": "forward", "fields": slower},
        {"at_s": 2.5, "link": "line", "direction": "reverse", "fields": lossy},
        # After the record had ended.
        {"at_s": 9.2, "link": "line", "direction": "forward", "fields": {"delay": "1 s"}},
    ])  # fmt: skip
    scenario = record.recorded(plan.scenario, description, Report(t0_epoch_ns=0, duration_s=8.0))
    text = replay.campaign_text(plan, scenario, description)
    replayed = campaign.expand(source.parse("replay.yaml", text), ["backend=sim", "stack=newreno"]).runs[0].scenario
    assert replayed.duration_s == scenario.duration_s == 8.0
    for way in DIRECTIONS:
        assert replayed.direction("line", way) == scenario.direction("line", way)
    assert [change.at_s for change in replayed.direction("line", "forward").schedule] == [1.25]
    assert scenario.direction("line", "forward").rate_bps == 9_000_000


def test_with_internet_the_far_end_is_a_router() -> None:
    plan = plan_session(PROFILE, None, [], None, internet=True, seed=5)
    assert (plan.host, plan.gateway) == ("right", "left")
    assert [node.kind for node in plan.scenario.nodes] == ["router", "host"]


def test_a_host_that_the_network_lacks_is_explained() -> None:
    with pytest.raises(CampaignError, match="unknown host 'middle'; allowed: left, right"):
        plan_session(PROFILE, None, [], "middle", internet=False, seed=5)


def test_a_command_that_cannot_start_is_explained_as_shells_do(tmp_path: Any) -> None:
    assert program.check(["sh"]) is None
    assert program.check(["no-such-program"]) == (
        "command 'no-such-program' not found on this machine: check its spelling, or install it", 127,
    )  # fmt: skip
    file = tmp_path / "script"
    file.write_text("echo")
    _, status = program.check([str(file)]) or ("", 0)
    assert status == 126
