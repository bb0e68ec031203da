"""Slurm on one node in a cell, and a campaign on a worker that is its job.

    backchannel-node cell -- python -m tests.support.slurm_lab FOLDER

Runs the campaign in FOLDER/lab.yaml on a job of `./backchannel dask jobs`. The last line on standard output is the
outcome as JSON: that of `run`, and the jobs that are left once the command has ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.support.dask_lab import HERE, SCHEDULER, bridge, campaign, run, running
from tests.support.postgresql import postgresql
from tests.support.waiting import wait_until

#: Without munge, cgroups and accounting, which a node of its own does not need.
CONFIGURATION = """\
ClusterName=lab
SlurmctldHost={host}({address})
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/linear
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
NodeName={host} NodeAddr={address} CPUs={cpus} RealMemory=1000 State=UNKNOWN
PartitionName=lab Nodes=ALL Default=YES MaxTime=INFINITE State=UP
{more}
"""


def said(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def main() -> None:
    folder = Path(sys.argv[1])
    # Resolving even a number needs an interface that is not the loopback.
    bridge()
    for name in ("state", "spool"):
        (folder / name).mkdir()
    configuration = CONFIGURATION.format(
        host=os.uname().nodename, address=HERE, folder=folder, cpus=os.cpu_count(),
        more=os.environ.get("BACKCHANNEL_TEST_SLURM", ""),
    )  # fmt: skip
    (folder / "slurm.conf").write_text(configuration)
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    os.environ |= {"SLURM_CONF": str(folder / "slurm.conf"), "BACKCHANNEL_LOCAL": str(folder / "local")}
    with ExitStack() as stack:
        stack.enter_context(postgresql(folder / "postgresql.log", HERE, 5433, "10.77.0.0/24"))
        stack.enter_context(running("slurmctld", "-D", log=folder / "slurmctld.log"))
        wait_until(lambda: "lab" in said("sinfo"), "Slurm's controller")
        stack.enter_context(running("slurmd", "-D", log=folder / "slurmd.log"))
        wait_until(lambda: "idle" in said("sinfo"), "Slurm's node")
        log = folder / "jobs.log"
        words = [
            sys.executable, "-m", "experiments", "dask", "jobs", "--system", "slurm", "--jobs", "1", "--cores", "1",
            "--memory", "500MB", "--interface", "br0",
        ]  # fmt: skip
        jobs = stack.enter_context(running(*words, log=log))
        wait_until(lambda: "scheduler at" in log.read_text(), "the scheduler")
        address = log.read_text().split("scheduler at ")[1].split(";")[0]
        wait_until(lambda: "R " in said("squeue", "--noheader", "--format", "%t %j"), "a job")
        command = run(folder)
        command[command.index(SCHEDULER)] = address
        outcome = campaign(command)
        jobs.send_signal(signal.SIGTERM)
        outcome["ended"] = jobs.wait(60)
        wait_until(lambda: not said("squeue", "--noheader").strip(), "the end of the job")
        outcome["left"] = said("squeue", "--noheader")
    print(json.dumps(outcome))


if __name__ == "__main__":
    main()
