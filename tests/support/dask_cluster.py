"""A Dask cluster of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dask
from distributed import LocalCluster

from experiments.engine.dask_executor import MOST_JOBS
from testbed.local_folders import ScratchFolder


@contextmanager
def cluster_of(workers: int) -> Iterator[str]:
    """Address of the scheduler of a cluster on this machine."""
    with (
        ScratchFolder() as scratch,
        dask.config.set({"temporary-directory": str(scratch)}),
        LocalCluster(
            n_workers=workers, threads_per_worker=MOST_JOBS, dashboard_address=None, host="127.0.0.1", memory_limit=0,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
        ) as cluster,
    ):  # fmt: skip
        yield cluster.scheduler_address
