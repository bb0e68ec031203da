"""Limits of this process's resources."""

from __future__ import annotations

import resource


def lower(kind: int, soft: int, hard: int | None = None) -> int:
    """Sets a limit of this process and its children. Lower ones that hold already, as of the shell's `ulimit`, stay.

    Args:
        kind: one of the constants `resource.RLIMIT_*`.
        soft: in the unit of the kind.
        hard: the same as `soft` by default.

    Returns:
        The soft limit that holds.
    """
    held = [limit if limit != resource.RLIM_INFINITY else None for limit in resource.getrlimit(kind)]
    wanted = (soft, soft if hard is None else hard)
    limits = [new if old is None else min(new, old) for new, old in zip(wanted, held, strict=True)]
    resource.setrlimit(kind, (limits[0], limits[1]))
    return limits[0]
