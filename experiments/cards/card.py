"""A report card: runs the cases with a sender and with the standard one, and judges what they reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from analysis.errors import AnalysisError
from analysis.metrics.registry import estimate
from analysis.results import by_point
from experiments.cards import verdicts
from experiments.cards.criteria import TESTED, Case
from experiments.language import campaign, registry, source
from experiments.language.backends import Backend
from experiments.language.mechanisms import FROM
from testbed import own_crates, own_nodes

if TYPE_CHECKING:
    from analysis.estimates import Estimate
    from analysis.results import Values
    from analysis.store import Store
    from experiments.cards.verdicts import Judged, Verdict
    from experiments.language.campaign import Plan
    from testbed.own_crates import Crate

#: Name and options of a stack.
Stack = Mapping[str, Any]
#: CUBIC and Reno of the research stack and of a kernel (RFC 9438, RFC 5681). The kernel's Reno has no HyStart.
STANDARDS: Mapping[Backend, Mapping[str, Stack]] = {
    Backend.SIM: {
        "CUBIC": {"name": "modern"},
        "Reno": {"name": "modern", "congestion": "newreno", "slow_start": "standard"},
    },
    Backend.VIRTUAL_KERNEL: {"CUBIC": {"name": "cubic"}, "Reno": {"name": "reno"}},
}


@dataclass(frozen=True)
class Sender:
    """The sender under test, the one that it is held against, and where both run."""

    tested: Stack
    #: Of STANDARDS.
    standard: str
    backend: Backend
    #: Of the user's, which the stack names. This process uses a node with it.
    crate: Crate | None = None

    @property
    def name(self) -> str:
        """The sender as the card's title has it."""
        options = ", ".join(f"{key}: {value}" for key, value in self.tested.items() if key != "name")
        return f"{self.tested['name']} ({options})" if options else str(self.tested["name"])


def sender(text: str, standard: str | None = None) -> Sender:
    """The sender of a name, or of a mapping as campaign files have it: "{name: modern, congestion: reno}".

    A kernel's stack runs on Linux in virtual time, any other one in the simulator. CUBIC is the standard, and Reno for
    CUBIC itself.

    Raises:
        AnalysisError: unknown stack or standard.
        BadRequest: its folder has no crate that a node can have.
        TestbedError: as testbed.own_nodes.use.
    """
    try:
        value = YAML(typ="safe").load(text)
    except YAMLError:
        value = None
    stack = {"name": value} if isinstance(value, str) else value
    if not isinstance(stack, dict) or not isinstance(stack.get("name"), str):
        raise AnalysisError(
            f"'{text}' is not a stack: give its name, such as modern-bbr, or '{{name: modern, congestion: reno}}'"
        )
    crate = None
    if isinstance(stack.get(FROM), str):
        # Of this folder, not of that of the cases' files.
        stack[FROM] = str(Path(stack[FROM]).resolve())
        # Once for all cases: an edit meanwhile would make cases of different senders.
        crate = own_crates.read(Path(stack[FROM]), own_nodes.lockfile())
        own_nodes.use([crate])
    try:
        entry = registry.find("stack", stack["name"])
    except ValueError as error:
        raise AnalysisError(str(error)) from None
    backend = Backend.VIRTUAL_KERNEL if entry.backends else Backend.SIM
    standards = STANDARDS[backend]
    if standard is None:
        standard = "Reno" if stack == standards["CUBIC"] else "CUBIC"
    elif standard not in standards:
        raise AnalysisError(registry.unknown("standard", standard, list(standards)))
    return Sender(stack, standard, backend, crate)


@dataclass(frozen=True)
class PlannedCase:
    """A case as campaigns: with the sender under test, and with the standard one in its place."""

    case: Case
    tested: Plan
    standard: Plan

    @property
    def plans(self) -> tuple[Plan, Plan]:
        """Both."""
        return self.tested, self.standard


def planned(case: Case, sender: Sender) -> PlannedCase:
    """The campaigns of a case.

    Raises:
        CampaignError: the stack has no such option, or the case cannot run with it.
    """
    file = source.read(case.file)
    flows = [flow["name"] for flow in file.values["workload"] if flow["name"].startswith(TESTED)]

    def plan(stack: Stack) -> Plan:
        # One option after another: a case keeps those that it sets, such as the receive buffer.
        words = [f"workload.{flow}.stack.{name}={_word(value)}" for flow in flows for name, value in stack.items()]
        crate = sender.crate if FROM in stack else None
        own = file if crate is None else file.holding({str(stack[FROM]): crate.text})
        return campaign.expand(own, [f"backend={sender.backend}", *words])

    return PlannedCase(case, plan(sender.tested), plan(STANDARDS[sender.backend][sender.standard]))


def _word(value: object) -> str:
    """A value of YAML as `--set` takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class CardCase:
    """A case with its verdict."""

    planned: PlannedCase
    judged: Sequence[Judged]
    #: Ids of the valid runs of the sender under test.
    run_ids: Sequence[str]

    @property
    def verdict(self) -> Verdict:
        """Of all of its criteria at all of its points."""
        return verdicts.of_case(self.judged)


@dataclass(frozen=True)
class Card:
    """The card of a sender."""

    sender: Sender
    cases: Sequence[CardCase]

    def count(self, verdict: Verdict) -> int:
        """Cases with a verdict."""
        return sum(case.verdict == verdict for case in self.cases)


def read(store: Store, sender: Sender, cases: Sequence[PlannedCase]) -> Card:
    """The card of what the store has of the cases."""
    return Card(sender, [_card_case(store, case) for case in cases])


def _card_case(store: Store, case: PlannedCase) -> CardCase:
    rows = store.values(case.tested.id)
    tested, standard = by_point(rows), by_point(store.values(case.standard.id))
    criteria = case.case.criteria
    judged = [
        verdicts.judge(
            criterion,
            dict(point.parameters),
            tested.get(number, {}),
            standard.get(number, {}),
            len(case.tested.points) * len(criteria),
        )
        for number, point in enumerate(case.tested.points)
        for criterion in criteria
    ]
    return CardCase(case, judged, list(dict.fromkeys(row.run_id for row in rows)))


# As JSON --------------------------------------------------------------------------------------------------------


def document(card: Card) -> dict[str, Any]:
    """The card as JSON, in SI units."""
    return {
        "sender": dict(card.sender.tested),
        "standard": card.sender.standard,
        "standard_stack": dict(STANDARDS[card.sender.backend][card.sender.standard]),
        "backend": card.sender.backend,
        "cases": [_case_document(case) for case in card.cases],
    }


def _case_document(case: CardCase) -> dict[str, Any]:
    asked = case.planned.case
    return {
        "case": asked.name,
        "question": asked.question,
        "source": asked.source,
        "verdict": case.verdict,
        "campaign": case.planned.tested.id,
        "standard_campaign": case.planned.standard.id,
        "runs": list(case.run_ids),
        "criteria": [_judged_document(judged) for judged in case.judged],
    }


def _judged_document(judged: Judged) -> dict[str, Any]:
    criterion = judged.criterion
    values = {
        name: {"mean": found.mean, "low": found.ends[0], "high": found.ends[1], "runs": found.n}
        for name, side in (("tested", judged.tested), ("standard", judged.standard))
        if (found := _estimate(judged, side)) is not None
    }
    slack = judged.slack
    return {
        **criterion.model_dump(exclude_none=True),
        "point": dict(judged.point),
        "unit": judged.unit,
        "from": "the sender's records" if criterion.reads_the_endpoint else "captures",
        **values,
        "slack": None if slack is None else {"low": slack.low, "high": slack.high, "level": slack.level},
        "verdict": judged.verdict,
    }


def _estimate(judged: Judged, side: Values) -> Estimate | None:
    return estimate(judged.criterion.metric, judged.unit, list(side.values())) if side else None


def shown(judged: Judged, side: Values) -> str:
    """The mean of a side with its interval, for people; a dash without values."""
    found = _estimate(judged, side)
    return "-" if found is None else found.text(judged.unit)
