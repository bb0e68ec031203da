"""What a campaign will take, in time and on disk, before it is started: from what runs like its own took so far."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analysis.store import Store, browse
from experiments.units import show

#: Without any run to go by: seconds that building and analysing add to an emulated run, seconds of the clock for a
#: simulated second, and bytes kept a second of a run. The quickstart's figures on two cores.
OVERHEAD_S, SIMULATED, BYTES_PER_S = 5.0, 0.006, 30_000.0
#: As the engine has it; it cannot be imported here without all that runs campaigns.
CELLS_PER_CPU = 3


@dataclass(frozen=True)
class Estimate:
    """Of the runs that the store lacks."""

    runs: int
    time_s: float
    disk_bytes: float
    #: What it goes by, in words.
    basis: str

    def sentence(self) -> str:
        """ "6 runs, about 2 min and 40 MB, going by 12 earlier runs"."""
        if not self.runs:
            return "nothing to run: the results folder has all of it"
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        return f"{runs}, about {_time(self.time_s)} and {show(self.disk_bytes, 'bytes')}, going by {self.basis}"


def estimate(store: Store | None, name: str, backend: str, durations_s: Sequence[float]) -> Estimate:
    """For runs of given lengths.

    Args:
        store: the results; None when there are none yet.
        name: the campaign's name: its own earlier runs tell most.
        backend: where it runs.
        durations_s: of every run that is missing.
    """
    cpus = os.cpu_count() or 1
    known = browse.cost(store, backend, of_campaign=name) if store is not None else None
    basis = f"{known.runs} earlier runs of this campaign" if known else ""
    if known is None and store is not None:
        known = browse.cost(store, backend)
        basis = f"the latest {known.runs} {backend} runs" if known else ""
    basis = basis or f"the quickstart's figures, as no {backend} run is here yet"
    total_s, count = sum(durations_s), len(durations_s)
    if backend == "emulated":
        work_s = total_s + count * max(known.overhead_s if known else OVERHEAD_S, 0.0)
        at_once = max(min(CELLS_PER_CPU * cpus, count), 1)
        # No shorter than the longest run.
        time_s = max(work_s / at_once, max(durations_s, default=0.0))
    else:
        time_s = total_s * (known.took_per_s if known else SIMULATED) / max(min(cpus, count), 1)
    return Estimate(count, time_s, total_s * (known.bytes_per_s if known else BYTES_PER_S), basis)


def as_json(found: Estimate) -> Mapping[str, object]:
    """For scripts."""
    return {
        "runs": found.runs, "time_s": found.time_s, "disk_bytes": found.disk_bytes, "basis": found.basis,
        "sentence": found.sentence(),
    }  # fmt: skip


def _time(seconds: float) -> str:
    if seconds < 1:
        return "a second"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
