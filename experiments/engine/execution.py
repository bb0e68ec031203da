"""Executes a run: by simulation, or in a cell after calibration. Then analyses it and gives the verdict."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from analysis import outputs, qlog, records, versions
from analysis.exchange_kinds import datagrams
from analysis.measuring import measure_files
from analysis.metrics import METRICS, Measured
from analysis.store import PendingRun
from analysis.store.documents import Batch, CpuShares, Documents, Manifest
from analysis.transports import is_quic
from experiments import found_flows
from experiments.engine import machine
from experiments.language.campaign import Run
from experiments.testbeds import OnProgress, Testbed, TestbedFactory
from testbed import build_cache, commands, delivery, exchanges, fidelity, node_binary, own_nodes
from testbed.addressing import addresses_of, as_json, interfaces, make_plan
from testbed.audit import audited
from testbed.cell import Cell, topology_key
from testbed.errors import CalibrationError, TestbedError
from testbed.installation import Installation
from testbed.report import Measurement, Phase, Progress, Report, sentences
from testbed.scenario import Limits, Scenario
from testbed.virtual_kernel import kernels
from testbed.virtual_kernel.machine import VirtualMachine

#: Analyses a run's files and gives the verdict, after the cell is free. The argument is the run's place in its batch.
Finish = Callable[[Batch], PendingRun]


#: Folders of records in that of a run.
RECORDS = ("telemetry", exchanges.FOLDER)
#: Why a stopped run has no result.
STOPPED = "the campaign was stopped"


class Worker:
    """Runs one run after another in a cell, which it replaces when it fails. Belongs to one thread."""

    def __init__(
        self,
        name: str,
        on_progress: OnProgress,
        cells: TestbedFactory = Cell,
        building: AbstractContextManager[Any] | None = None,
    ) -> None:
        self._name = name
        self._on_progress = on_progress
        self._cells = cells
        #: Entered while a testbed is built, because a pool limits how many are built at once.
        self._building = building or nullcontext()
        self._cell: Testbed | None = None
        self._topology = ""
        self._calibrated: dict[str, list[Measurement]] = {}
        #: A run in virtual time.
        self._process: subprocess.Popen[str] | VirtualMachine | None = None
        self._killed = False

    @property
    def calibrated(self) -> frozenset[str]:
        """`lines_key` of the lines that the cell has calibrated. Runs on them start without calibration."""
        return frozenset(self._calibrated)

    def run(self, run: Run, attempt: int, folder: Path) -> Finish:
        """Executes a run and writes its files to `folder`. The returned function analyses them, in any thread.

        Raises:
            TestbedError: the run has no result. The cell is ended, except after a failed calibration, and the next run
                gets a new cell.
        """
        try:
            if reason := own_nodes.lack(run.scenario.crates):
                raise TestbedError(reason)
            if not run.backend.has_real_packets:
                return self._simulate(run, attempt, folder)
            if run.backend.has_own_kernel:
                return self._run_in_virtual_kernel(run, attempt, folder)
            return self._emulate(run, attempt, folder)
        except TestbedError as error:
            if self._cell is not None and folder.exists():
                self._cell.keep_log(folder / "cell.log")
            if not isinstance(error, CalibrationError):
                self.close()
            raise

    def close(self) -> None:
        """Ends the cell."""
        cell, self._cell = self._cell, None
        self._calibrated = {}
        if cell is not None:
            cell.close()

    def kill(self) -> None:
        """Ends the cell at once, from any thread. The current run fails and no other run starts."""
        self._killed = True
        cell = self._cell
        if cell is not None:
            cell.kill()
        process = self._process
        if process is not None:
            process.kill()

    def _simulate(self, run: Run, attempt: int, folder: Path) -> Finish:
        self._raise_if_killed()
        scenario = run.scenario
        self._on_progress(Progress(Phase.SIMULATING))
        words = [node_binary.path(), "simulate", "--out", str(folder), "--parent", str(os.getpid())]
        plan = make_plan(scenario.nodes, scenario.links)
        started = time.time()
        simulation = self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        if self._killed:  # while the process started
            simulation.kill()
        try:
            output, trouble = simulation.communicate(
                json.dumps({"scenario": scenario.for_node(), "nodes": as_json(plan)})
            )
        finally:
            status, self._process = simulation.returncode, None
        if status != 0:
            raise TestbedError(f"the simulation failed: {node_binary.failure(status, trouble)}")
        report = Report.read(json.loads(output)).replace(interfaces=interfaces(plan))
        manifest = Manifest(started=started, took_s=time.time() - started)
        return partial(_pending_run, run, attempt, folder, report, manifest)

    def _run_in_virtual_kernel(self, run: Run, attempt: int, folder: Path) -> Finish:
        scenario = run.scenario
        kernel = kernels.named(scenario.kernel or "")
        build_cache.used(kernel.folder)
        self._on_progress(Progress(Phase.BUILDING))
        started = time.time()
        machine = self._process = VirtualMachine(kernel)
        try:
            self._raise_if_killed()
            report = machine.run(scenario, folder, self._on_progress)
        finally:
            self._process = None
        manifest = Manifest(
            started=started,
            took_s=time.time() - started,
            limits=Limits(**scenario.fidelity.complete()),
            virtual_kernel=kernel.release,
            interception=machine.interception,
        )
        return partial(_pending_run, run, attempt, folder, report, manifest)

    def _emulate(self, run: Run, attempt: int, folder: Path) -> Finish:
        scenario = run.scenario
        topology = topology_key(scenario)
        with nullcontext() if self._cell is not None and topology == self._topology else self._building:
            if self._cell is None and not self._killed:
                self._on_progress(Progress(Phase.BUILDING))
                self._cell = self._cells(self._name, self._on_progress)
            if self._killed or self._cell is None:
                raise TestbedError(STOPPED)
            if self._cell.build(scenario):
                self._calibrated = {}
            self._topology = topology
        # `kill` does not interrupt a testbed that is being built or calibrated.
        self._raise_if_killed()
        calibration = self._calibration(scenario, folder)
        self._raise_if_killed()
        before, started = machine.cpu_seconds(), time.time()
        report = self._cell.run(scenario, folder)
        _require_installation(run, report)
        shares, took_s = machine.cpu_shares(before, machine.cpu_seconds()), time.time() - started
        manifest = Manifest(
            started=started,
            took_s=took_s,
            calibration=tuple(calibration),
            cpu=CpuShares(**shares),
            limits=Limits(**scenario.fidelity.complete()),
        )
        return partial(_pending_run, run, attempt, folder, report, manifest)

    def _raise_if_killed(self) -> None:
        if self._killed:
            raise TestbedError(STOPPED)

    def _calibration(self, scenario: Scenario, folder: Path) -> list[Measurement]:
        """The calibration of a scenario's links, from an earlier run of this cell or measured now.

        Raises:
            CalibrationError: the links do not behave as declared; `folder` has the measurements.
        """
        assert self._cell is not None
        key = lines_key(scenario)
        if key in self._calibrated:
            return self._calibrated[key]
        self._on_progress(Progress(Phase.CALIBRATING))
        measured = self._cell.calibrate(scenario)
        troubles = [f"{line.link} {line.direction}: {problem}" for line in measured for problem in line.problems]
        if not troubles:
            self._calibrated[key] = measured
            return measured
        measurements = [measurement.as_json() for measurement in measured]
        (folder / "calibration.json").write_text(json.dumps(measurements, indent=1) + "\n")
        raise CalibrationError("calibration failed: " + "; ".join(troubles))


def _require_installation(run: Run, report: Report) -> None:
    """Raises TestbedError if other hosts, kernels or interfaces made a run than its id states."""
    if run.installation is None:
        return
    made_by = None if report.installation is None else Installation.read(report.installation)
    if made_by is None or made_by.identity() != run.installation:
        raise TestbedError(
            "a host of the lab has changed since the campaign began (another kernel or interface); start `run` again, "
            "which makes the runs of the lab as it is now"
        )


def _pending_run(run: Run, attempt: int, folder: Path, report: Report, made: Manifest, batch: Batch) -> PendingRun:
    """Computes a run's metrics and verdict, and writes the scenario and the manifest that reproduce it."""
    began = time.time()
    if run.backend.has_real_packets:
        report = audited(run.scenario, report, folder)
    scenario = run.scenario
    undelivered = delivery.problems(scenario, report, make_plan(scenario.nodes, scenario.links))
    failed = commands.problems(scenario, report, folder)
    # Simulations have counters of other packets; their tables stay as they are.
    others = run.backend.has_real_packets and any(flow.kind in datagrams() for flow in scenario.workload)
    measured = analyse(folder, run.scenario, report, others=others)
    problems = sentences([*fidelity.problems(report, scenario.fidelity), *undelivered, *failed])
    problems += outputs.read(folder, scenario).problems
    manifest = made.replace(
        **versions.versions().complete(),
        attempt=attempt,
        batch=batch,
        report=report,
        unmeasured=tuple(measured.unmeasured),
        analysed_s=time.time() - began,
    )
    if plugins := METRICS.plugins():
        manifest = manifest.replace(plugins=tuple(plugins))
    if scenario.crates:
        manifest = manifest.replace(crates=scenario.crates)
    documents = Documents(run.document.document, manifest.as_json())
    documents.write(folder)
    return PendingRun(run.id, run.backend, documents, measured.rows, problems, attempt, folder)


def _assign_senders(folder: Path, scenario: Scenario, report: Report) -> None:
    """Lets direction 0 of a program's connections be the one of their flow, where the receiver has opened them."""
    addresses = addresses_of(report.interfaces)
    opened = [
        pl.col("client").is_in(addresses.get(flow.to, []))
        & pl.col("server").is_in(addresses.get(flow.from_, []))
        & (pl.col("server_port") == flow.port)
        for flow in scenario.workload
        if flow.command is not None and flow.command.client_at == "to"
    ]
    if opened:
        found_flows.swap_direction(folder, pl.any_horizontal(opened), pl.col("server_port"))


def lines_key(scenario: Scenario) -> str:
    """Equal for scenarios that share a calibration: the links without their queue policies, and the limits."""
    lines = [
        {
            **link.as_json(),
            **{
                way: {key: value for key, value in direction.as_json().items() if key != "queue"}
                for way, direction in link.directions()
            },
        }
        for link in scenario.links
    ]
    return json.dumps([lines, scenario.fidelity.as_json()], sort_keys=True)


def analyse(folder: Path, scenario: Scenario, report: Report, trace: bool = True, *, others: bool = False) -> Measured:
    """Classifies a run's captures, unless `trace` is false, measures the run, and compresses its captures,
    logs and records.

    With `others`, packets of UDP and echoes of ICMP get a table, so that lines count them.
    """
    captures = sorted((folder / "captures").glob("*.pcap"))
    if captures and trace:
        # QUIC's packets are UDP.
        needs_datagrams = others or any(is_quic(scenario, flow) for flow in scenario.workload)
        options = ["--datagrams"] if needs_datagrams else []
        node_binary.call("trace", "--out", str(folder), *options, *(f"{path.stem}={path}" for path in captures))
        _assign_senders(folder, scenario, report)
    measured = measure_files(folder, scenario, report)
    qlog.join_keys(folder)
    logs = (folder / qlog.FOLDER).glob(f"*{qlog.SUFFIX}")
    # An empty file has no rows to unpack.
    written = (path for part in RECORDS for path in (folder / part).glob(f"*{records.PLAIN}") if path.stat().st_size)
    for path in [*captures, *logs, *written]:
        # No name and no time inside: equal captures give equal files. Level 5 took a third of a simulated run's CPU
        # time, and saved 6 % of its space.
        with (
            path.open("rb") as plain,
            path.with_name(f"{path.name}.gz").open("wb") as out,
            gzip.GzipFile(filename="", mode="wb", fileobj=out, compresslevel=1, mtime=0) as packed,
        ):
            shutil.copyfileobj(plain, packed, 1 << 20)
        path.unlink()
    return measured
