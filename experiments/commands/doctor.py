"""`doctor`: what works on this machine, what does not, and the command that provides what is missing."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from analysis.errors import message_of
from experiments import exits
from experiments.commands.answer import Answer
from experiments.language.backends import Backend
from testbed import capability, doctor, node_binary
from testbed.collection import ansible_playbook
from testbed.doctor import Finding
from testbed.local_folders import ScratchFolder
from testbed.virtual_kernel import kernels

if TYPE_CHECKING:
    from experiments.commands import documents

#: A campaign of one short run, for backends whose only proof is a run.
PROBE = """
name: doctor
network: {topology: line, forward: {rate: 1 Mbit/s, delay: 10 ms}}
stack: reno
workload:
  - {name: bulk, from: left, to: right}
duration: 1 s
"""
#: A run that takes longer hangs, in s.
PROBE_S = 300.0
#: The kernel's Reno, for backends that have it, and that of the research stack.
STACKS = {Backend.SIM: "newreno", Backend.VIRTUAL_KERNEL: "reno"}
SIGNS = {True: "ok", False: "no", None: "--"}


def doctor_() -> Answer[Sequence[documents.Finding]]:
    """Report what works on this machine and the command that provides what is missing.

    Simulator and virtual kernel are tried with a run of one second of virtual time. Exit status 3 if the simulator does
    not work.
    """
    found = doctor.of_this_machine()
    found += [_in_virtual_time(Backend.SIM, []), _in_virtual_time(Backend.VIRTUAL_KERNEL, _missing_of_virtual_kernel())]
    found += [_emulated(), _physical()]
    width = max(len(finding.subject) for finding in found)
    lines = []
    for finding in found:
        lines.append(f"{SIGNS[finding.works]}  {finding.subject:{width}}  {finding.detail}")
        lines += [f"    {'':{width}}  {sentence}" for sentence in finding.missing]
    works = all(finding.works for finding in found if finding.subject == Backend.SIM)
    return Answer(found, lines, exits.OK if works else exits.UNAVAILABLE)


def _in_virtual_time(backend: Backend, missing: list[str]) -> Finding:
    """A backend whose proof is a run."""
    if missing:
        return Finding(backend, False, backend.summary, tuple(missing))
    before_s = time.monotonic()
    # The place of a team's artefacts does not go with a folder of results.
    environment = {name: value for name, value in os.environ.items() if name != "BACKCHANNEL_ARTEFACTS"}
    with ScratchFolder() as folder:
        file = folder / "doctor.yaml"
        file.write_text(PROBE)
        words = [*node_binary.module("experiments"), "run", str(file), "--json", "--results", f"{folder}/results"]
        words += ["--backend", backend, "--set", f"stack={STACKS[backend]}"]
        try:
            done = subprocess.run(
                words,
                capture_output=True,
                text=True,
                check=False,
                timeout=PROBE_S,
                env={**environment, "PYTHONPATH": node_binary.python_path()},
            )
        except subprocess.TimeoutExpired:
            return Finding(backend, False, backend.summary, (f"a run of 1 s did not end in {PROBE_S:g} s",))
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        return Finding(backend, False, backend.summary, (f"a run failed: {message_of(done.stderr) or last}",))
    return Finding(backend, True, f"{backend.summary}; a run of 1 s took {time.monotonic() - before_s:.1f} s")


def _missing_of_virtual_kernel() -> list[str]:
    missing = capability.missing_programs()
    if not kernels.find(kernels.DEFAULT).binary.exists():
        missing.append(
            f"Linux {kernels.DEFAULT} is not built: './backchannel kernel build' builds it, or install the package "
            "backchannel-kernel"
        )
    return missing


def _emulated() -> Finding:
    missing = capability.missing_for_emulation()
    how = "" if os.geteuid() == 0 or missing else "; in a user namespace, without the real-time class, which root has"
    return Finding(Backend.EMULATED, not missing, f"{Backend.EMULATED.summary}{how}", tuple(missing))


def _physical() -> Finding:
    missing = [] if ansible_playbook().exists() else ["Ansible is missing: pip install 'backchannel[lab]'"]
    return Finding(Backend.PHYSICAL, not missing, Backend.PHYSICAL.summary, tuple(missing))
