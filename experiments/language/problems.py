"""Problems of campaign files and imports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


def dotted(path: Sequence[str | int]) -> str:
    """The field of a path: "network.reverse.rate"."""
    return ".".join(map(str, path))


@dataclass(frozen=True, order=True)
class Problem:
    """One problem.

    Attributes:
        line: number from 1; 0 for the file as a whole.
        field: dotted path; empty for the file as a whole.
        message: a sentence.
        where: place outside the file, such as an option or an included file.
    """

    line: int
    field: str
    message: str
    where: str = ""

    def text(self, file: str) -> str:
        """ "file:line: field: message"."""
        place = self.where or (f"{file}:{self.line}" if self.line else file)
        return f"{place}: {self.field}: {self.message}" if self.field else f"{place}: {self.message}"


class CampaignError(Exception):
    """A campaign file is invalid. Lists every problem."""

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        self.file = file
        self.problems = sorted(set(problems))
        super().__init__("\n".join(problem.text(file) for problem in self.problems))


class ImportProblem(Exception):
    """Files cannot be imported."""
