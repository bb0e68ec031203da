"""The block of a campaign file's `backends` that holds for a backend."""

from __future__ import annotations

from collections.abc import Container


def block_for(blocks: Container[str], backend: str) -> str | None:
    """The backend whose fields under `backends` apply to a backend; None for no such fields.

    A virtual kernel and the hosts of a lab carry real packets as the emulated backend does, so they take its fields
    where the file has none for them.
    """
    wanted = (backend, "emulated") if backend in ("virtual-kernel", "physical") else (backend,)
    return next((name for name in wanted if name in blocks), None)
