"""Unit files of the module `service`. Labs in namespaces have no systemd."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.ansible_lab import collection_module


@pytest.fixture
def unit() -> Callable[..., list[str]]:
    """Lines of the unit for an account and its capabilities."""
    systemd = collection_module("modules.service").Systemd

    def lines(user: str, *capabilities: str, folder: str = "/var/lib/example") -> list[str]:
        wanted = {
            "name": "example", "description": "", "command": ["/bin/true"], "user": user, "folders": {folder: "0700"},
            "environment": {}, "capabilities": list(capabilities),
        }  # fmt: skip
        return list(systemd(wanted).text("0").splitlines())

    return lines


def test_root_keeps_its_capabilities_unless_some_are_listed(unit: Callable[..., list[str]]) -> None:
    assert not [line for line in unit("root") if "Capabilit" in line]
    assert "CapabilityBoundingSet=CAP_CHOWN CAP_SETUID" in unit("root", "chown", "setuid")


def test_another_account_has_exactly_the_listed_capabilities(unit: Callable[..., list[str]]) -> None:
    for line in ("AmbientCapabilities=", "CapabilityBoundingSet="):
        assert line in unit("backchannel-site")
        assert f"{line}CAP_NET_RAW" in unit("backchannel", "net_raw")


def test_a_service_restarts_without_a_limit(unit: Callable[..., list[str]]) -> None:
    lines = unit("root")
    assert "Restart=always" in lines
    assert lines.index("[Unit]") < lines.index("StartLimitIntervalSec=0") < lines.index("[Service]")


def test_a_service_without_capabilities_writes_to_its_folders_only(unit: Callable[..., list[str]]) -> None:
    lines = unit("backchannel-site")
    strict = {"ProtectSystem=strict", 'ReadWritePaths="/var/lib/example"', "PrivateDevices=yes", "ProtectHome=yes"}
    assert strict <= set(lines)
    assert "PrivateTmp=yes" in lines


def test_a_service_without_capabilities_can_confine_its_readers(unit: Callable[..., list[str]]) -> None:
    (allowed,) = [line for line in unit("backchannel-site") if line.startswith("SystemCallFilter=")]
    assert {"seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"} <= set(allowed.split())


def test_services_that_change_the_network_keep_devices_and_kernel_settings(unit: Callable[..., list[str]]) -> None:
    for lines in (unit("root"), unit("backchannel", "net_admin")):
        names = {line.partition("=")[0] for line in lines}
        assert {"PrivateTmp", "ProtectHome", "ProtectKernelModules"} <= names
        # They would hide /dev/net/tun, make /proc/sys read-only or forbid namespaces.
        assert not names & {"PrivateDevices", "ProtectClock", "ProtectKernelTunables", "RestrictNamespaces"}
        assert "ProtectSystem=full" in lines


def test_a_folder_in_a_home_is_not_hidden(unit: Callable[..., list[str]]) -> None:
    assert "ProtectHome=yes" not in unit("backchannel-site", folder="/home/lab/results")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize(
    ("user", "capabilities", "most"),
    [("backchannel-site", [], 2.0), ("backchannel", ["net_admin", "net_raw", "sys_nice"], 6.0)],
)
def test_units_expose_little_as_systemd_counts(
    unit: Callable[..., list[str]], tmp_path: Path, user: str, capabilities: list[str], most: float
) -> None:
    file = tmp_path / "example.service"
    file.write_text("\n".join(unit(user, *capabilities)) + "\n")
    words = ["systemd-analyze", "security", "--offline=yes", "--no-pager", f"--threshold={most * 10:.0f}", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr
