"""`./backchannel backup` and `restore`."""

from __future__ import annotations

from pathlib import Path

from analysis.store import Store
from tests.support.command_line import backchannel
from tests.unit.analysis.store.conftest import pending_run


def test_a_backup_is_restored_and_its_damage_is_named(tmp_path: Path) -> None:
    with Store.open(tmp_path / "results") as store:
        store.commit_run(pending_run(store, "r00", 1.0))
        kept = store.folder_of_run("r00")
    saved = tmp_path / "saved"
    done = backchannel("backup", saved, "--results", tmp_path / "results")
    assert (done.returncode, done.stdout) == (0, f"1 run of {tmp_path}/results copied to {saved}\n")
    backchannel("restore", saved, "--results", tmp_path / "again", status=0)
    assert (tmp_path / "again/runs/r0/r00/captures/a.pcap").read_bytes() == b"abc"
    done = backchannel("restore", saved, "--results", tmp_path / "results", status=2)
    assert "has results already" in done.stderr
    (kept / "captures/a.pcap").unlink()
    done = backchannel("backup", tmp_path / "more", "--results", tmp_path / "results", status=1)
    assert done.stdout.startswith("run r00 is damaged: captures/a.pcap is missing")
