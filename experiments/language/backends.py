"""The backends by what they have in common."""

from __future__ import annotations

SIM, EMULATED, PHYSICAL, VIRTUAL_KERNEL = "sim", "emulated", "physical", "virtual-kernel"

#: Backends in which Linux's TCP and real packets exist.
REAL_PACKETS = (EMULATED, PHYSICAL, VIRTUAL_KERNEL)


def in_virtual_time(backend: str) -> bool:
    """Whether a run takes CPU time instead of its own length, is never late, and gives the same bytes twice."""
    return backend in (SIM, VIRTUAL_KERNEL)
