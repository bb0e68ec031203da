"""Campaigns in virtual time for tests of results, each simulated once for all processes and sessions.

A result is kept in the checkout's `.cache/tests` under a digest of the campaign's text, the sources and the node
binary. A session gets a copy, so no test changes it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
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

    def run_id(self, point: int = 0) -> str:
        """Of a point's first run."""
        return str(self.campaign["points"][point]["runs"][0]["run_id"])


def ran(folder: Path, name: str, text: str) -> Simulated:
    """Runs a campaign in a folder, under a file of this name, or copies what an earlier call simulated."""

    def make(made: Path) -> None:
        (made / name).write_text(text)
        done = backchannel("run", made / name, "--results", made / "results", "--json", status=0)
        (made / "campaign.json").write_text(done.stdout)

    kept(folder, Path(name).stem, text, make)
    return Simulated(folder / name, folder / "results", json.loads((folder / "campaign.json").read_text()))


def means(folder: Path, text: str, *words: str) -> list[dict[tuple[str, str], float]]:
    """Runs a campaign in a folder, with more words of the command: at each point the means by metric and subject."""
    file = folder / "campaign.yaml"
    file.write_text(text)
    done = backchannel("run", file, "--results", folder / "results", "--json", *words, status=0)
    points = json.loads(done.stdout)["points"]
    return [{(row["name"], row["subject"]): row["mean"] for row in point["metrics"]} for point in points]


def kept(folder: Path, name: str, text: str, make: Callable[[Path], None]) -> None:
    """Fills a folder with what `make` leaves in the one that it gets, or copies what an earlier call made.

    Args:
        folder: that is filled.
        name: under which the result is kept.
        text: that determines it, beside the sources and the node binary.
        make: fills an empty folder.
    """
    by = versions.versions()
    determined_by = (name, text, by.sources_sha256, by.node_binary_sha256)
    key = hashlib.sha256("\0".join(map(str, determined_by)).encode()).hexdigest()[:16]
    place = CACHE / f"{name}-{key}"

    def build(new: Path) -> None:
        for older in CACHE.glob(f"{name}-{'?' * 16}"):
            shutil.rmtree(older, ignore_errors=True)
        make(new / build_cache.BUILT)

    build_cache.build_once(place, f"lock-{name}", f"simulating {name}", ROOM_BYTES, build)
    shutil.copytree(place, folder, dirs_exist_ok=True)
