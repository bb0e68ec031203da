"""What every foreign description of a lab comes down to: hosts, their interfaces, and when they are taken away."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from experiments.language.problems import CampaignError, Problem, dotted


@dataclass(frozen=True)
class Nic:
    """An interface of a host. Two interfaces on one network are joined."""

    network: str
    #: As the host's kernel calls it; None: the description does not say.
    name: str | None = None
    #: With colons and in lower case.
    mac: str | None = None
    address: str | None = None


@dataclass(frozen=True)
class LentHost:
    """A host with the interfaces of its experiment, without the one by which it is reached."""

    name: str
    address: str
    nics: tuple[Nic, ...]
    user: str | None = None
    key: str | None = None
    port: int = 22


@dataclass(frozen=True)
class LeasedLab:
    """Hosts that somebody lends."""

    hosts: tuple[LentHost, ...]
    ends: datetime | None = None


def host_name(text: str) -> str:
    """A name as inventories have it: lower-case letters, digits and hyphens, starting with a letter."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return (name if name[:1].isalpha() else f"host-{name}")[:40]


def hardware_address(text: str) -> str | None:
    """A hardware address with colons, in lower case; None for any other text."""
    digits = re.sub(r"[:.-]", "", text.lower())
    if not re.fullmatch(r"[0-9a-f]{12}", digits):
        return None
    return ":".join(digits[at : at + 2] for at in range(0, 12, 2))


def instant(text: str) -> datetime:
    """An instant; without an offset it is in UTC, as all of these systems write it.

    Raises:
        ValueError: it is none.
    """
    # FABRIC separates the offset by a space.
    try:
        moment = datetime.fromisoformat(re.sub(r" (?=[+-]\d\d:?\d\d$)", "", text.strip()))
    except ValueError:
        raise ValueError(f"'{text}' is not a time, such as '2026-03-01T18:00:00+00:00'") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def lent_lab(file: str, hosts: Sequence[LentHost], ends: datetime | None = None) -> LeasedLab:
    """A lab, once it is found to have hosts whose names and addresses differ.

    Raises:
        CampaignError: it has not.
    """
    if not hosts:
        raise wrong(file, 0, "", "lists no host")
    for key, what in ((lambda host: host.name, "names"), (lambda host: (host.address, host.port), "addresses")):
        seen: dict[Any, LentHost] = {}
        for host in hosts:
            other = seen.setdefault(key(host), host)
            if other is not host:
                raise wrong(file, 0, host.name, f"two hosts have the same {what} ({key(host)}); each needs its own")
    return LeasedLab(tuple(hosts), ends)


def wrong(file: str, line: int, field: str, why: str) -> CampaignError:
    """An error of a foreign file."""
    return CampaignError(file, [Problem(line, field, why)])


class Rows:
    """Mappings of a YAML or JSON file, each with its line, for readers that check every field."""

    def __init__(self, file: str, lines: Mapping[tuple[str | int, ...], int]) -> None:
        self._file = file
        self._lines = lines

    def error(self, path: tuple[str | int, ...], why: str) -> CampaignError:
        """An error at a value, or at the innermost value around it that has a line."""
        line = next((self._lines[path[:end]] for end in range(len(path), -1, -1) if path[:end] in self._lines), 0)
        return wrong(self._file, line, dotted([part for part in path if part != ROWS]), why)

    def text(self, row: Mapping[str, Any], path: tuple[str | int, ...], *keys: str) -> str | None:
        """The text of the first of these fields that is there and not empty; None without one."""
        for key in keys:
            value = row.get(key)
            if isinstance(value, dict | list):
                raise self.error(
                    (*path, key), f"expected text, found {'a list' if isinstance(value, list) else 'fields'}"
                )
            if value is not None and str(value).strip() not in ("", "None"):
                return str(value).strip()
        return None

    def need(self, row: Mapping[str, Any], path: tuple[str | int, ...], *keys: str) -> str:
        """As `text`, where one must be there."""
        value = self.text(row, path, *keys)
        if value is None:
            raise self.error(path, f"the field '{keys[0]}' is missing")
        return value

    def mapping(self, value: Any, path: tuple[str | int, ...]) -> dict[str, Any]:
        """A mapping of fields."""
        if not isinstance(value, dict):
            raise self.error(path, "expected a mapping of fields")
        return value

    def sequence(self, value: Any, path: tuple[str | int, ...]) -> list[Any]:
        """A list."""
        if not isinstance(value, list):
            raise self.error(path, "expected a list")
        return value


#: Field under which a file's list is read that is not in a mapping.
ROWS = "(rows)"
