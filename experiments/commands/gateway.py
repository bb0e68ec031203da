"""`gateway`: devices behind a real interface of this machine use an emulated line."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from experiments import exits
from experiments.commands.options import RESULTS, JsonOption, ResultsOption, SetOption
from experiments.commands.shared import console, fail, show_note
from experiments.commands.shell import MEGABYTE, NetworkOption, ProfileOption, RecordLimitOption, report
from testbed.capability import require_root_emulation

if TYPE_CHECKING:
    from experiments.sessions.devices import DeviceGateway
    from experiments.sessions.state import SessionState


def gateway(
    interface: Annotated[
        str,
        typer.Argument(
            metavar="IFACE",
            help="Interface that the devices are connected to, not the one with the default route.",
            show_default=False,
        ),
    ],
    profile: ProfileOption = "cable-500-10",
    network: NetworkOption = None,
    overrides: SetOption = None,
    subnet: Annotated[
        str | None,
        typer.Option(
            "--subnet",
            metavar="CIDR",
            show_default=False,
            help="Network of the devices. Default: one that this machine does not use.",
        ),
    ] = None,
    name_server: Annotated[
        str | None,
        typer.Option(
            "--name-server",
            metavar="ADDRESS",
            show_default=False,
            help="Name server for the devices. Default: that of this machine.",
        ),
    ] = None,
    no_dhcp: Annotated[
        bool, typer.Option("--no-dhcp", help="Give no addresses; the devices' are set by hand.")
    ] = False,
    time_limit: Annotated[
        float | None,
        typer.Option(
            "--time-limit",
            metavar="SECONDS",
            min=0.1,
            show_default=False,
            help="End after this time. Default: with Ctrl-C or SIGTERM.",
        ),
    ] = None,
    record_limit: RecordLimitOption = 256,
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Connect the devices behind an interface of this machine to the internet through an emulated link."""
    require_root_emulation("a gateway")
    from analysis.store import Store
    from experiments.sessions.devices import DeviceGateway
    from experiments.sessions.plan import plan_session
    from experiments.sessions.session import Session

    _check_address(name_server)
    seed = secrets.randbits(40)
    # Mistakes of the line are found before the machine changes.
    plan_session(profile, network, overrides or [], None, True, seed)
    with Store.open(results) as store:
        store.sweep()
        behind = DeviceGateway(interface, subnet, name_server, not no_dhcp)
        try:
            plan = plan_session(profile, network, overrides or [], None, True, seed, str(behind.network))
            session = Session(plan, store, record_limit * MEGABYTE, behind, show_note, interface)
        except BaseException:
            behind.close()
            raise
        ended = session.hold(_opening(behind, plan.label, no_dhcp), time_limit, _shown(behind))
    report(ended, results, as_json)
    raise typer.Exit(ended.exit_status)


def _check_address(text: str | None) -> None:
    try:
        ipaddress.IPv4Address(text or "192.0.2.1")
    except ValueError:
        fail(f"--name-server {text} is not an IPv4 address", exits.BAD_INPUT)


def _opening(behind: DeviceGateway, label: str, no_dhcp: bool) -> list[str]:
    router, prefix = behind.network[1], behind.network.prefixlen
    by_hand = f"set an address of {behind.network}, router {router} and name server {behind.name_server} on the device"
    lines = [
        f"devices on {behind.interface} are behind {label} and reach the internet by {', '.join(behind.uplinks)}; "
        + (by_hand if no_dhcp else f"they get addresses of {router}/{prefix} by DHCP")
        + ". Ctrl-C ends the gateway and restores this machine; './backchannel shell set' changes the link"
    ]
    if behind.without_ipv6 is None:
        lines.append(f"devices get addresses of {behind.network_v6} by router advertisement too")
    else:
        lines.append(f"devices get no IPv6: {behind.without_ipv6}")
    if behind.firewall:
        lines.append(
            f"this machine's firewall drops forwarded packets that no rule accepts ({', '.join(behind.firewall)}); if "
            f"devices reach nothing, accept those from and to the interface {behind.firewall_interface} there"
        )
    return lines


def _shown(behind: DeviceGateway) -> Callable[[SessionState], None]:
    """Shows the panel on a terminal; elsewhere each new device."""
    from experiments.sessions import panel

    terminal = console()
    before: SessionState | None = None
    shown_devices: set[str] = set()

    def show(state: SessionState) -> None:
        nonlocal before
        devices = behind.devices()
        if terminal.is_terminal:
            terminal.clear()
            panel.show(terminal, state, before, *(f"device {device.text}" for device in devices))
        for device in devices:
            if device.mac not in shown_devices:
                shown_devices.add(device.mac)
                if not terminal.is_terminal:
                    show_note(f"device {device.text}")
        before = state

    return show
