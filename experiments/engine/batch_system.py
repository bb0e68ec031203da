"""A Dask cluster on the nodes of a batch system (`./backchannel dask jobs`), by the library dask-jobqueue.

The scheduler runs here, and each job of the batch system is a worker. Jobs see the same folders: they use the sources
and the node binary of this checkout.
"""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.engine.dask_executor import MOST_JOBS
from testbed import node_binary
from testbed.errors import BadRequest, TestbedError, Unavailable

#: Class of dask-jobqueue by the name of a batch system. LOCAL starts jobs on this machine.
LOCAL = "local"
SYSTEMS: Mapping[str, str] = {
    "slurm": "SLURMCluster",
    "pbs": "PBSCluster",
    "sge": "SGECluster",
    "lsf": "LSFCluster",
    "oar": "OARCluster",
    "htcondor": "HTCondorCluster",
    LOCAL: "LocalCluster",
}
#: Variables of this process that jobs have, too.
HANDED_ON = ("BACKCHANNEL_ROOT", "BACKCHANNEL_LOCAL", "XDG_CACHE_HOME")
#: How long a worker waits for the scheduler, in s.
DEATH_S = 60
MISSING = "dask-jobqueue is not installed: '.venv/bin/pip install dask-jobqueue==0.9.0' adds it"


@dataclass(frozen=True)
class Jobs:
    """What is asked of a batch system."""

    #: One of SYSTEMS.
    system: str
    #: Jobs, one a machine.
    number: int
    #: CPUs of a job, and its memory, such as "8GB".
    cores: int
    memory: str
    #: In the batch system's own words; None: its defaults.
    queue: str | None = None
    walltime: str | None = None
    #: Further lines of a job's head, such as "--account=lab".
    directives: Sequence[str] = ()
    #: Interface of this machine that jobs reach; None: that of its host name.
    interface: str | None = None


def serve(asked: Jobs, ready: Callable[[str], None]) -> None:
    """Keeps so many jobs running until it is interrupted, and cancels them then.

    Args:
        asked: of the batch system. A job that ends, because its time is over, say, is replaced.
        ready: called with the scheduler's address.

    Raises:
        Unavailable: the library is missing, or the batch system's program that takes jobs.
        BadRequest: unknown batch system, or the library refuses what is asked.
        TestbedError: the batch system took no job.
    """
    ended = threading.Event()
    failures = _Failures(ended.set)
    with _closed(cluster_of(asked)) as cluster, failures.watched():
        # After the import of the library, which sets a handler of its own.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: ended.set())
        program = cluster.job_cls.submit_command
        if program is not None and shutil.which(program) is None:
            raise Unavailable(
                f"'{program}', by which {asked.system} takes jobs, is not on this machine: start this where jobs are "
                "submitted"
            )
        cluster.adapt(minimum_jobs=asked.number, maximum_jobs=asked.number)
        ready(cluster.scheduler_address)
        while True:
            ended.wait()
            if failures.last is None:
                return
            if not cluster.scheduler_info["workers"]:
                raise TestbedError(f"{asked.system} took no job: {failures.last}")
            # Other jobs go on.
            print(f"backchannel: {asked.system} did not take a job: {failures.last}", file=sys.stderr)
            failures.last = None
            ended.clear()


@contextmanager
def _closed(cluster: Any) -> Iterator[Any]:
    """Cancels a cluster's jobs at the end."""
    try:
        yield cluster
    finally:
        # The library asserts that every job has ended, also those that were never submitted and have no number.
        with suppress(AssertionError, TypeError):
            cluster.close()


class _Failures(logging.Handler):
    """Failures to submit jobs. The library leaves them to the log of its event loop, with a traceback, and tries no
    more.
    """

    def __init__(self, on_failure: Callable[[], None]) -> None:
        super().__init__(logging.ERROR)
        self._on_failure = on_failure
        #: The last one, as a clause.
        self.last: str | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Notes a failure."""
        error = record.exc_info[1] if record.exc_info else None
        said = [line.strip() for line in str(error or record.getMessage()).splitlines() if line.strip()]
        self.last = said[-1] if said else type(error).__name__
        self._on_failure()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Takes the place of the log of the event loop."""
        log = logging.getLogger("tornado.application")
        before = log.handlers, log.propagate
        log.handlers, log.propagate = [self], False
        try:
            yield
        finally:
            log.handlers, log.propagate = before


def cluster_of(asked: Jobs) -> Any:
    """A cluster with a scheduler in this process, without jobs yet.

    Raises:
        Unavailable: the library is missing.
        BadRequest: unknown batch system, or the library refuses what is asked.
    """
    if asked.system not in SYSTEMS:
        raise BadRequest(f"unknown batch system '{asked.system}'; allowed: {', '.join(SYSTEMS)}")
    try:
        # Beside the others, which the package has itself.
        import dask_jobqueue.local
    except ImportError:
        raise Unavailable(MISSING) from None
    values = variables(os.environ)
    options: dict[str, Any] = {
        "interface": asked.interface,
        "queue": asked.queue,
        "walltime": asked.walltime,
        "job_extra_directives": list(asked.directives) or None,
        "job_script_prologue": [f"export {name}={shlex.quote(value)}" for name, value in values.items()],
    }
    python = shlex.quote(sys.executable)
    if asked.system == LOCAL:
        # No shell reads its script. Its jobs inherit what this process has.
        os.environ.update(values)
        # The library divides their command at blanks, which the path of the interpreter may have.
        interpreter = Path(sys.executable)
        os.environ["PATH"] = f"{interpreter.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        python = interpreter.name
        del options["job_script_prologue"]
    try:
        # One process a job, because one worker makes all runs of a machine; its threads are jobs that wait.
        module = dask_jobqueue.local if asked.system == LOCAL else dask_jobqueue
        return getattr(module, SYSTEMS[asked.system])(
            cores=asked.cores,
            processes=1,
            memory=asked.memory,
            death_timeout=DEATH_S,
            python=python,
            worker_extra_args=["--nthreads", str(MOST_JOBS), "--memory-limit", "0", "--no-dashboard"],
            scheduler_options={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
            **{name: value for name, value in options.items() if value is not None},
        )
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadRequest(f"dask-jobqueue refuses this: {error}") from None


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """What a job needs in its environment to find the sources and the node binary of this process."""
    values = {name: environment[name] for name in HANDED_ON if name in environment}
    values |= {"PYTHONPATH": node_binary.python_path(), node_binary.VARIABLE: node_binary.path()}
    return dict(sorted(values.items()))
