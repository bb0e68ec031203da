"""`./backchannel dask jobs`: workers that a batch system starts, by dask-jobqueue's cluster of this machine."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from distributed import Client
from rich.console import Console

from analysis.store import Store
from experiments.engine import batch_system
from experiments.engine.batch_system import Jobs, cluster_of, serve, variables
from experiments.engine.options import Options
from experiments.engine.scheduling import run_campaign
from experiments.language import source
from experiments.language.campaign import expand
from experiments.terminal import TerminalReporter
from testbed import node_binary
from testbed.errors import BadRequest, Unavailable
from tests.support.campaign_texts import one_line
from tests.support.waiting import HANGS_S, wait_until

#: A program that takes a job.
SLOW = "#!/bin/sh\necho 'Submitted batch job 7'\n"


@contextmanager
def served(tmp_path: Path, jobs: int) -> Iterator[str]:
    """The address of the command's scheduler."""
    log = tmp_path / "jobs.log"
    words = [sys.executable, "-m", "experiments", "dask", "jobs", "--system", "local", "--jobs", str(jobs)]
    with log.open("w") as out:
        process = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, cwd=tmp_path)
    try:
        wait_until(lambda: "scheduler at" in log.read_text() or process.poll() is not None, "the scheduler")
        yield log.read_text().split("scheduler at ")[1].split(";")[0]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANGS_S) == 0, log.read_text()


def workers(client: Client) -> dict[str, int]:
    """Process of each job, which watches over its worker, by the worker's address."""
    return {address: pid for address, pid in client.run(os.getppid, on_error="ignore").items() if pid is not None}


def test_a_campaign_runs_on_jobs_and_an_ended_job_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.engine.dask_executor.is_url", lambda _: True)
    plan = expand(source.parse("jobs.yaml", one_line("jobs", "repetitions: 6\n")))
    with served(tmp_path, 1) as address, Client(address, set_as_default=False) as client:
        client.wait_for_workers(1, timeout=HANGS_S)
        before = workers(client)
        options = Options(tmp_path / "results", scheduler=address)
        outcome = run_campaign(plan, options, TerminalReporter(Console(quiet=True), quiet=True))
        assert not outcome.interrupted
        with Store.open(tmp_path / "results") as store:
            assert len(store.valid_runs(plan.run_ids)) == len(plan.run_ids) > 1
        for pid in before.values():
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: set(workers(client).values()) - set(before.values()), "a new worker")


def test_a_job_of_slurm_has_the_sources_the_binary_and_what_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/a folder")
    asked = Jobs("slurm", 3, 16, "8GB", "long", "08:00:00", ["--account=lab"], "lo")
    with cluster_of(asked) as cluster:
        script = cluster.job_script()
    for line in (
        "#SBATCH -p long", "#SBATCH --cpus-per-task=16", "#SBATCH --mem=8G", "#SBATCH -t 08:00:00",
        "#SBATCH --account=lab", "export XDG_CACHE_HOME='/a folder'",
        f"export {node_binary.VARIABLE}={shlex.quote(str(node_binary.path()))}",
        f"export PYTHONPATH={shlex.quote(node_binary.python_path())}",
    ):  # fmt: skip
        assert line in script.splitlines(), script
    assert "--nthreads 1024" in script


def test_mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadRequest, match="unknown batch system 'slrm'; allowed: slurm, pbs"):
        cluster_of(Jobs("slrm", 1, 1, "1GB"))
    with pytest.raises(BadRequest, match="dask-jobqueue refuses this"):
        cluster_of(Jobs("slurm", 1, 1, "much", interface="lo"))
    monkeypatch.setitem(sys.modules, "dask_jobqueue", None)
    with pytest.raises(Unavailable, match="pip install dask-jobqueue"):
        cluster_of(Jobs("slurm", 1, 1, "1GB"))


def test_a_machine_without_the_batch_systems_program_gets_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="'sbatch', by which slurm takes jobs, is not on this machine"):
        serve(Jobs("slurm", 1, 1, "1GB", interface="lo"), lambda address: None)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_batch_system_that_takes_no_job_is_named_and_signals_end_the_wait(tmp_path: Path, number: int) -> None:
    refuses = number == signal.SIGTERM
    program = tmp_path / "sbatch"
    program.write_text("#!/bin/sh\necho 'sbatch: error: invalid account' >&2\nexit 1\n" if refuses else SLOW)
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = [sys.executable, "-m", "experiments", "dask", "jobs", "--system", "slurm", "--interface", "lo"]
    with (tmp_path / "log").open("w") as out:
        process = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, env=environment)
    log = tmp_path / "log"
    wait_until(lambda: "scheduler at" in log.read_text() or process.poll() is not None, "the scheduler")
    if not refuses:
        process.send_signal(number)
    assert process.wait(60) == (1 if refuses else 0), log.read_text()
    assert "Traceback" not in log.read_text()
    assert ("slurm took no job" in log.read_text()) == refuses
    assert ("invalid account" in log.read_text()) == refuses


def test_a_job_gets_only_what_it_needs() -> None:
    assert set(variables({"HOME": "/root", "BACKCHANNEL_LOCAL": "/x"})) == {
        "BACKCHANNEL_LOCAL", node_binary.VARIABLE, "PYTHONPATH",
    }  # fmt: skip
    assert set(batch_system.SYSTEMS) >= {"slurm", "local"}
