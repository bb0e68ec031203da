"""Names of earlier versions in campaign files, on the command line and in the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.language import renamed, source
from experiments.language.campaign import expand, load
from testbed.node_binary import ROOT

TEXT = """\
name: acks
network: {topology: dumbbell, forward: {rate: 1 Mbit/s}}
workload:
  - {name: download, from: left, to: right, stack: {name: modern, ack_rule: requested, asks_acks_per_win: 4}}
duration: 2 s
sweep:
  axis:
    - {workload.download.stack.asks_acks_per_win: [8, 16]}
"""


def test_an_old_option_is_read_and_its_new_name_is_said() -> None:
    read = source.parse("own.yaml", TEXT)
    assert read.values["workload"][0]["stack"]["requested_acks_per_window"] == 4
    assert list(read.values["sweep"]["axis"][0]) == ["workload.download.stack.requested_acks_per_window"]
    assert read.place(("workload", 0, "stack", "requested_acks_per_window")) == ("own.yaml", 4)
    sentence = "'asks_acks_per_win' is called 'requested_acks_per_window' now; the old name is still accepted"
    assert read.notes == (f"own.yaml:4: warning: {sentence}", f"own.yaml:8: warning: {sentence}")


def test_an_included_file_is_warned_of_too(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(TEXT)
    (tmp_path / "own.yaml").write_text("include: base.yaml\nname: own\n")
    assert [note.partition(": ")[0].rpartition("/")[2] for note in source.read(tmp_path / "own.yaml").notes] == [
        "base.yaml:4", "base.yaml:8",
    ]  # fmt: skip


def test_ids_of_runs_have_the_names_with_which_they_began() -> None:
    plan = load(ROOT / "experiments/beyond/ack-rates.yaml")
    requested = next(run for run in plan.runs if "requested_acks_per_window" in str(run.scenario))
    # As it was called asks_acks_per_win: a store has runs with such ids.
    assert requested.id == "dc1b8f55fd1c73180eb4fb69"
    old = source.read(ROOT / "experiments/beyond/ack-rates.yaml").text.replace(
        "requested_acks_per_window", "asks_acks_per_win"
    )
    assert expand(source.parse("old.yaml", old)).run_ids == plan.run_ids


@pytest.mark.parametrize(
    ("words", "current", "old"),
    [
        ("run own.yaml --tries 3", "run own.yaml --attempts 3", ["--tries"]),
        ("run own.yaml --tries=3", "run own.yaml --attempts=3", ["--tries"]),
        (
            "run own.yaml --set stack.asks_acks_per_win=4", "run own.yaml --set stack.requested_acks_per_window=4",
            ["asks_acks_per_win"],
        ),
        ("plot cdf own --metric share_acks", "plot cdf own --metric ack_fraction", ["share_acks"]),
        ("plot cdf own --metric=rtt_stddev", "plot cdf own --metric=rtt_sd", ["rtt_stddev"]),
        ("plot cdf own --metric throughput", "plot cdf own --metric throughput", []),
        ("results rtt_stddev", "results rtt_stddev", []),
        ("testbed site -- --tries 3", "testbed site -- --tries 3", []),
    ],
)  # fmt: skip
def test_old_words_of_a_command(words: str, current: str, old: list[str]) -> None:
    now, sentences = renamed.command_line(words.split())
    assert " ".join(now) == current
    assert [sentence.split("'")[1] for sentence in sentences] == old


def test_an_old_variable_counts_unless_the_new_one_is_set() -> None:
    added, (sentence,) = renamed.environment({"BACKCHANNEL_TRIES": "7"})
    assert added == {"BACKCHANNEL_ATTEMPTS": "7"}
    assert "'BACKCHANNEL_TRIES' is called 'BACKCHANNEL_ATTEMPTS' now" in sentence
    assert renamed.environment({"BACKCHANNEL_TRIES": "7", "BACKCHANNEL_ATTEMPTS": "2"}) == ({}, [])
