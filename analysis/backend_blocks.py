"""The block of a campaign file's `backends` that holds for a backend."""

from __future__ import annotations

from collections.abc import Container


def block_for(blocks: Container[str], backend: str) -> str | None:
    """The backend whose fields under `backends` apply to a backend; None for no such fields.

    The virtual kernel has the network and the stacks of the emulated backend, so it takes that backend's fields where
    the file has none for it.
    """
    wanted = ("virtual-kernel", "emulated") if backend == "virtual-kernel" else (backend,)
    return next((name for name in wanted if name in blocks), None)
