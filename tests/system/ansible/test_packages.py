"""Packages that roles install, compared with the programs that they need."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from jinja2.nativetypes import NativeEnvironment
from ruamel.yaml import YAML

from testbed import capability, node_binary
from tests.support.ansible_lab import in_lab

#: Packages for a Python environment on the host.
VENV = {"python3-venv", "python3-packaging"}


def packages(role: str, python: str) -> set[str]:
    """A role's packages on a host with this Python."""
    defaults: Any = YAML().load(node_binary.ROOT / "ansible" / "roles" / role / "defaults" / "main.yml")
    variables = {f"{role}_path": "/opt/x", f"{role}_python": python}
    return set(NativeEnvironment().from_string(defaults[f"{role}_packages"]).render(variables))


def test_a_worker_has_the_programs_of_emulated_runs() -> None:
    wanted = set(capability.PROGRAMS.values())
    assert packages("worker", "/opt/x/venv/bin/python") == wanted | VENV
    assert packages("worker", "/usr/bin/python3.13") == wanted


@pytest.mark.parametrize("role", ["worker", "results_site"])
def test_a_role_that_creates_a_python_environment_installs_its_packages(role: str) -> None:
    assert packages(role, "/opt/x/venv/bin/python") >= VENV
    assert not packages(role, "/usr/bin/python3.13") & VENV


@pytest.mark.emulated
@pytest.mark.shares_cpu
@pytest.mark.parametrize(
    ("role", "limit"),
    [
        ("worker", "--limit a,m"),
        pytest.param("worker", "", marks=pytest.mark.slow("every host in place of two")),
        pytest.param("results_site", "--limit m", marks=pytest.mark.slow("the check of workers with another list")),
    ],
)
def test_a_missing_package_is_reported_before_any_host_changes(lab_files: Path, role: str, limit: str) -> None:
    # Check mode installs nothing, so the preflight check must report the package.
    package = f"no-{role.replace('_', '-')}"
    lacking = shlex.quote(json.dumps({f"{role}_packages": [package]}))
    done = in_lab(lab_files, f"backchannel testbed site -i {lab_files} {limit} -- --check -e {lacking}")
    line, last = [line for line in done.stdout.splitlines() if line.startswith("backchannel: ")]
    assert f"host m: not fit: packages are missing ({package}) and cannot be installed" in line
    assert last == "backchannel: nothing was changed on any host"
