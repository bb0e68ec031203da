"""Which campaigns a rule of `prune` chooses, and why the others stay."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from analysis.store.rows import CampaignRow
from testbed import units

#: An age in days; shorter ones are times as campaign files write them.
_DAYS = re.compile(r"(\d+(?:\.\d+)?) ?d(?:ays?)?")
DAY_S = 24 * 3600.0


@dataclass(frozen=True)
class Rule:
    """What may go. Each condition that is set must hold."""

    #: Ids of campaigns that were named; empty: all.
    named: Collection[str] = ()
    #: Seconds since the epoch: only campaigns that were last run before it.
    before: float | None = None
    #: So many campaigns of each name stay, the newest.
    keep: int = 0
    #: Also what something refers to.
    referenced: bool = False


def age_s(text: str) -> float:
    """Seconds of "30 d", "12 h", "10 min".

    Raises:
        ValueError: it is not such a time.
    """
    if match := _DAYS.fullmatch(text.strip()):
        return float(match[1]) * DAY_S
    try:
        return float(units.parse(text, "time"))
    except ValueError:
        raise ValueError(f"'{text}' is not a time such as '30 d', '12 h' or '10 min'") from None


def choose(
    rows: Sequence[CampaignRow], rule: Rule, references: Callable[[CampaignRow], str]
) -> tuple[list[CampaignRow], dict[str, list[str]]]:
    """The campaigns that go, and by the reason the names of those that stay although the rule's conditions hold.

    Args:
        rows: of all campaigns, newest first.
        rule: of what goes.
        references: why a campaign should stay; "": nothing refers to it. A campaign that was named may go.
    """
    newer: Counter[str] = Counter()
    goes: list[CampaignRow] = []
    stays: dict[str, list[str]] = {}
    for row in rows:
        newer[row.name] += 1
        if rule.named and row.id not in rule.named:
            continue
        if newer[row.name] <= rule.keep or (rule.before is not None and last_run(row) >= rule.before):
            continue
        if row.state == "running":
            reason = "is running"
        else:
            reason = "" if rule.named or rule.referenced else references(row)
        if not reason:
            goes.append(row)
        elif row.name not in stays.setdefault(reason, []):
            stays[reason].append(row.name)
    return goes, stays


def last_run(row: CampaignRow) -> float:
    """When a campaign was run last, or a run added; s since the epoch."""
    return row.started if row.finished is None else row.finished
