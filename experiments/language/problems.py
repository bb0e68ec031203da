"""What is wrong with a campaign file, and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Problem:
    """One mistake. `line` counts from 1; 0 stands for the whole file; `where` is set for what is not in the file."""

    line: int
    field: str
    message: str
    where: str = ""

    def text(self, file: str) -> str:
        """As one line: file:line: field: what is wrong."""
        place = self.where or (f"{file}:{self.line}" if self.line else file)
        return f"{place}: {self.field}: {self.message}" if self.field else f"{place}: {self.message}"


class CampaignError(Exception):
    """A campaign that cannot be run as it is written; carries every problem found."""

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        self.file = file
        self.problems = sorted(set(problems))
        super().__init__("\n".join(problem.text(file) for problem in self.problems))


class ImportProblem(Exception):
    """Files that cannot be imported; the message is a sentence."""
