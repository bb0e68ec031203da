"""The backends: how a run is executed, and what follows from it."""

from __future__ import annotations

from enum import StrEnum


class Backend(StrEnum):
    """A backend, by its name in campaign files, in the store and in a run's identity."""

    SIM = "sim"
    EMULATED = "emulated"
    VIRTUAL_KERNEL = "virtual-kernel"
    PHYSICAL = "physical"

    @property
    def has_real_packets(self) -> bool:
        """Whether Linux's TCP and real packets exist. Otherwise everything is simulated."""
        return self is not Backend.SIM

    @property
    def in_virtual_time(self) -> bool:
        """Whether a run takes CPU time instead of its own length, is never late, and gives the same bytes twice."""
        return self in (Backend.SIM, Backend.VIRTUAL_KERNEL)

    @property
    def in_cell(self) -> bool:
        """Whether runs need the rights of root on the machine that makes them, and have what its kernel has."""
        return self is Backend.EMULATED

    @property
    def in_lab(self) -> bool:
        """Whether runs need the hosts of an inventory, whose kernels are not known here."""
        return self is Backend.PHYSICAL

    @property
    def has_own_kernel(self) -> bool:
        """Whether a run has a kernel of its own, by the campaign's field `kernel`."""
        return self is Backend.VIRTUAL_KERNEL

    @property
    def summary(self) -> str:
        """For lists of backends."""
        return _SUMMARIES[self][0]

    @property
    def source(self) -> str:
        """The page that describes it."""
        return _SUMMARIES[self][1]


_SUMMARIES = {
    Backend.SIM: ("simulation in virtual time; deterministic for a scenario and a seed", "docs/architecture.md"),
    Backend.EMULATED: (
        "real packets between Mininet nodes on this machine, over emulated links",
        "docs/architecture.md",
    ),
    Backend.VIRTUAL_KERNEL: (
        "real packets between the nodes of a Linux kernel of its own, in virtual time",
        "docs/virtual-kernel.md",
    ),
    Backend.PHYSICAL: ("real packets between the hosts of a lab; lines may be emulated or real", "docs/physical.md"),
}

#: Backends with real packets, in the order of messages.
REAL_PACKETS = (Backend.EMULATED, Backend.PHYSICAL, Backend.VIRTUAL_KERNEL)
