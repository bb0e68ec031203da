"""A store that version 0.1 wrote is opened by this version: its rows, its files and its checksums."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import analysis
from analysis.verifying import verify

pytestmark = pytest.mark.only_on("sqlite")
#: Made on 29 November 2026 by `run` of a campaign of 2 s in the simulator, with captures. It is never made again.
KEPT = Path(__file__).with_name("store-0.1.tar.xz")


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    # Python 3.11.2, Debian 12's, has no filters of archives.
    shutil.unpack_archive(KEPT, tmp_path)
    return tmp_path / "store-0.1"


def test_a_store_of_version_0_1_is_read(kept: Path) -> None:
    with analysis.open(kept) as store:
        campaign = store["kept"]
        assert campaign.axes == {"network.reverse.queue.policy": ["droptail", "ack-filtering"]}
        values = campaign.values().filter(metric="throughput", subject="download")
        assert values["value"].to_list() == pytest.approx([858_000] * 2, rel=0.001)
        run = store.run(campaign.run_ids[0])
        assert run.segments.collect().height > 100
        assert [path.name for path in run.captures] == ["client-eth0.pcap.gz", "server-eth0.pcap.gz"]
        assert verify(store.store, campaign.run_ids, lambda done: None).findings == []


def test_its_metrics_are_measured_again_from_its_captures(kept: Path) -> None:
    with analysis.open(kept) as store:
        changes = store["kept"].measure(["throughput", "retransmissions"])
        assert (changes.runs, changes.changed, changes.gone) == (2, 0, 0)
