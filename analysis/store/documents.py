"""A run's scenario and manifest: JSON documents of the store, typed when first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import Field, ValidationError

from analysis.store.database import StoreError
from testbed.report import Measurement, Part, Report
from testbed.scenario import Limits, Number, Scenario

#: A parsed JSON object.
Document = Mapping[str, Any]


class Batch(Part):
    """Where a run stood in the batch that made it."""

    #: Cells at work beside it.
    cells: int | None = None
    #: Its place among the campaign's runs, and their number.
    position: int | None = None
    of: int | None = None


class CpuShares(Part):
    """Shares of the machine's CPU time during a run."""

    busy: Number
    idle: Number
    #: Taken by the machine's host.
    steal: Number
    niced: Number = 0.0


class Damage(Part):
    """A place of a capture file that could not be read."""

    #: Bytes from the file's start.
    offset: int
    reason: str
    #: Skipped.
    bytes: int


class LinkTypePackets(Part):
    """Packets of one link type in a capture file."""

    #: Number in the registry of libpcap.
    link_type: int
    packets: int
    #: Whether the reader can decode it.
    known: bool


class ImportedFile(Part):
    """A capture file that was imported."""

    label: str
    path: str
    sha256: str
    format: str
    #: The program that converted it; "backchannel" without a conversion.
    read_by: str
    #: How its clock was aligned, as a sentence.
    clock: str
    packets: int
    not_tcp: int
    connections_total: int
    connections_given_up: int = 0
    #: Packets with headers that are cut off or contradict each other.
    unreadable: int = 0
    unfinished_fragments: int = 0
    #: None where the file does not record it.
    dropped_by_capture: int | None = None
    link_types: tuple[LinkTypePackets, ...] = ()
    #: Number of damaged places, and the first of them.
    damages: int = 0
    damage: tuple[Damage, ...] = ()


class ImportDescription(Part):
    """What was imported as a run."""

    label: str
    note: str
    files: tuple[ImportedFile, ...]
    #: Flows beyond those that were measured.
    flows_left_out: int


class Versions(Part):
    """Software and machine that made a run; None where an older version did not record it."""

    #: None outside a checkout.
    commit: str | None = None
    #: Whether the checkout had local changes.
    changed: bool | None = None
    sources_sha256: str | None = None
    node_binary_sha256: str | None = None
    python: str | None = None
    kernel: str | None = None
    #: Architecture.
    machine: str | None = None
    cpus: int | None = None


class Manifest(Versions):
    """What reproduces a run: versions, calibration, report."""

    #: When it started, in seconds since the UNIX epoch.
    started: Number | None = None
    #: Seconds that it took to make.
    took_s: Number | None = None
    attempt: int | None = None
    batch: Batch = Batch()
    report: Report | None = None
    #: Metrics that could not be measured, each with the reason.
    unmeasured: tuple[str, ...] = ()
    #: Real packets only, as the following.
    calibration: tuple[Measurement, ...] = ()
    cpu: CpuShares | None = None
    limits: Limits | None = None
    #: Of an import.
    imported: ImportDescription | None = Field(default=None, alias="import")


@dataclass(frozen=True)
class ScenarioDocument:
    """A scenario as it is stored."""

    document: Document

    @cached_property
    def scenario(self) -> Scenario:
        """The scenario; null and unknown fields of its top level are left out, because older versions wrote them.

        Raises:
            StoreError: it is none.
        """
        known = {
            (info.alias or name): self.document.get(info.alias or name) for name, info in Scenario.model_fields.items()
        }
        # Imports recorded the names of files there.
        if "snaplen" not in (known["capture"] or {}):
            known["capture"] = None
        try:
            return Scenario.model_validate({name: value for name, value in known.items() if value is not None})
        except ValidationError as error:
            raise StoreError(f"a stored scenario cannot be read: {error}") from None


@dataclass(frozen=True)
class Documents:
    """A run's scenario and manifest."""

    scenario_document: Document
    manifest_document: Document

    @classmethod
    def of(cls, scenario: Scenario, manifest: Manifest) -> Documents:
        """To be stored."""
        return cls(scenario.as_json(), manifest.as_json())

    @cached_property
    def scenario(self) -> Scenario:
        """The scenario.

        Raises:
            StoreError: it is none.
        """
        return ScenarioDocument(self.scenario_document).scenario

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest.

        Raises:
            StoreError: it is none.
        """
        try:
            return Manifest.model_validate(self.manifest_document)
        except ValidationError as error:
            raise StoreError(f"a stored manifest cannot be read: {error}") from None
