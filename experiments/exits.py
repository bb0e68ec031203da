"""Exit statuses of `./backchannel`, and the prefix of its error messages. Programs that start it read both."""

from __future__ import annotations

import errno

from agents.errors import AgentError
from analysis.errors import REPEAT, AnalysisError, RunsFailed
from experiments.language.problems import CampaignError, ImportProblem
from testbed.errors import BadRequest, TestbedError, Unavailable

OK = 0
#: A run failed or stayed invalid, or a comparison found a regression.
FAILED = 1
#: A file or the command line is wrong.
BAD_INPUT = 2
#: This machine lacks something, such as root rights or a program.
UNAVAILABLE = 3
#: SIGINT, as a shell reports it.
INTERRUPTED = 130

#: What the operating system says when the machine lacks something, a disk fails, or a place is not the user's. Any
#: other such error is a defect.
_SHORTAGES = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EROFS,
        errno.EIO,
        errno.EMFILE,
        errno.ENFILE,
        errno.EAGAIN,
        errno.ENOMEM,
        errno.EACCES,
        errno.EPERM,
        errno.ENOTDIR,
        errno.ENAMETOOLONG,
    }
)
_REPEAT = "stored results are kept, and the command can be repeated"
_RECOVER = (
    "the files of its runs are not touched: restore a copy of results.sqlite, recover it with SQLite's '.recover', or "
    "choose another folder with --results"
)
#: Starts each error message that carries no file name.
MESSAGE_PREFIX = "backchannel: "


def of_process(status: int) -> int:
    """The exit status of a process that `subprocess` reports, as a shell has it: a signal is 128 and its number."""
    return status if status >= 0 else 128 - status


def of_error(error: Exception) -> tuple[str, int] | None:
    """Message and exit status of an error that a user can cause; None for any other."""
    if isinstance(error, RunsFailed):
        return str(error), FAILED
    if isinstance(error, CampaignError | ImportProblem | AnalysisError | BadRequest):
        return str(error), BAD_INPUT
    if isinstance(error, Unavailable):
        return str(error), UNAVAILABLE
    if isinstance(error, TestbedError | AgentError):
        return str(error), FAILED
    if type(error).__module__ == "polars.exceptions":
        # Asked by name: most commands do not import it.
        return f"a file of the results cannot be read: {error}; {REPEAT}", FAILED
    if isinstance(error, MemoryError):
        return f"the command stopped: no memory is left, or its limit (ulimit -v) is reached; {_REPEAT}", FAILED
    if isinstance(error, OSError) and error.errno in _SHORTAGES:
        at = f" ({error.filename})" if error.filename else ""
        return f"the command stopped: {error.strerror}{at}; {_REPEAT}", FAILED
    from analysis.store import RowDamaged, StoreDamaged, StoreError, StoreFailed, StorePlaceError

    if isinstance(error, RowDamaged):
        return str(error), FAILED
    if isinstance(error, StoreDamaged):
        return f"{error}; {_RECOVER}", FAILED
    if isinstance(error, StoreFailed):
        return f"{error}; {_REPEAT}", FAILED
    if isinstance(error, StorePlaceError):
        return str(error), BAD_INPUT
    return (str(error), FAILED) if isinstance(error, StoreError) else None
