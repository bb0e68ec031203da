"""The time until which a lab's hosts are lent to their user. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from testbed.errors import LeaseOver

#: Time that a run takes on hosts beyond its duration, in s: connections, calibration, and fetching its files.
OVERHEAD_S = 20.0


@dataclass(frozen=True)
class HostLease:
    """The lease of a lab's hosts."""

    ends: datetime

    def left_s(self, now_s: float) -> float:
        """Time that is left, in s; negative when it has ended. `now_s` is in seconds since the epoch."""
        return self.ends.timestamp() - now_s

    def require(self, duration_s: float, now_s: float) -> None:
        """Checks that a run would end before the lease does.

        Raises:
            LeaseOver: it would not.
        """
        left_s = self.left_s(now_s)
        if left_s < duration_s + OVERHEAD_S:
            left = f"in {left_s:.0f} s" if left_s > 0 else f"{-left_s:.0f} s ago"
            verb = "ends" if left_s > 0 else "ended"
            needed_s = duration_s + OVERHEAD_S
            raise LeaseOver(
                f"the lease of the hosts {verb} {left} ({self.shown}), and a run needs {needed_s:.0f} s; extend "
                "the lease and its 'lease_ends' in the inventory, and the same command continues"
            )

    @property
    def shown(self) -> str:
        """Its end in UTC."""
        return self.ends.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")

    def state(self, now_s: float) -> str:
        """How long it lasts, as a sentence."""
        left_s = self.left_s(now_s)
        if left_s <= 0:
            return f"the lease of the hosts has ended ({self.shown})"
        hours, minutes = divmod(int(left_s) // 60, 60)
        return f"the lease of the hosts ends in {hours} h {minutes} min ({self.shown})"
