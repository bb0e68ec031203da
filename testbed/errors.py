"""The testbed's exceptions; every message is a sentence for users."""

import difflib
from collections.abc import Iterable
from pathlib import Path


class TestbedError(Exception):
    """The testbed could not be built or failed during a run."""

    #: For pytest, which takes classes named Test... for tests.
    __test__ = False


class BadRequest(TestbedError):
    """Nobody could do what the user asked for; the message gives what is allowed."""


class Unavailable(TestbedError):
    """The machine or the user cannot run the backend; the message gives what is missing and the remedy."""


class HostLost(TestbedError):
    """A host does not answer, and may do so again later."""


class LeaseOver(TestbedError):
    """The lab's hosts are taken away before a run would end."""


class CalibrationError(TestbedError):
    """Links deviate from what a scenario declares; the testbed itself works."""


#: Names that a message lists.
MOST_NAMED = 10


def listed(names: Iterable[str]) -> str:
    """The names, or the first ten and how many more there are; "none" without any."""
    known = list(dict.fromkeys(names))
    more = [f"and {len(known) - MOST_NAMED} more"] if len(known) > MOST_NAMED else []
    return ", ".join([*known[:MOST_NAMED], *more]) or "none"


def no_file(path: Path) -> str:
    """ "PATH does not exist", or "PATH is not a file"."""
    return f"{path} {'is not a file' if path.exists() else 'does not exist'}"


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The name that an unknown one probably stands for, or none.

    The one that differs by a letter or two, one that begins with it ("min" for "min_fraction"), one that it begins with
    ("simulator" for "sim"), or the one with the most letters in common.
    """
    names = {each.lower(): each for each in known}
    word = name.lower()
    kin = [
        each for each in names if min(len(each), len(word)) >= 3 and (each.startswith(word) or word.startswith(each))
    ]
    # A slip of a letter is likelier than a word cut short.
    for candidates, cutoff in ((names, 0.8), (kin, 0.0), (names, 0.6)):
        if close := difflib.get_close_matches(word, candidates, n=1, cutoff=cutoff):
            return [names[close[0]]]
    return []


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """ "unknown flow 'x'; did you mean 'y'? Allowed: ..." """
    names = list(known)
    near = nearest(name, names)
    hint = f"did you mean '{near[0]}'? Allowed" if near else "allowed"
    return f"unknown {kind} '{name}'; {hint}: {listed(names)}"
