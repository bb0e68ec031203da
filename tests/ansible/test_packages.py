"""What roles ask of the distribution, against what their programs call."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from jinja2.nativetypes import NativeEnvironment
from ruamel.yaml import YAML

from testbed import capability, node_binary
from tests.ansible.conftest import in_lab

#: With these the environment is made on the host.
VENV = {"python3-venv", "python3-packaging"}


def packages(role: str, python: str) -> set[str]:
    """A role's list on a host with this Python."""
    defaults: Any = YAML().load(node_binary.ROOT / "ansible" / "roles" / role / "defaults" / "main.yml")
    told = {f"{role}_path": "/opt/x", f"{role}_python": python}
    return set(NativeEnvironment().from_string(defaults[f"{role}_packages"]).render(told))


def test_a_worker_has_what_emulated_runs_call() -> None:
    wanted = set(capability.PROGRAMS.values())
    assert packages("worker", "/opt/x/venv/bin/python") == wanted | VENV
    assert packages("worker", "/usr/bin/python3.13") == wanted


@pytest.mark.parametrize("role", ["worker", "results_site"])
def test_a_role_that_makes_a_python_environment_brings_what_makes_it(role: str) -> None:
    assert packages(role, "/opt/x/venv/bin/python") >= VENV
    assert not packages(role, "/usr/bin/python3.13") & VENV


@pytest.mark.emulated
@pytest.mark.parametrize("role", ["worker", "results_site"])
def test_a_host_that_cannot_have_them_is_told_before_any_is_touched(lab_files: Path, role: str) -> None:
    lacking = json.dumps({f"{role}_packages": ["no-such-package"]})
    # A dry run installs nothing, so that it is the question beforehand that tells.
    done = in_lab(lab_files, f"backchannel testbed site -i {lab_files} -- --check -e {shlex.quote(lacking)}")
    lines = [line for line in done.stdout.splitlines() if line.startswith("backchannel: ")]
    assert len(lines) == 2, done.stdout
    assert "host m: not fit: packages are missing (no-such-package) and cannot be installed" in lines[0]
    assert lines[1] == "backchannel: nothing was changed on any host"
