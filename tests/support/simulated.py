"""Campaigns in virtual time for tests of results, each simulated once for all processes and sessions.

A result is kept in the checkout's `.cache/tests` under a digest of the campaign's text, the sources and the node
binary. A session gets a copy, so no test changes it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from analysis import versions
from testbed import build_cache, node_binary
from tests.support.command_line import backchannel

CACHE = node_binary.ROOT / ".cache/tests"
ROOM_BYTES = 1 << 30


class Simulated(NamedTuple):
    """A campaign that was run by the command line, in virtual time."""

    file: Path
    results: Path
    campaign: dict[str, Any]

    @property
    def address(self) -> str:
        return f"/campaigns/{self.campaign['campaign']}"

    def run_id(self, point: int = 0, repetition: int = 0) -> str:
        return str(self.campaign["points"][point]["runs"][repetition]["run_id"])


def ran(folder: Path, name: str, text: str) -> Simulated:
    """Runs a campaign in a folder, under a file of this name, or copies what an earlier call simulated."""
    by = versions.versions()
    determined_by = (name, text, by.sources_sha256, by.node_binary_sha256)
    key = hashlib.sha256("\0".join(map(str, determined_by)).encode()).hexdigest()[:16]
    kept = CACHE / f"{Path(name).stem}-{key}"

    def make(new: Path) -> None:
        for older in CACHE.glob(f"{Path(name).stem}-*"):
            shutil.rmtree(older, ignore_errors=True)
        made = new / build_cache.BUILT
        (made / name).write_text(text)
        done = backchannel("run", made / name, "--results", made / "results", "--json")
        assert done.returncode == 0, done.stderr
        (made / "campaign.json").write_text(done.stdout)

    build_cache.build_once(kept, f"lock-{Path(name).stem}", f"simulating {name}", ROOM_BYTES, make)
    shutil.copytree(kept, folder, dirs_exist_ok=True)
    return Simulated(folder / name, folder / "results", json.loads((folder / "campaign.json").read_text()))
