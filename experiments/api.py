"""The facade through which the site and notebooks use `experiments`. Nothing outside imports anything else of it.

    from experiments import api

    plan = api.expand("mine.yaml", text, ["stack=cubic"])     # CampaignError lists every problem
    print(api.estimate(plan, "results").text)
    print([entry.name for entry in api.mechanisms("policy")])

Everything here is read-only, except what `import_command` starts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.store import Store
from experiments.catalogue import (
    campaign_files as campaign_files,
    campaign_text as campaign_text,
    campaign_titles as campaign_titles,
    fields_in_use as fields_in_use,
)
from experiments.engine.batch import unique
from experiments.engine.forecast import Forecast, Forecaster
from experiments.labels import (
    cell_text as cell_text,
    comparisons_note as comparisons_note,
    duration_text as duration_text,
    exact_note,
    field_labels as field_labels,
    level_text as level_text,
    point_document as point_document,
    point_label as point_label,
)
from experiments.language import campaign, registry, source, traps
from experiments.language.backends import Backend
from experiments.language.campaign import Plan, load as load
from experiments.language.own_code import with_crates_in_use as with_crates_in_use
from experiments.language.problems import CampaignError as CampaignError, Problem as Problem
from experiments.sessions import control
from experiments.sessions.state import SessionControl, SessionState as SessionState
from testbed import node_binary, units
from testbed.errors import TestbedError as TestbedError

#: Kinds of mechanisms, with what lists of each are called.
MECHANISM_KINDS = registry.KINDS
Mechanism = registry.Entry
Parameter = registry.Param
#: Names of this user's running sessions (`./backchannel shell`).
running_sessions = control.running


def backend_of(name: str) -> Backend | None:
    """The backend of a run or a campaign; None for imported captures, which nothing here made."""
    return Backend(name) if name in [*Backend] else None


# Campaigns ---------------------------------------------------------------------------------------------------


def expand(name: str, text: str, overrides: Sequence[str] = ()) -> Plan:
    """Validates and expands a campaign's text. Opens no file: included files and traces must follow in the text.

    Args:
        name: for messages.
        text: YAML, as `campaign_text` returns it.
        overrides: "field=value" texts, as `--set` takes them.

    Raises:
        CampaignError: carries every problem, each with file, line and field.
    """
    return campaign.expand(source.parse(name, text), overrides)


def warnings(plan: Plan, name: str, text: str) -> list[str]:
    """Known traps of emulation that a plan meets, as `./backchannel validate` prints them.

    Args:
        plan: of `expand`.
        name: for messages.
        text: from which the plan was expanded.
    """
    warnings_of_plan = traps.warnings(plan, source.parse(name, text))
    note = exact_note(plan)
    return [*warnings_of_plan, f"{name}: {note}"] if note else warnings_of_plan


@dataclass(frozen=True)
class Estimate(Forecast):
    """What running a plan costs, beyond what the store already has."""

    #: Runs of the plan that the store has with a valid result.
    known: int = 0

    @property
    def text(self) -> str:
        """One sentence fragment: runs, time, disk and the basis of the estimate."""
        if not self.runs:
            return "nothing to run: the results folder has all of it"
        basis = units.number_of(self.based_on, "earlier run") if self.based_on else "the rates of the links"
        return (
            f"{units.number_of(self.runs, 'run')}, about {duration_text(self.time_s)} with {self.cells} at a time, "
            f"{units.show(self.disk_bytes, 'bytes')} of disk (estimated from {basis})"
        )

    def as_json(self) -> dict[str, Any]:
        """What remains to be run, for scripts, in SI units."""
        fields = ("runs", "time_s", "disk_bytes", "cells", "based_on")
        return {**{name: getattr(self, name) for name in fields}, "sentence": self.text}


def estimate(plan: Plan, results: str) -> Estimate:
    """What a plan costs on this machine.

    Args:
        plan: of `load` or `expand`.
        results: a folder, or a PostgreSQL URL.

    Raises:
        StoreError: the store cannot be opened.
    """
    with Store.open(results) as store:
        done = store.valid_runs(plan.run_ids)
        history = store.history(plan.backend)
    missing = plan.runs_of([run for run in unique(plan.members) if run.id not in done])
    made = Forecaster(plan.backend, history, os.cpu_count() or 1).forecast(missing)
    return Estimate(**vars(made), known=len(done))


# The registry ------------------------------------------------------------------------------------------------


def mechanisms(kind: str | None = None) -> list[Mechanism]:
    """Every mechanism of a kind (a key of MECHANISM_KINDS) with its parameters; of all kinds without one.

    Raises:
        TestbedError: the node binary, which declares most of them, is missing or fails.
    """
    return [entry for each in MECHANISM_KINDS if kind in (None, each) for entry in registry.of_kind(each)]


def congestion_controllers() -> dict[str, str]:
    """Congestion controllers that research stacks may have, with the crate of the user's that has each (empty: none).

    Raises:
        TestbedError: the node binary is missing or fails.
    """
    names = registry.find("stack", "modern").param(registry.CONGESTION).choices
    return {name: registry.owner("controller", name) for name in names}


# Importing captures ------------------------------------------------------------------------------------------


def import_command(files: Sequence[Path], label: str, memory_gb: float, time_s: float, note: str = "") -> list[str]:
    """The command that imports captures, for `subprocess`, with limits of memory and elapsed time.

    The environment names the store, in BACKCHANNEL_RESULTS: everybody on a machine sees arguments of its programs, and
    a store's URL may have a password.
    """
    command = [*node_binary.module("experiments"), "import", *map(str, files)]
    limits = ["--memory-limit", f"{memory_gb:g}", "--time-limit", f"{time_s:g}"]
    return [*command, *limits, f"--label={label}", f"--note={note}", "--json"]


def imported_run(stdout: str) -> str:
    """The id of the run that a successful `import_command` made.

    Raises:
        ValueError: the output is not that of the command.
    """
    document: object = json.loads(stdout)
    if not isinstance(document, Mapping) or "run" not in document:
        raise ValueError("the importer printed no run")
    return str(document["run"])


# Sessions ----------------------------------------------------------------------------------------------------


def session_state(name: str) -> SessionState:
    """A running session: its lines as they are declared now, their counters and queues.

    Raises:
        TestbedError: it has ended.
    """
    return control.ask(name, SessionControl.status)


def set_session(name: str, link: str, words: Sequence[str]) -> list[str]:
    """Changes a line of a running session. Returns what was changed, as sentences.

    Args:
        name: of the session.
        link: name of the link.
        words: changes such as "forward.rate=2 Mbit/s".

    Raises:
        TestbedError: it has ended, or a change is invalid.
    """
    return [made.text for made in control.ask(name, SessionControl.change, link, words)]
