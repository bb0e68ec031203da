"""packetdrill's scripts in virtual time.

Debian 12 has no packetdrill, so a program that does the same stands for it: it waits for a tick by times(2),
opens a TUN interface, writes to /tmp, and says whether its script holds.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from testbed.virtual_kernel import packetdrill
from testbed.virtual_kernel.kernels import Kernel
from testbed.virtual_kernel.packetdrill import Version
from tests.support.called import called

#: The environment's may be in a folder with blanks, which a script's first line cannot name.
PYTHON = Path(sys.executable).resolve()
PROGRAM = f"""#!{PYTHON} -S
import os, sys, time
version, script = sys.argv[1], sys.argv[-1]
ticks = set()
while len(ticks) < 4:
    ticks.add(os.times().elapsed)
with open("/dev/net/tun", "r+b", buffering=0), open("/tmp/code", "w") as code:
    code.write("x")
text = open(script).read()
open("../common/read", "r").close()
print(version, os.getuid(), sorted(os.listdir("/tmp")), f"{{time.time():.6f}}", *sys.argv[2:4])
if "=" in text:
    sys.exit(f"{{script}}:2: error handling packet: timing error: {{text.strip()}}")
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    place = tmp_path / "gtests/net/packetdrill/packetdrill"
    place.parent.mkdir(parents=True)
    place.write_text(PROGRAM)
    place.chmod(0o755)
    for name, text in {"good/good.pkt": "", "good/bad.pkt": "0 = 1\n", "common/read": ""}.items():
        path = tmp_path / "gtests/net/tcp" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    # As in packetdrill's source, what scripts share is a link to a folder outside theirs.
    shared = tmp_path / "gtests/net/common"
    (tmp_path / "gtests/net/tcp/common").rename(shared)
    (tmp_path / "gtests/net/tcp/common").symlink_to("../common")
    return place


def test_a_script_runs_as_root_inside_at_the_same_virtual_instants(kernel: Kernel, program: Path) -> None:
    script = program.parents[1] / "tcp/good/good.pkt"
    once, again = (packetdrill.run(script, Version.IPV6, kernel, program, ["--tolerance_usecs=0"]) for _ in range(2))
    assert once == again
    assert (once.passed, once.reason) == (True, "")
    version, uid, *listed = once.output.split()
    assert (version, uid) == ("--ip_version=ipv6", "0")
    assert "'code'" in " ".join(listed)
    # Some ticks of 10 ms after the boot of 2000-01-01, not any time of the machine's.
    assert 0 < float(listed[-3]) - 946_684_800 < 1
    assert listed[-2:] == ["--mtu=1520", "--local_ip=fd3d:0a0b:17d6::1"]


def test_a_script_calls_python(kernel: Kernel, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "bin/python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nexit 126\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{other.parent}:{os.environ['PATH']}")
    program.write_text(f"#!{PYTHON} -S\nimport os, sys\nsys.exit(os.system('python3 -S -c 1') != 0)\n")
    verdict = packetdrill.run(program.parents[1] / "tcp/good/good.pkt", Version.IPV4, kernel, program)
    assert verdict.passed, verdict.output


def test_the_command_says_what_failed_and_where(kernel: Kernel, program: Path, tmp_path: Path) -> None:
    folder = program.parents[1] / "tcp"
    status, out, _ = called("packetdrill", folder, "--ip", "ipv4", "--keep", tmp_path / "kept")
    assert status == 1
    assert "line 2: error handling packet: timing error: 0 = 1" in " ".join(out.split())
    assert out.rstrip().endswith(f"1 of 2 passed on Linux {kernel.name}")
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == [
        "tcp-good-bad-ipv4.txt",
        "tcp-good-good-ipv4.txt",
    ]
    status, out, _ = called("packetdrill", folder / "good/good.pkt", "--json")
    assert status == 0
    assert [row["ip"] for row in json.loads(out)] == list(Version)
