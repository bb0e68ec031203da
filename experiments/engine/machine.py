"""Readings of the machine's CPUs."""

from __future__ import annotations

import os
import time
from pathlib import Path


def cpu_seconds() -> dict[str, float]:
    """CPU time since the machine's start, in s: busy, niced, idle, and stolen by the machine's host ("steal")."""
    ticks = os.sysconf("SC_CLK_TCK")
    user, nice, system, idle, iowait, irq, softirq, steal = (
        int(word) / ticks for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return {"busy": user + system + irq + softirq, "niced": nice, "idle": idle + iowait, "steal": steal}


def cpu_shares(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Shares of a period between two readings of `cpu_seconds`."""
    spent = {name: after[name] - before[name] for name in before}
    total = sum(spent.values())
    return {name: round(value / total, 4) if total else 0.0 for name, value in spent.items()}


def taken_share(period_s: float) -> float:
    """Share of the CPUs that other programs of ordinary priority, and the machine's host, take during a period."""
    before = cpu_seconds()
    time.sleep(period_s)
    shares = cpu_shares(before, cpu_seconds())
    return shares["busy"] + shares["steal"]
