"""Podman's settings where the process may not raise its own limits, as inside another container."""

from __future__ import annotations

import resource
from pathlib import Path


def settings(folder: Path) -> Path:
    """Writes a containers.conf, which $CONTAINERS_CONF names."""
    limits = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
    least = {name: min(4096, *(one for one in resource.getrlimit(of) if one > 0)) for name, of in limits.items()}
    values = ", ".join(f'"{name}={value}:{value}"' for name, value in least.items())
    file = folder / "containers.conf"
    file.write_text(
        f'[containers]\ndefault_ulimits = [{values}]\n[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
    )
    return file
