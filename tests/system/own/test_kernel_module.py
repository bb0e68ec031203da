"""The C files that `new` makes are modules for real hosts: its Makefile compiles them against a kernel's headers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conftest import backchannel

#: Of every kernel whose headers are here, which need not be the running one.
HEADERS = sorted(Path("/lib/modules").glob("*/build"))


@pytest.mark.parametrize(
    ("kind", "name", "object_"), [("kernel-controller", "mod-cc", "tcp_mod_cc"), ("qdisc", "mod-q", "sch_mod_q")]
)
def test_the_makefile_compiles_a_module(tmp_path: Path, kind: str, name: str, object_: str) -> None:
    if not HEADERS:
        pytest.fail("there are no headers of a kernel: ./backchannel test installs them")
    folder = tmp_path / name
    assert backchannel("new", kind, folder).returncode == 0
    make = ["make", "-C", str(folder), f"HEADERS={HEADERS[-1]}"]
    done = subprocess.run(make, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning: " not in done.stderr
    module = folder / f"{object_}.ko"
    # What modinfo reads.
    assert b"license=GPL" in module.read_bytes()
    assert f"vermagic={HEADERS[-1].parent.name} ".encode() in module.read_bytes()
    assert subprocess.run([*make, "clean"], capture_output=True, check=False).returncode == 0
    assert not module.exists()
