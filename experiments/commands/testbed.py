"""`calibrate`, `testbed` and `lab`: measure links, set up hosts, rehearse a lab."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from experiments import exits
from experiments.commands.options import JsonOption, SetOption
from experiments.commands.shared import console, fail, load_plan

InventoryOption = Annotated[
    Path,
    typer.Option(
        "--inventory", "-i", metavar="FILE", help="Inventory of the lab (docs/physical.md).", show_default=False
    ),
]
TopologyOption = Annotated[
    Path | None,
    typer.Option(
        "--campaign",
        metavar="FILE",
        help="Campaign file whose topology to set up. Default: the campaign that the inventory names.",
        show_default=False,
    ),
]


def calibrate(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="Campaign file whose links to measure. Default: links of 28.8 kbit/s, 1 Mbit/s and 10 Mbit/s.",
            show_default=False,
        ),
    ] = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure rate, delay and loss of emulated links in each direction and compare them with what the file declares."""
    from experiments import calibrate as calibration

    plan = load_plan(file, overrides) if file is not None else None
    measured = calibration.calibrate(plan)
    if as_json:
        typer.echo(json.dumps([measurement.as_json() for measurement in measured], indent=2))
    else:
        console().print(calibration.table(measured))
    if any(measurement.problems for measurement in measured):
        raise typer.Exit(exits.FAILED)


def on_testbed(
    playbook: Annotated[
        str,
        typer.Argument(
            metavar="site|check|collect|teardown",
            help="site sets the hosts up, check tests them, collect fetches logs, teardown undoes site.",
            show_default=False,
        ),
    ],
    inventory: InventoryOption,
    campaign: TopologyOption = None,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ANSIBLE...]", help="Options for ansible-playbook, such as --check --diff."),
    ] = None,
) -> None:
    """Set up hosts as a testbed with Ansible, check them, collect their logs, or undo the setup."""
    from experiments import lab
    from experiments.language import registry

    if playbook not in lab.PLAYBOOKS:
        fail(registry.unknown("playbook", playbook, lab.PLAYBOOKS), exits.BAD_INPUT)
    if lab.playbook(playbook, inventory, campaign, arguments or []) != 0:
        raise typer.Exit(exits.FAILED)


def in_lab(
    inventory: InventoryOption,
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="Command to run in the lab.", show_default=False)
    ],
    campaign: TopologyOption = None,
    machines: Annotated[
        bool,
        typer.Option("--vm", help="Use virtual machines, which have separate kernels, instead of namespaces; slower."),
    ] = False,
) -> None:
    """Rehearse a lab: create its hosts as namespaces while a command runs."""
    from experiments import lab
    from testbed.capability import require_emulation

    require_emulation()
    sys.exit(lab.rehearse(inventory, campaign, command, machines))
