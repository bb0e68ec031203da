"""Errors of the analysis that a user can cause. The message is a sentence for the user."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AnalysisError(Exception):
    """Something that was asked for does not exist, or cannot be read or written."""


def no_results(results: object) -> AnalysisError:
    """The folder or database `results` has no store."""
    return AnalysisError(f"there are no results in {results}: run a campaign first, or name another folder")


def unknown(what: str, name: str, known: Iterable[str]) -> AnalysisError:
    """ "there is no flow 'x' (did you mean 'y'?); there are: ..." """
    names = list(dict.fromkeys(known))
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f" (did you mean '{near[0]}'?)" if near else ""
    listed = f"; there are: {', '.join(names)}" if names else "; there is none"
    return AnalysisError(f"there is no {what} '{name}'{hint}{listed}")
