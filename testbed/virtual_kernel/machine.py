"""A run in virtual time as one process: boots the kernel, which runs testbed.virtual_kernel.guest and ends."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from testbed import confined, node_binary
from testbed.errors import TestbedError
from testbed.local_folders import ScratchFolder
from testbed.report import Progress, Report
from testbed.scenario import Scenario
from testbed.slots import Slots
from testbed.virtual_kernel import bundled, bytecode, exposed, kernels

#: The virtual clock at boot, 2000-01-01 UTC, in ns: the same for every run, so that equal runs have equal captures.
BOOT_NS = 946_684_800_000_000_000
#: Memory of a virtual machine in MiB. Pages that are not used cost nothing.
MEMORY_MIB = 1024
#: A machine that reports nothing for this long, in s of real time, hangs.
SILENT_S = 300.0
#: Interval at which what a machine says is read, in s of real time.
LOOK_EVERY_S = 0.05
#: Of what the kernel says, the lines that are kept, and what marks a line as one about trouble. "Failed to initialize"
#: is said of consoles that a run does not need.
KERNEL_LINES = 500
TROUBLE = re.compile(r"panic|Oops|BUG|userspace - |ended unexpectedly")
#: What a kernel says before it boots where the host forbids interception by seccomp.
NO_SECCOMP = "SECCOMP userspace requested but not functional"
#: What a test may tell the programs inside: a fault to inject.
FOR_TESTS = ("BACKCHANNEL_FAULT",)


#: How User-Mode Linux gets the system calls of the programs inside.
Interception = Literal["seccomp", "ptrace"]


class VirtualMachine:
    """One run; `kill` may be called from any thread."""

    def __init__(self, kernel: kernels.Kernel, interception: Interception | None = None) -> None:
        """Prepares a machine.

        Args:
            kernel: that it boots.
            interception: how the kernel intercepts system calls; None: by seccomp where kernel and host have it.
        """
        self._kernel = kernel
        has_seccomp = kernels.SECCOMP not in kernel.lacks
        #: How the kernel intercepts system calls, known when the run has ended. Runs have the same bytes with either.
        self.interception: Interception = interception or ("seccomp" if has_seccomp else "ptrace")
        self._may_fall_back = interception is None
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False

    def run(self, scenario: Scenario, out: Path, on_progress: Callable[[Progress], None]) -> Report:
        """Runs a scenario; its captures and telemetry go to `out`.

        Raises:
            TestbedError: the run failed, or the machine ended or hung; `out` has guest.log and kernel.log.
        """
        with ScratchFolder() as scratch:
            folder = scratch / "host"
            folder.mkdir()
            (folder / "scenario.json").write_text(json.dumps(scenario.as_json()))
            log = scratch / "kernel.log"
            try:
                environment = inside_environment(BACKCHANNEL_NODE=node_binary.path())
                modules = bytecode.file(environment)
                # Else warnings about Mininet's imports would be taken for warnings about the first program.
                quiet = ("-W", "ignore::DeprecationWarning")
                words = [sys.executable, "-S", "-P", *quiet, bundled.__file__, str(modules), str(folder)]
                self.boot(words, environment, scenario.seed, scratch, log, (modules,), on_progress)
                return self._report(folder, log)
            finally:
                self._keep(folder, log, out)

    def kill(self) -> None:
        """Ends the machine at once; the run fails."""
        self._killed = True
        if self._process is not None:
            self._process.kill()

    def boot(
        self,
        first: Sequence[str],
        environment: Mapping[str, str],
        seed: int,
        scratch: Path,
        log: Path,
        readable: Iterable[Path],
        on_progress: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        """Boots the kernel and waits for its end.

        Args:
            first: the program that it runs; it ends the machine.
            environment: of that program.
            seed: of the entropy inside.
            scratch: a folder, the only one that can be written.
            log: receives what the kernel says.
            readable: files and folders that can be read, beside programs and this software.
            on_progress: hears what `first` prints as lines of JSON.

        Raises:
            TestbedError: the confinement is not there.
        """
        init = scratch / "init"
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in environment.items())
        init.write_text(f"#!/bin/sh\n{exports}exec {shlex.join(first)}\n")
        init.chmod(0o755)
        readable = [*exposed.readable(self._kernel.folder), *readable]
        with _own_cpu() as cpu:
            self._boot(seed, cpu, scratch, log, readable, on_progress)
            if self._may_fall_back and NO_SECCOMP in "".join(_lines(log)):
                self.interception = "ptrace"
                self._boot(seed, cpu, scratch, log, readable, on_progress)

    def _boot(
        self,
        seed: int,
        cpu: int | None,
        scratch: Path,
        log: Path,
        readable: Iterable[Path],
        on_progress: Callable[[Progress], None],
    ) -> None:
        # Linux mixes its command line into its entropy, so no word may depend on the machine or the run. `init` is in
        # the working directory, by a link that is read on the host.
        machine = [
            str(self._kernel.binary),
            "time-travel=inf-cpu",
            f"time-travel-start={BOOT_NS}",
            f"mem={MEMORY_MIB}M",
            "root=/dev/root",
            "rootfstype=hostfs",
            "rootflags=/",
            "ro",
            "con=null",
            "con0=null,fd:1",
            "ssl=null",
            "quiet",
            "loglevel=4",
            "init=/proc/self/cwd/init",
        ]
        if kernels.SECCOMP not in self._kernel.lacks:
            # User-Mode Linux takes this word off the command line before Linux sees it.
            machine.append(f"seccomp={'on' if self.interception == 'seccomp' else 'off'}")
        command = [
            # Ends with the thread that runs it, so also with a killed runner.
            "setpriv",
            "--pdeathsig",
            "KILL",
            *([] if cpu is None else ["taskset", "--cpu-list", str(cpu)]),
            *confined.words(machine, readable, (scratch,), traces=True),
        ]
        host = {
            "PATH": os.environ.get("PATH", os.defpath),
            "LD_PRELOAD": str(self._kernel.preloaded),
            "BACKCHANNEL_KERNEL_SEED": str(seed),
            "TMPDIR": str(scratch),
            "HOME": str(scratch),
        }
        # Not a pipe: that would interrupt the kernel when its reader first reads, so at a moment that depends on the
        # machine, and Linux mixes the moments of interrupts into its entropy.
        console = scratch / "console"
        with console.open("w") as output, log.open("w") as errors:
            self._process = subprocess.Popen(
                command,
                env=host,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
                cwd=scratch,
            )
        if self._killed:  # while the process started
            self._process.kill()
        with log.open("a") as said:
            said.writelines(self._watch(self._process, console, on_progress))

    def _watch(
        self, process: subprocess.Popen[bytes], console: Path, on_progress: Callable[[Progress], None]
    ) -> Iterable[str]:
        """Until the machine has ended. Returns the last lines that the kernel itself said."""
        said: deque[str] = deque(maxlen=KERNEL_LINES)
        try:
            for line in _followed(console, process):
                try:
                    on_progress(Progress.from_json(json.loads(line)))
                except (ValueError, KeyError, TypeError):
                    said.append(line)
        finally:
            # `on_progress` may raise.
            process.kill()
            process.wait()
        return said

    def _report(self, folder: Path, log: Path) -> Report:
        path = folder / "report.json"
        if not path.exists():
            raise TestbedError(f"the virtual kernel ended before its run: {reason(folder / 'guest.log', log)}")
        answer = json.loads(path.read_text())
        if "error" in answer:
            raise TestbedError(str(answer["error"]))
        return Report.read(answer["report"])

    def _keep(self, folder: Path, log: Path, out: Path) -> None:
        """Moves what the run left to its folder."""
        out.mkdir(parents=True, exist_ok=True)
        for part in (*folder.iterdir(), *([log] if log.exists() else [])):
            if part.name not in ("scenario.json", "report.json") and not (out / part.name).exists():
                shutil.move(part, out / part.name)


def inside_environment(**more: str) -> dict[str, str]:
    """Variables of the first program inside."""
    return {
        "PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin",
        # What this process can import, the programs inside can too, which do not look for installed packages.
        "PYTHONPATH": os.pathsep.join(filter(None, [str(node_binary.IMPORTED_FROM), os.environ.get("PYTHONPATH")])),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONSAFEPATH": "1",
        "PYTHONHASHSEED": "0",
        "SETUPTOOLS_USE_DISTUTILS": "stdlib",
        **more,
        "HOME": "/run",
        **{name: os.environ[name] for name in FOR_TESTS if name in os.environ},
    }


def _followed(console: Path, process: subprocess.Popen[bytes]) -> Iterator[str]:
    """The lines of a growing file, until its writer has ended. Kills a writer that is silent for SILENT_S."""
    with console.open(errors="replace") as lines:
        part, heard_s = "", time.monotonic()
        while True:
            ended = process.poll() is not None
            while text := lines.readline():
                part, heard_s = part + text, time.monotonic()
                if part.endswith("\n"):
                    yield part
                    part = ""
            if ended:
                break
            if time.monotonic() - heard_s > SILENT_S:
                process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_EVERY_S)
    if part:
        yield part


def reason(guest: Path, kernel: Path) -> str:
    """What the guest's program said last, or else where the kernel's trouble began."""
    guest_lines, kernel_lines = ([line.strip() for line in _lines(log) if line.strip()] for log in (guest, kernel))
    trouble = [line for line in kernel_lines if TROUBLE.search(line)]
    return next(iter([*guest_lines[-1:], *trouble, *kernel_lines[-1:]]), "it said nothing")


def _lines(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines() if log.exists() else []


@contextmanager
def _own_cpu() -> Iterator[int | None]:
    """A CPU for one machine; None where other machines have all of them.

    The kernel and the program that it traces take turns, so that one CPU is enough, and each turn is an interrupt of
    the other CPU where there are two: a run takes a third less CPU time on one.
    """
    cpus = sorted(os.sched_getaffinity(0))
    slots = Slots("virtual-kernel", len(cpus), threading.Event())
    try:
        yield cpus[slots.number] if slots.take() else None
    finally:
        slots.release()
