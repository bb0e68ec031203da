"""The network hardware and the processors of a node. Standard library only."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from pathlib import Path

from agents.errors import AgentError

INTERFACES = Path("/sys/class/net")
TERMINALS = Path("/sys/class/tty")
#: Type of interfaces with Ethernet's headers (ARPHRD_ETHER).
ETHERNET = "1"
#: Identifiers of a device, in its own folder or, of a USB device, in the one above.
IDENTIFIERS = (("vendor", "device"), ("idVendor", "idProduct"))


def interfaces(settings: Path | None = None, root: Path = INTERFACES, terminals: Path = TERMINALS) -> dict[str, str]:
    """Driver and identifiers of each interface, such as "e1000e 8086:15b8"; "virtual" without a device.

    Args:
        settings: folder with a JSON file of each role that sets up lines or radios: settings by interface, which follow
            the description.
        root: folder of the interfaces.
        terminals: folder of the serial devices.

    Raises:
        AgentError: a file of settings cannot be read.
    """
    described = {name: describe(root / name) for name in _names(root)}
    for path in [] if settings is None else sorted(settings.glob("*.json")):
        try:
            of_role = json.loads(path.read_text())
            for name, values in of_role.items():
                if name in described:
                    described[name] += f"; {path.stem}: {_shown(values, terminals)}"
        except (AttributeError, OSError, ValueError) as error:
            raise AgentError(f"{path} cannot be read: {error}; run site.yml again") from error
    return described


def _shown(settings: Mapping[str, object], terminals: Path) -> str:
    """Settings of a line or radio, with the driver of a serial device in place of its name."""
    shown = dict(settings)
    if "device" in shown:
        shown["device"] = describe(terminals / Path(str(shown["device"])).resolve().name)
    return ", ".join(f"{name} {json.dumps(value)}" for name, value in sorted(shown.items()))


def mtus(root: Path = INTERFACES) -> dict[str, int]:
    """Longest IP packet of each interface, in bytes."""
    return {name: int((root / name / "mtu").read_text()) for name in _names(root)}


def macs(root: Path = INTERFACES) -> dict[str, str]:
    """Hardware address of each interface with Ethernet's headers."""
    return {
        name: (root / name / "address").read_text().strip()
        for name in _names(root)
        if (root / name / "type").read_text().strip() == ETHERNET
    }


def processors(path: Path = Path("/proc/cpuinfo")) -> str:
    """Number and model of the processors, such as "4 x Example 1000"; the architecture where the model has no name."""
    try:
        lines = [line.partition(":") for line in path.read_text(errors="replace").splitlines()]
    except OSError:
        lines = []
    count = sum(name.strip() == "processor" for name, _, _ in lines)
    model = next((value.strip() for name, _, value in lines if name.strip() == "model name"), platform.machine())
    return f"{count} x {' '.join(model.split())}"


def _names(root: Path) -> list[str]:
    try:
        return sorted(path.name for path in root.iterdir() if (path / "uevent").exists())
    except OSError:  # no /sys in this namespace
        return []


def describe(interface: Path) -> str:
    """Driver and identifiers of one interface or serial device, from its folder in /sys."""
    device = interface / "device"
    if not device.exists():
        return "virtual"
    driver = (device / "driver").resolve().name if (device / "driver").exists() else "unknown driver"
    for folder in (device, device.resolve().parent):
        for pair in IDENTIFIERS:
            if all((folder / name).is_file() for name in pair):
                vendor, product = ((folder / name).read_text().strip().removeprefix("0x") for name in pair)
                return f"{driver} {vendor}:{product}"
    return driver
