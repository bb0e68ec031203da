"""Errors of the analysis that a user can cause. The message is a sentence for the user."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed import errors

#: What to do about a run whose files are damaged.
REPEAT = "repeat it: './backchannel run FILE --force --only ID'; an imported run has to be imported again"


class AnalysisError(Exception):
    """Something that was asked for does not exist, or cannot be read or written."""


class RunsFailed(AnalysisError):
    """Runs of a campaign failed or stayed invalid; the message has a line for each, with its id and the reasons."""


def message_of(stderr: str) -> str | None:
    """The error message of a command that was run with --json; None: it ended without one, for example at a limit.

    Args:
        stderr: what the command wrote, whose last line is the error (docs/json.md).
    """
    try:
        return str(json.loads(stderr.strip().splitlines()[-1])["error"]["message"])
    except (IndexError, KeyError, TypeError, ValueError):
        return None


def no_results(results: object) -> AnalysisError:
    """The folder or database `results` has no store."""
    return AnalysisError(f"no results in {results}: run a campaign first, or name another folder")


def ending_of(path: Path, kind: str, endings: Iterable[str]) -> str:
    """The ending of a file's name in lower case, without its dot.

    Args:
        path: of the file.
        kind: of file, such as "table".
        endings: that the kind has.

    Raises:
        AnalysisError: the name has none of them.
    """
    ending = path.suffix.lower().removeprefix(".")
    if ending not in (allowed := list(endings)):
        raise AnalysisError(f"{path}: a {kind}'s name ends in {', '.join('.' + ending for ending in allowed)}")
    return ending


@contextmanager
def writing(path: Path, *others: type[Exception]) -> Iterator[None]:
    """Around the writing of a file, whose folder is made first.

    Args:
        path: of the file.
        others: what the writer raises beside OSError.

    Raises:
        AnalysisError: the file cannot be written.
    """
    expected: tuple[type[Exception], ...] = (OSError, *others)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except expected as error:
        raise AnalysisError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}") from None


def unknown(what: str, name: str, known: Iterable[str]) -> AnalysisError:
    """Nothing that is known has this name."""
    return AnalysisError(errors.unknown(what, name, known))
