"""Exit statuses of `./backchannel`, and the prefix of its error messages. Programs that start it read both."""

from __future__ import annotations

OK = 0
#: A run failed or stayed invalid, or a comparison found a regression.
FAILED = 1
#: A file or the command line is wrong.
BAD_INPUT = 2
#: This machine lacks something, such as root rights or a program.
UNAVAILABLE = 3
#: SIGINT, as a shell reports it.
INTERRUPTED = 130

#: Starts each error message that carries no file name.
MESSAGE_PREFIX = "backchannel: "


def of_error(error: Exception) -> tuple[str, int] | None:
    """Message and exit status of an error that a user can cause; None for any other."""
    from agents.errors import AgentError
    from analysis.errors import AnalysisError
    from experiments.language.problems import CampaignError, ImportProblem
    from testbed.errors import TestbedError, Unavailable

    if isinstance(error, CampaignError | ImportProblem | AnalysisError):
        return str(error), BAD_INPUT
    if isinstance(error, Unavailable):
        return str(error), UNAVAILABLE
    if isinstance(error, TestbedError | AgentError):
        return str(error), FAILED
    from analysis.store import StoreError

    return (str(error), FAILED) if isinstance(error, StoreError) else None
