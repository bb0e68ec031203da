"""Metrics of the kernel's TCP from captures, beside what the kernel itself tells."""

from __future__ import annotations

import polars as pl
import pytest

import analysis
from analysis import captures
from tests.conftest import Finished

SYN = 2


@pytest.mark.emulated
def test_retransmissions_are_those_that_the_kernel_counts(finished: Finished) -> None:
    """Every one: at each of the kernel's own samples, captures have as many retransmissions as it has counted."""
    compared, again = 0, 0
    for run_id in analysis.open(finished.results)["small"].values()["run_id"].unique():
        run = analysis.open(finished.results).run(run_id).data
        for flow in run.flows:
            assert run.folder is not None
            said = pl.read_ndjson(run.folder / f"telemetry/{flow.name}.jsonl.gz", infer_schema_length=None).to_dicts()
            sent = flow.at_sender.filter(pl.col("dir") == 0)
            opened = sent.filter(pl.col("flags") & SYN != 0)["t_s"].to_list()[1:]
            resent = sent.filter(captures.is_a(captures.DATA) & captures.is_a(captures.RETRANSMISSION))["t_s"].to_list()
            for entry in said:
                at_s = entry["t_ns"] / 1e9 + flow.begun_s
                # A sample takes its time, and a program starts late: what lies close to it may be on either side.
                least, most = (sum(t_s < at_s + slack for t_s in opened + resent) for slack in (-0.25, 0.25))
                assert least <= entry["retransmitted_segments"] <= most, (run_id, flow.name, at_s)
                compared += 1
            again += len(resent)
    assert compared > 200
    assert again > 10
