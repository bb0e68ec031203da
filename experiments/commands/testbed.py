"""`calibrate` and `testbed`: measure links, set up hosts, rehearse a lab."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments import exits
from experiments.commands.answer import Answer
from experiments.commands.options import SetOption
from experiments.commands.shared import console, fail, load_plan
from testbed.capability import require_root_emulation

if TYPE_CHECKING:
    from experiments.commands import documents

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
) -> Answer[Sequence[documents.Measurement]]:
    """Measure rate, delay and loss of emulated links in each direction and compare them with what the file declares."""
    from experiments import calibrate as calibration

    plan = load_plan(file, overrides) if file is not None else None
    measured = calibration.calibrate(plan)
    has_problems = any(measurement.problems for measurement in measured)
    return Answer(
        [measurement.as_json() for measurement in measured],
        lambda: console().print(calibration.table(measured)),
        exits.FAILED if has_problems else exits.OK,
    )


#: Playbooks with their effects.
PLAYBOOKS = {
    "site": "Set the hosts up; a second run changes nothing.",
    "check": "Report problems of clocks, offloads, kernel, disk and reachability, and how long the hosts are lent.",
    "collect": "Copy logs, leftover captures and network state of every host.",
    "teardown": "Remove what site installed and restore what it found.",
}

testbed = typer.Typer(
    help="Set up hosts as a testbed with Ansible, import hosts that others lend, or rehearse a lab.",
    no_args_is_help=True,
)


def _playbook(name: str) -> Callable[..., None]:
    def play(
        inventory: InventoryOption,
        campaign: TopologyOption = None,
        arguments: Annotated[
            list[str] | None,
            typer.Argument(metavar="[ANSIBLE...]", help="Options for ansible-playbook, such as --check --diff."),
        ] = None,
    ) -> None:
        from experiments import lab

        if lab.playbook(name, inventory, campaign, arguments or []) != 0:
            raise typer.Exit(exits.FAILED)

    return play


for _name, _effect in PLAYBOOKS.items():
    testbed.command(_name, short_help=_effect, help=_effect, context_settings={"ignore_unknown_options": True})(
        _playbook(_name)
    )


def _pairs(option: str, texts: Sequence[str], example: str) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not (name and separator and value) or name in pairs:
            fail(f"{option}: '{text}' must be {example}, once for each", exits.BAD_INPUT)
        pairs[name] = value
    return pairs


@testbed.command("import", short_help="Write the inventory of hosts that another system lends.")
def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="What the system describes its hosts with.")],
    system: Annotated[
        str,
        typer.Option("--from", metavar="SYSTEM", show_default=False, help="cloudlab, fabric, chameleon or enoslib."),
    ],
    campaign: Annotated[
        Path,
        typer.Option(metavar="FILE", show_default=False, help="Campaign file with the topology that the hosts play."),
    ],
    inventory: Annotated[
        Path, typer.Option("--inventory", "-i", metavar="FILE", help="Inventory to write; it must not exist.")
    ] = Path("hosts.yml"),
    plays: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST=NODE", show_default=False, help="Node that a host plays. Default: the node of its name."
        ),
    ] = None,
    link: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LINK=NETWORK[,NETWORK]",
            show_default=False,
            help="Networks that carry a link, where several could; two where a host between them emulates it.",
        ),
    ] = None,
    ask: Annotated[
        bool,
        typer.Option("--ask", help="Ask each host over SSH how it calls its interfaces, if the file does not say."),
    ] = False,
    user: Annotated[
        str | None, typer.Option(show_default=False, help="Login of Ansible. Default: that of the file, else root.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(show_default=False, help="Private key. Default: that of the file, else ssh's.")
    ] = None,
    known_hosts: Annotated[Path | None, typer.Option(show_default=False, help="Host keys. Default: ssh's.")] = None,
    proxy_jump: Annotated[
        str | None,
        typer.Option(metavar="[USER@]HOST[:PORT]", show_default=False, help="Host through which all are reached."),
    ] = None,
    proxy_key: Annotated[
        Path | None, typer.Option(show_default=False, help="Private key for that host. Default: --key.")
    ] = None,
    lease_ends: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", show_default=False, help="When the hosts are taken away. Default: as the files say."
        ),
    ] = None,
) -> Answer[documents.Inventory]:
    """Write the inventory of hosts that CloudLab, FABRIC, Chameleon or EnOSlib lends (docs/physical.md)."""
    from experiments.foreign_labs import importing
    from experiments.language import registry

    if system not in importing.SYSTEMS:
        fail(registry.unknown("system", system, importing.SYSTEMS), exits.BAD_INPUT)
    request = importing.LabImportRequest(
        system,
        tuple(files),
        campaign,
        inventory,
        _pairs("--plays", plays or (), "HOST=NODE"),
        {name: tuple(value.split(",")) for name, value in _pairs("--link", link or (), "LINK=NETWORK").items()},
        ask,
        user,
        key,
        known_hosts,
        proxy_jump,
        proxy_key,
        lease_ends,
    )
    lines = importing.import_lab(request, time.time())
    return Answer({"inventory": str(inventory), "lines": lines}, lines)


@testbed.command(
    "rehearse",
    short_help="Create a lab's hosts as namespaces or virtual machines while a command runs.",
    context_settings={"ignore_unknown_options": True},
)
def rehearse(
    inventory: InventoryOption,
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="Command to run in the lab.", show_default=False)
    ],
    campaign: TopologyOption = None,
    machines: Annotated[
        bool,
        typer.Option("--vm", help="Use virtual machines, which have separate kernels, instead of namespaces; slower."),
    ] = False,
    tree: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER",
            show_default=False,
            help="File tree of the hosts, such as another release of Debian that mmdebstrap unpacked. Default: this "
            "machine's.",
        ),
    ] = Path("/"),
) -> None:
    """Rehearse a lab: create its hosts as namespaces, or virtual machines, while a command runs (docs/rehearsal.md)."""
    from experiments import lab

    require_root_emulation("a rehearsal")
    if machines and tree != Path("/"):
        fail(
            "--tree is for hosts in namespaces; virtual machines have their own disk, so leave out one of the two",
            exits.BAD_INPUT,
        )
    if not (tree / "usr/bin/python3").exists():
        fail(f"--tree: {tree} is not the file tree of a system with Python 3 (/usr/bin/python3)", exits.BAD_INPUT)
    sys.exit(lab.rehearse(inventory, campaign, command, machines, tree))
