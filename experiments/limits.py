"""Limits of memory, time and written bytes for a command that reads foreign bytes."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from experiments import exits
from experiments.language.problems import ImportProblem
from testbed import resource_limits

GB = 10**9
#: Longest time limit, in s: poll(2), by which Python waits for a program, takes 2**31 ms.
LONGEST_S = 2e6
#: Exit statuses of the child that no command has.
_OUT_OF_MEMORY, _FAILED, _OUT_OF_TIME = 70, 71, 72
#: The child is killed this long after its time limit, in s: inside a library it cannot be interrupted.
_GRACE_S = 10.0
_PR_SET_PDEATHSIG = 1
#: How libraries that end the process say that memory ran out: Rust's allocator, OpenBLAS.
#: The last one is of the allocator of polars, which has no address space for its thread and then crashes.
_NO_MEMORY = ("memory allocation of", "Memory allocation still failed", "background thread creation failed")


@dataclass(frozen=True)
class Limits:
    """Limits of the child and of each program that it starts. Lower ones of the shell hold."""

    #: Address space.
    memory_bytes: int = 8 * GB
    #: Elapsed time.
    time_s: float = 3600.0
    #: Size of each file that is written.
    file_bytes: int = 8 * GB


class _OutOfTime(BaseException):
    """The time limit."""


@contextlib.contextmanager
def limited(limits: Limits) -> Iterator[None]:
    """Runs the rest of the command in a child process with limits. The parent waits and ends with the child's status.

    Raises:
        ImportProblem: in the parent, if the child met a limit, or a library in it panicked or aborted.
    """
    sys.stdout.flush()
    messages = os.memfd_create("messages")
    parent = os.getpid()
    child = os.fork()
    if child:
        _follow(child, messages, limits)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(_FAILED)
    os.dup2(messages, 2)
    resource_limits.lower(resource.RLIMIT_CORE, 0)
    resource_limits.lower(resource.RLIMIT_AS, limits.memory_bytes)
    file_bytes = resource_limits.lower(resource.RLIMIT_FSIZE, limits.file_bytes)
    signal.signal(signal.SIGALRM, _end)
    signal.setitimer(signal.ITIMER_REAL, limits.time_s)
    try:
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except _OutOfTime:
        os._exit(_OUT_OF_TIME)
    except MemoryError:
        os._exit(_OUT_OF_MEMORY)
    except (KeyboardInterrupt, SystemExit, BrokenPipeError):
        raise
    except OSError as error:
        if error.errno == errno.ENOMEM:
            os._exit(_OUT_OF_MEMORY)
        limit = f" (the limit is {file_bytes / GB:.3g} GB)" if error.errno == errno.EFBIG else ""
        where = f": {error.filename}" if error.filename else ""
        raise ImportProblem(f"importing failed: {error.strerror}{limit}{where}") from None
    except BaseException as error:
        # The loader has no exception of its own for a library without room.
        if isinstance(error, ImportError) and "failed to map segment" in str(error):
            os._exit(_OUT_OF_MEMORY)
        # Panics of Rust libraries derive from BaseException.
        if isinstance(error, Exception) and exits.of_error(error) is not None:
            raise
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(_FAILED)


def _end(_signal: int, _frame: object) -> NoReturn:
    raise _OutOfTime


def _follow(child: int, messages: int, limits: Limits) -> NoReturn:
    """Waits for the child and ends like it."""
    is_late = threading.Event()

    def end() -> None:
        is_late.set()
        os.kill(child, signal.SIGKILL)

    watchdog = threading.Timer(limits.time_s + _GRACE_S, end)
    watchdog.daemon = True
    watchdog.start()
    while True:
        # The terminal interrupts the child as well, which ends.
        with contextlib.suppress(KeyboardInterrupt):
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            break
    watchdog.cancel()
    lines = os.pread(messages, 1 << 20, 0).decode(errors="replace")
    reason = _reason(_OUT_OF_TIME if is_late.is_set() else status, lines, limits)
    if reason is not None:
        raise ImportProblem(reason)
    sys.stderr.write(lines)
    sys.exit(status)


def _reason(status: int, messages: str, limits: Limits) -> str | None:
    """Why a child ended without a message of its own; None if it left one or succeeded."""
    lines = [line.strip() for line in messages.splitlines() if line.strip()] or ["no message"]
    if status == _OUT_OF_TIME:
        return f"reading it takes longer than {limits.time_s:g} s; --time-limit raises the limit"
    if status == _OUT_OF_MEMORY or (status != exits.OK and any(text in messages for text in _NO_MEMORY)):
        # The parent has the limits that the child began with.
        held = resource.getrlimit(resource.RLIMIT_AS)[0]
        if held != resource.RLIM_INFINITY and held < limits.memory_bytes:
            return f"reading it needs more than {held / GB:.3g} GB of memory; `ulimit -v` in the shell sets this limit"
        return (
            f"reading it needs more than {limits.memory_bytes / GB:.3g} GB of memory; --memory-limit raises the limit"
        )
    if status == _FAILED:
        return f"internal error while reading it: {lines[-1]}; please report it"
    if status == -signal.SIGKILL:
        return (
            "reading it was ended by SIGKILL, which the kernel sends when the machine's memory runs out: free some, or "
            "import a shorter capture (editcap -c)"
        )
    if status < 0:
        return f"reading it was ended by {signal.Signals(-status).name}: {lines[0]}"
    return None
