"""The backends by what they have in common."""

from __future__ import annotations

from collections.abc import Container

SIM, EMULATED, PHYSICAL, VIRTUAL_KERNEL = "sim", "emulated", "physical", "virtual-kernel"

#: Backends in which Linux's TCP and real packets exist.
REAL_PACKETS = (EMULATED, PHYSICAL, VIRTUAL_KERNEL)


def in_virtual_time(backend: str) -> bool:
    """Whether a run takes CPU time instead of its own length, is never late, and gives the same bytes twice."""
    return backend in (SIM, VIRTUAL_KERNEL)


def block_for(blocks: Container[str], backend: str) -> str | None:
    """The backend whose fields under `backends` apply to a backend; None for no such fields.

    The virtual kernel has the network and the stacks of the emulated backend, so it takes that backend's fields where
    the file has none for it.
    """
    wanted = (VIRTUAL_KERNEL, EMULATED) if backend == VIRTUAL_KERNEL else (backend,)
    return next((name for name in wanted if name in blocks), None)
