"""Which campaign a name means, and what tells campaigns of one name apart."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from analysis.errors import AnalysisError, unknown

if TYPE_CHECKING:
    from analysis.store.rows import CampaignRow

#: Campaigns that a message names.
MOST_NAMED = 5
#: Characters of an id in messages, unless more are needed.
SHORT = 8


def found(campaigns: Sequence[CampaignRow], name: str, where: str = "") -> CampaignRow:
    """The campaign of an id, of a name (the newest of several), or of the first characters of an id.

    Args:
        campaigns: of the store, newest first.
        name: that was given.
        where: the store, for messages; "": it is clear.

    Raises:
        AnalysisError: there is none, or several ids begin so.
    """
    exact = [row for row in campaigns if row.id == name] or [row for row in campaigns if row.name == name]
    if exact:
        return exact[0]
    beginning = [row for row in campaigns if name and row.id.startswith(name)]
    if not beginning:
        raise unknown(f"campaign{f' in {where}' if where else ''}", name, [row.name for row in campaigns])
    if len(beginning) > 1:
        listed = ", ".join(f"{row.id} ({row.name})" for row in beginning[:MOST_NAMED])
        raise AnalysisError(f"{len(beginning)} campaigns begin with '{name}': {listed}. Give more characters")
    return beginning[0]


def took(campaigns: Sequence[CampaignRow], name: str, row: CampaignRow) -> str:
    """Says which campaign was taken where the name left a choice; "" where it did not.

    Args:
        campaigns: of the store, with overrides, newest first.
        name: that was given.
        row: that was taken.
    """
    if name == row.id:
        return ""
    others = [other for other in campaigns if other.name == row.name and other.id != row.id]
    if name != row.name:
        return f"'{name}' is campaign {row.id}: {row.name}"
    if not others:
        return ""
    apart = distinguished([row, *others])
    listed = "; ".join(f"{other.id[:SHORT]} ({apart[other.id]})" for other in others[:MOST_NAMED])
    return (
        f"{len(others) + 1} campaigns are called {name}. This is the newest, {row.id[:SHORT]} ({apart[row.id]}). "
        f"Their ids name the others: {listed}"
    )


def distinguished(campaigns: Sequence[CampaignRow]) -> dict[str, str]:
    """Id to what tells a campaign from others of its name: overrides, file and backend where they differ, when it
    was started, and its id where that is not enough. "" for a name that is given once.

    Args:
        campaigns: with overrides.
    """
    by_name: dict[str, list[CampaignRow]] = {}
    for row in campaigns:
        by_name.setdefault(row.name, []).append(row)
    texts = {}
    for same in by_name.values():
        columns = [
            column
            for column in (
                [_overridden(row) for row in same],
                [row.file for row in same],
                [row.backend for row in same],
            )
            if len(set(column)) > 1
        ]
        started = [time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(row.started)) for row in same]
        described = [", ".join(parts) for parts in zip(*columns, started, strict=True)]
        for row, text in zip(same, described, strict=True):
            unique = text if described.count(text) == 1 else f"{text}, {row.id[:SHORT]}"
            texts[row.id] = unique if len(same) > 1 else ""
    return texts


def _overridden(row: CampaignRow) -> str:
    return " ".join(f"{field}={value}" for field, value in row.overrides.items()) or "as in the file"
