"""The campaigns of two results folders against each other: what a change of a project did, as a table and as JUnit.

Base and head have run the same campaigns with the same seeds. A campaign that one of them alone has is listed and
fails nothing. A combination that has valid runs in the base and none in the head fails: a change after which a program
no longer works is no improvement.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis import comparison
from analysis.comparison import Comparison, MetricComparison
from analysis.handle import OpenResults
from analysis.results import of_subject
from testbed import units
from testbed.errors import listed


@dataclass(frozen=True)
class Compared:
    """A campaign of both folders."""

    campaign: str
    comparison: Comparison
    #: Ids of head's runs.
    runs: tuple[str, ...]
    #: Combinations with valid runs in the base and none in the head; "" where the campaign has no swept field.
    without_valid_runs: tuple[str, ...]

    def failing(self, named: Sequence[str]) -> list[MetricComparison]:
        """Lines that fail: each that is worse, and of metrics that somebody named each that is different."""
        return [
            line
            for line in self.comparison.lines
            if line.verdict == "worse" or (line.verdict == "different" and line.metric in named)
        ]


@dataclass(frozen=True)
class Regressions:
    """Two results folders."""

    compared: tuple[Compared, ...]
    #: Campaigns that one folder alone has.
    only_base: tuple[str, ...]
    only_head: tuple[str, ...]
    #: Metrics that were asked for; all if empty.
    named: tuple[str, ...]

    @property
    def fails(self) -> bool:
        """Whether the change must not pass."""
        return bool(self.failing) or any(found.without_valid_runs for found in self.compared)

    @property
    def failing(self) -> list[tuple[str, MetricComparison]]:
        """Campaign and line of what fails."""
        return [(found.campaign, line) for found in self.compared for line in found.failing(self.named)]

    def markdown(self) -> str:
        """A table of what differs, for a pull request."""
        rows = [
            f"| {found.campaign} | {of_subject(line.metric, line.subject)} | {units.show(line.mean_a, line.unit)} | "
            f"{units.show(line.mean_b, line.unit)} | {comparison.difference_text(line.compared, line.unit)} | "
            f"{'**' + line.verdict + '**' if line in found.failing(self.named) else line.verdict} | "
            f"{', '.join(run[:8] for run in found.runs)} |"
            for found in self.compared
            for line in found.comparison.lines
            if line.verdict in comparison.DIFFERING
        ]
        head = ["| campaign | metric | base | head | difference | verdict | runs |", "|---|---|---|---|---|---|---|"]
        count = len(self.failing)
        text = [*head, *rows, ""] if rows else []
        text.append(f"{count} of {sum(len(found.comparison.lines) for found in self.compared)} comparisons fail.")
        for names, where in ((self.only_base, "base"), (self.only_head, "head")):
            text += [f"Only in {where}: {', '.join(names)}."] if names else []
        for found in self.compared:
            for name in found.without_valid_runs:
                text.append(f"**No valid run in head**: {found.campaign}{f', {name}' if name else ''}.")
            of_sides = ((found.comparison.unmatched_a, "base"), (found.comparison.unmatched_b, "head"))
            text += [f"Only in {where}, {found.campaign}: {listed(names)}." for names, where in of_sides if names]
        return "\n".join(text) + "\n"

    def as_json(self) -> dict[str, Any]:
        """For scripts, in SI units."""
        return {
            "campaigns": [
                {"campaign": found.campaign, "comparison": found.comparison.as_json(), "runs": found.runs}
                for found in self.compared
            ],
            "only_base": self.only_base,
            "only_head": self.only_head,
            "failing": [
                {"campaign": campaign, "metric": line.metric, "subject": line.subject, "verdict": line.verdict}
                for campaign, line in self.failing
            ],
            "without_valid_runs": [
                {"campaign": found.campaign, "combination": name}
                for found in self.compared
                for name in found.without_valid_runs
            ],
        }

    def junit(self) -> str:
        """The same as JUnit's XML: a suite a campaign, a case a metric."""
        suites = ET.Element("testsuites")
        for found in self.compared:
            failing = found.failing(self.named)
            suite = ET.SubElement(
                suites,
                "testsuite",
                name=found.campaign,
                tests=str(len(found.comparison.lines) + len(found.without_valid_runs)),
                failures=str(len(failing) + len(found.without_valid_runs)),
            )
            for name in found.without_valid_runs:
                case = ET.SubElement(
                    suite, "testcase", classname=found.campaign, name=f"valid runs{f', {name}' if name else ''}"
                )
                ET.SubElement(case, "failure", message="no valid run in head")
            for line in found.comparison.lines:
                case = ET.SubElement(
                    suite, "testcase", classname=found.campaign, name=of_subject(line.metric, line.subject)
                )
                if line in failing:
                    text = comparison.difference_text(line.compared, line.unit)
                    ET.SubElement(case, "failure", message=f"{line.verdict}: {text}")
        ET.indent(suites)
        return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def between(
    base: Path, head: Path, margin: float, named: Sequence[str] = (), say: Callable[[str], None] = lambda sentence: None
) -> Regressions:
    """Compares each campaign of two results folders.

    Args:
        base: folder of the reference.
        head: folder under test.
        margin: greatest difference of what is called the same, as a share of the base's mean.
        named: names of the metrics to compare; all if empty.
        say: is called with which campaign was taken, where a name left a choice.

    Raises:
        AnalysisError: a folder has no results.
        StoreError: a store cannot be used.
    """
    in_base, in_head = _campaigns(base), _campaigns(head)
    compared = []
    for name in sorted(in_base.keys() & in_head.keys()):
        a, b = (comparison.load(f"{folder}:{name}", "", None, say) for folder in (base, head))
        found = comparison.compare(a, b, None, margin, named)
        in_b = [point for at, point in enumerate(b.points) if b.values.get(at)]
        lost = [
            ", ".join(f"{field}={value}" for field, value in point.items())
            for at, point in enumerate(a.points)
            if a.values.get(at) and point in b.points and point not in in_b
        ]
        compared.append(Compared(name, found, in_head[name], tuple(lost)))
    return Regressions(
        tuple(compared),
        tuple(sorted(in_base.keys() - in_head.keys())),
        tuple(sorted(in_head.keys() - in_base.keys())),
        tuple(named),
    )


def _campaigns(folder: Path) -> dict[str, tuple[str, ...]]:
    """The campaigns of a folder by name, each with the ids of its runs."""
    if not (folder / "results.sqlite").is_file():
        raise comparison.CompareError(f"{folder} is not a results folder")
    with OpenResults.open(folder) as store:
        return {name: tuple(store[name].run_ids) for name in store.campaigns()["name"]}
