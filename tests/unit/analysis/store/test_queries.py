"""Reading a store page by page: campaigns, runs, scenarios, means."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from analysis.results import MetricValue
from analysis.store import Store, schema
from analysis.store.documents import Documents
from analysis.store.queries import MOST_CAUSED, RunQuery
from analysis.store.rows import NewCampaign
from tests.conftest import two_hosts
from tests.unit.analysis.store.conftest import begin, campaign_fields, pending_run


def test_campaigns_are_listed_newest_first_with_their_counts(store: Store) -> None:
    begin(store)
    store.begin_campaign(NewCampaign(**campaign_fields(id="c2", name="other")), [[("stack", "reno")]], [(0, 0, "r20")])
    store.commit_run(pending_run(store, "r00", 4.0))
    store.commit_run(pending_run(store, "r01", 1.0, problems=("late",)))
    result = [(row.id, row.runs, row.valid, row.invalid) for row in store.campaigns(limit=8)]
    assert result == [("c2", 1, 0, 0), ("c1", 4, 1, 1)]
    assert [(row.id, row.runs, row.valid, row.invalid) for row in store.campaigns()] == result
    assert [row.id for row in store.campaigns(limit=1, offset=1)] == ["c1"]
    assert [row.id for row in store.campaigns(["OTHER"], limit=8)] == ["c2"]
    assert store.count_campaigns(["demo"]) == 2
    # What LIKE takes for any text is a character here.
    assert [store.count_campaigns([word]) for word in ("d%o", "dem_", "%")] == [0, 0, 0]
    query = RunQuery(words=("r%",))
    assert store.runs("c1", query, [])[1] == 0


def test_the_first_page_of_a_campaigns_runs_comes_first(store: Store) -> None:
    begin(store)
    store.commit_run(pending_run(store, "r11", 4.0))
    rows, total = store.runs("c1", RunQuery(), None)
    assert ([row.run_id for row in rows], total) == (["r00", "r01", "r10", "r11"], 4)
    rows, total = store.runs("c1", RunQuery(page=2, per_page=3), None)
    assert ([row.run_id for row in rows], total) == (["r11"], 4)


def test_an_invalid_run_has_the_place_of_its_own_point(store: Store) -> None:
    begin(store)
    store.commit_run(pending_run(store, "r11", 1.0, problems=("late",)))
    (row,) = store.invalid(10)
    assert row.place is not None
    assert (row.id, row.place.repetition, dict(row.place.parameters)) == ("r11", 1, {"stack": "cubic"})


def test_the_first_scenario_is_that_of_the_campaigns_first_run_there(store: Store) -> None:
    begin(store)
    store.begin_campaign(NewCampaign(**campaign_fields(id="c2")), [[("stack", "reno")]], [(0, 0, "r20")])
    assert store.first_scenario("c1") is None
    for seed, run_id in enumerate(("r20", "r11", "r10"), 1):
        made = pending_run(store, run_id, 1.0)
        store.commit_run(replace(made, documents=Documents(two_hosts(seed=seed), {})))
    first = store.first_scenario("c1")
    assert first is not None
    assert first.seed == 3


def test_runs_are_listed_by_state_points_and_ids(store: Store) -> None:
    begin(store)
    store.commit_run(pending_run(store, "r01", 4.0))
    store.commit_run(pending_run(store, "r10", 4.0, problems=("late",)))

    def listed(**wanted: object) -> tuple[list[str], int]:
        rows, total = store.runs("c1", RunQuery(**wanted), None)  # type: ignore[arg-type]
        return [row.run_id for row in rows], total

    assert listed(state="invalid") == (["r10"], 1)
    assert listed(state="missing") == (["r00", "r11"], 2)
    assert listed(points=(1,)) == (["r10", "r11"], 2)
    assert listed(only=("r11", "r00")) == (["r00", "r11"], 2)
    assert listed(only=()) == ([], 0)


def test_members_are_those_of_the_points_of_this_campaign(store: Store) -> None:
    begin(store)
    points = [[("stack", "reno")], [("stack", "bbr")]]
    store.begin_campaign(NewCampaign(**campaign_fields(id="c2")), points, [(0, 0, "r20"), (1, 0, "r21")])
    store.commit_run(pending_run(store, "r10", 4.0))
    rows = [(row.point, row.repetition, row.run_id, row.state) for row in store.members("c1", [1])]
    assert rows == [(1, 0, "r10", "valid"), (1, 1, "r11", "missing")]


def test_means_are_of_the_metrics_points_and_campaign_that_are_asked_for(store: Store) -> None:
    begin(store)
    store.begin_campaign(NewCampaign(**campaign_fields(id="c2")), [[("stack", "reno")]], [(0, 0, "r20")])
    for value, run_id in enumerate(("r00", "r10", "r20"), 1):
        made = pending_run(store, run_id, value)
        rest = [MetricValue(name, subject, value, "time") for name in ("rtt_mean", "rtt_sd") for subject in ("f", "g")]
        store.commit_run(replace(made, metrics=[*made.metrics, *rest]))
    store.commit_run(pending_run(store, "r01", 99.0, problems=("late",)))

    def means(**asked: object) -> list[tuple[int, str, str, float]]:
        result = store.table("c1", **asked)  # type: ignore[arg-type]
        return [(row.point, row.name, row.subject, row.mean) for row in result]

    assert sorted(means(only=[("rtt_mean", "f"), ("rtt_sd", "g")])) == [
        (0, "rtt_mean", "f", 1.0), (0, "rtt_sd", "g", 1.0), (1, "rtt_mean", "f", 2.0), (1, "rtt_sd", "g", 2.0),
    ]  # fmt: skip
    assert means(only=[("throughput", "bulk")], numbers=[1]) == [(1, "throughput", "bulk", 2.0)]
    assert len(means()) == 10
    assert {(row.metric, row.subject) for row in store.kinds("c2")} == {
        ("throughput", "bulk"), *((name, subject) for name in ("rtt_mean", "rtt_sd") for subject in ("f", "g"))
    }  # fmt: skip
    of_point = store.values("c1", [0])
    assert {(row.run_id, row.value) for row in of_point} == {("r00", 1.0)}
    assert store.values("c1", numbers=[1], only=[("rtt_sd", "g")])[0].value == 2.0
    of_metric = [(row.point, row.name, row.subject) for row in store.values("c1", only=[("rtt_sd", "g")])]
    assert of_metric == [(0, "rtt_sd", "g"), (1, "rtt_sd", "g")]
    assert {row.point for row in store.table("c1", [1])} == {1}


def test_the_latest_runs_are_listed_with_the_campaign_that_asked_for_them(store: Store) -> None:
    begin(store)
    store.commit_run(pending_run(store, "r00", 4.0))
    store.commit_run(pending_run(store, "r10", 4.0, problems=("late",)))
    store.note_failure("r01", 1, "it broke")
    places = [(row.id, row.place and row.place.campaign_id) for row in store.newest()]
    assert places == [("r10", "c1"), ("r00", "c1")]
    assert [row.id for row in store.newest(limit=1)] == ["r10"]
    assert [(row.id, row.problems) for row in store.invalid(8)] == [("r10", ["late"])]
    assert [(row.id, row.problems) for row in store.failed(8, "c1")] == [("r01", ["it broke"])]
    assert store.failed(8, "c2") == store.invalid(8, "c2") == []


def test_problems_that_differ_in_numbers_alone_are_one_cause(store: Store) -> None:
    begin(store)
    store.commit_run(pending_run(store, "r00", 4.0, problems=("3 packets were 1.5 ms late", "another")))
    store.commit_run(pending_run(store, "r01", 4.0, problems=("12 packets were 7 ms late",)))
    store.commit_run(pending_run(store, "r10", 4.0, problems=("the link was down",)))
    store.note_failure("r11", 1, "it broke")
    result = {(row.state, row.problem): row.runs for row in store.causes("c1")}
    assert result == {
        ("invalid", "12 packets were 7 ms late"): 2, ("invalid", "the link was down"): 1, ("failed", "it broke"): 1,
    }  # fmt: skip
    assert store.causes()[0].runs == 2


def test_causes_are_counted_over_the_latest_runs_up_to_a_limit(store: Store) -> None:
    of_run = {
        "backend": "sim", "seed": 1, "duration_s": 1.0, "state": "invalid", "problems": ["late"], "attempt": 1,
        "scenario": {}, "manifest": {},
    }  # fmt: skip
    with store.writing() as connection:
        rows = [{"id": f"r{number:04}", "landed": float(number), **of_run} for number in range(MOST_CAUSED + 5)]
        connection.execute(sa.insert(schema.run), rows)
    (cause,) = store.causes()
    assert (cause.campaign_id, cause.state, cause.problem, cause.runs) == ("", "invalid", "late", 1000)
    assert cause.run_id == rows[-1]["id"]


def test_unfinished_campaigns_are_those_that_ended_without_all_of_their_runs(store: Store) -> None:
    for name in ("c1", "c2", "c3", "c4"):
        begin(store, id=name)
    for name in ("c1", "c2", "c4"):
        store.end_campaign(name, complete=name == "c4")
    assert [row.id for row in store.campaigns(state="incomplete", limit=8)] == ["c2", "c1"]
    assert [row.id for row in store.campaigns(state="incomplete", limit=1)] == ["c2"]
    assert [row.id for row in store.campaigns(state="running")] == ["c3"]
    # The runs that they lack land for another campaign, which has them too.
    for run_id in {head.run_id for head in store.heads("c1")}:
        store.commit_run(pending_run(store, run_id, 5.0))
    assert store.campaigns(state="incomplete") == []
    assert {row.id: row.state for row in store.campaigns()}["c1"] == "complete"


def test_a_run_lasts_as_long_as_its_scenario_says(store: Store) -> None:
    begin(store)
    for run_id, duration_s in (("r00", 3.0), ("r01", 7.0)):
        made = pending_run(store, run_id, 1.0)
        store.commit_run(replace(made, documents=Documents({"seed": 1, "duration_s": duration_s}, {})))
    assert [store.duration(run_id) for run_id in ("r00", "r01", "r10")] == [3.0, 7.0, 0.0]


def test_each_point_has_the_scenario_of_a_run_of_its_own(store: Store) -> None:
    begin(store)
    begin(store, id="c2")
    for seed, run_id in enumerate(("r01", "r10"), 1):
        store.commit_run(replace(pending_run(store, run_id, 1.0), documents=Documents(two_hosts(seed=seed), {})))
    assert {number: entry.seed for number, entry in store.scenarios("c1").items()} == {0: 1, 1: 2}
    assert store.scenarios("nowhere") == {}
    entry = store.scenario("r10")
    assert entry is not None
    assert (entry.seed, store.scenario("r11")) == (2, None)


def test_runs_are_sorted_by_what_is_asked_and_those_without_it_come_last(store: Store, clock: SimpleNamespace) -> None:
    begin(store)
    for clock.now_s, run_id, value in ((1.0, "r11", 5.0), (2.0, "r00", 7.0), (3.0, "r10", 6.0)):
        store.commit_run(pending_run(store, run_id, value))

    def ids(sort: str, descending: bool = False, ranking: tuple[int, ...] = ()) -> list[str]:
        wanted = RunQuery(sort=sort, descending=descending, ranking=ranking)
        return [row.run_id for row in store.runs("c1", wanted, None)[0]]

    assert ids("point", descending=True) == ["r11", "r10", "r01", "r00"]
    assert ids("point", ranking=(1, 0)) == ["r10", "r11", "r00", "r01"]
    assert ids("repetition") == ["r00", "r10", "r01", "r11"]
    assert ids("state") == ["r01", "r00", "r10", "r11"]
    assert ids("landed") == ["r11", "r00", "r10", "r01"]
    assert ids("landed", descending=True) == ["r10", "r00", "r11", "r01"]
    assert ids("throughput/bulk") == ["r11", "r10", "r00", "r01"]
    assert ids("throughput/bulk", descending=True) == ["r00", "r10", "r11", "r01"]
    assert ids("throughput/other") == ["r00", "r01", "r10", "r11"]


def test_a_campaigns_newest_run_is_the_last_of_its_own(store: Store, clock: SimpleNamespace) -> None:
    begin(store)
    for name, run_id in (("c2", "r20"), ("c3", "r30")):
        store.begin_campaign(NewCampaign(**campaign_fields(id=name)), [[("stack", "reno")]], [(0, 0, run_id)])
    for clock.now_s, run_id in ((1.0, "r11"), (2.0, "r00"), (3.0, "r20")):
        store.commit_run(pending_run(store, run_id, 1.0))
    assert store.last_landed(["c1", "c2", "c3"]) == {"c1": 2.0, "c2": 3.0, "c3": None}
    assert store.last_landed(["c1"]) == {"c1": 2.0}


def test_many_runs_say_how_far_they_are_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(store)
    said: list[tuple[int, int]] = []
    store.show = lambda done, runs: said.append((done, runs))
    monkeypatch.setattr("analysis.store.queries.TOGETHER", 3)
    assert len(store.heads("c1")) == 4
    assert said == [(3, 4), (4, 4)]
