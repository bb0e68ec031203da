"""A run's scenario and manifest: JSON documents of the store, typed when first asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from analysis.store.database import StoreError
from testbed.documents import Document, DocumentError, Part
from testbed.report import Measurement, Report
from testbed.scenario import CrateUsed, Limits, Scenario, ScenarioDocument


class Batch(Part):
    """Where a run stood in the batch that made it."""

    #: Cells that were busy beside it.
    cells: int | None = None
    #: Its place among the campaign's runs, and their number.
    position: int | None = None
    of: int | None = None
    #: Seed of the runs' order; absent: they were made in the plan's order.
    order_seed: int | None = None


class CpuShares(Part):
    """Shares of the machine's CPU time during a run."""

    busy: float
    idle: float
    #: Taken by the machine's host.
    steal: float
    niced: float = 0.0


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
    """A capture or qlog file that was imported. Packets of a log are its events."""

    label: str
    path: str
    sha256: str
    format: str
    #: The program that converted it; "backchannel" without a conversion.
    read_by: str
    #: How its clock was aligned, as a sentence.
    clock: str
    #: Added to its time stamps, and their uncertainty; None where it is unknown.
    shift_ns: int | None = None
    uncertain_ns: int | None = None
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
    #: Packets of UDP and pings, if they were too many to be analysed.
    packets_left_out: int = 0
    #: Whether the files are qlog files.
    logs: bool = False


class SessionChange(Part):
    """A change that someone made while a session ran."""

    #: Seconds since the run's zero.
    at_s: float
    link: str
    direction: str
    #: In the words of a campaign file's `changes`.
    fields: Mapping[str, Any]

    @property
    def text(self) -> str:
        """As a sentence: "at 2.000 s, line reverse: rate 1 Mbit/s"."""
        fields = ", ".join(f"{name} {_value_text(value)}" for name, value in self.fields.items())
        return f"at {self.at_s:.3f} s, {self.link} {self.direction}: {fields}"


def _value_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(map(_value_text, value.values()))
    if isinstance(value, list):
        return "; ".join(map(_value_text, value)) or "none"
    return str(value)


class SessionDescription(Part):
    """Whose packets a session carried."""

    #: Profile or campaign.
    label: str
    #: Empty: an interactive shell, or none.
    command: tuple[str, ...]
    #: Host of the command.
    host: str
    #: Whether the network reached the machine's own.
    internet: bool
    #: None where the session outlived the command, or the command never started.
    exit_status: int | None
    #: Seconds from the session's zero to its end; the record may be shorter.
    lasted_s: float
    changes: tuple[SessionChange, ...] = ()
    #: Flows beyond those that were measured.
    flows_left_out: int = 0
    #: Packets of UDP and pings, if they were too many to be analysed.
    packets_left_out: int = 0
    #: Interface of the machine whose devices used the lines (`./backchannel gateway`).
    interface: str | None = None


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


class Plugin(Part):
    """A package outside the checkout that adds metrics, figures or exports."""

    name: str
    version: str
    #: Of its Python files; "" where it has none, as of a notebook (`__main__`).
    sha256: str


class MeasuredAgain(Versions):
    """A measurement of a stored run (`./backchannel measure`)."""

    #: When, in seconds since the UNIX epoch.
    at: float
    #: Names of the metrics; empty: all.
    metrics: tuple[str, ...] = ()


class Manifest(Versions):
    """What reproduces a run: versions, calibration, report."""

    #: When it started, in seconds since the UNIX epoch.
    started: float | None = None
    #: Seconds that it took to make.
    took_s: float | None = None
    #: Seconds that its captures took to be analysed.
    analysed_s: float | None = None
    attempt: int | None = None
    batch: Batch = Batch()
    report: Report | None = None
    #: Metrics that could not be measured, each with the reason.
    unmeasured: tuple[str, ...] = ()
    #: Packages outside the checkout that measured it.
    plugins: tuple[Plugin, ...] = ()
    #: Crates outside the repository whose mechanisms it has.
    crates: tuple[CrateUsed, ...] = ()
    #: Measurements after the first one, by which its metrics are; one of all metrics replaces those before.
    measured_again: tuple[MeasuredAgain, ...] = ()
    #: The kernel in virtual time that carried it: version of its source, and digest.
    virtual_kernel: str | None = None
    #: How that kernel got the system calls of the programs inside: by seccomp or ptrace.
    interception: str | None = None
    #: Real packets in real time only, as the following.
    calibration: tuple[Measurement, ...] = ()
    cpu: CpuShares | None = None
    limits: Limits | None = None
    #: Of a session.
    session: SessionDescription | None = None
    #: Its metrics are those of a bundle that came without captures; nothing here measured them.
    values_from_bundle: bool = False
    #: Of an import.
    import_: ImportDescription | None = None


@dataclass(frozen=True)
class Documents:
    """A run's scenario and manifest."""

    scenario_document: Document
    manifest_document: Document

    def write(self, folder: Path) -> None:
        """Writes scenario.json and manifest.json."""
        for name, document in (("scenario", self.scenario_document), ("manifest", self.manifest_document)):
            (folder / f"{name}.json").write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")

    @cached_property
    def scenario(self) -> Scenario:
        """The scenario.

        Raises:
            TestbedError: it is none.
        """
        return ScenarioDocument(self.scenario_document).scenario

    @property
    def report(self) -> Report:
        """The manifest's report.

        Raises:
            StoreError: there is none.
        """
        if self.manifest.report is None:
            raise StoreError("this run's manifest has no report")
        return self.manifest.report

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest.

        Raises:
            StoreError: it is none.
        """
        try:
            return Manifest.read(self.manifest_document)
        except DocumentError as error:
            raise StoreError(f"a stored manifest cannot be read: {error}") from None
