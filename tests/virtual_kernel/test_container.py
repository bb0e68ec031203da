"""`run` in a container of an ordinary user: rootless Podman, no capability of the machine, its default seccomp profile.

Only `./backchannel test --vm` runs it, because it installs Podman.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sysconfig
from pathlib import Path

import pytest

from testbed.virtual_kernel.kernels import Kernel
from tests.virtual_kernel.conftest import UID
from tests.virtual_kernel.test_ordinary_user import DEBIAN, KERNEL_TCP

pytestmark = pytest.mark.vm

#: Podman looks its user up, and maps these ids besides the user's own.
IDENTITY = {"passwd": f"bc:x:{UID}:{UID}::{{home}}:/bin/sh", "group": f"bc:x:{UID}:", "subuid": "bc:200000:65536",
            "subgid": "bc:200000:65536"}  # fmt: skip


def as_user(world: Path, home: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs a command as a user whom only this command's mount namespace knows."""
    runtime, lines = home / "runtime", ["mount --make-rprivate /"]
    lines.append(f"mount --bind {shlex.quote(sysconfig.get_path('purelib'))} {world / 'libraries'}")
    runtime.mkdir()
    os.chown(runtime, UID, UID)
    for name, line in IDENTITY.items():
        file, system = home / f"etc-{name}", Path("/etc") / name
        text = system.read_text() if system.exists() else ""
        system.touch()
        file.write_text(text + line.format(home=home) + "\n")
        lines.append(f"mount --bind {shlex.quote(str(file))} {system}")
    user = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "env", "-i", f"HOME={home}",
            f"XDG_RUNTIME_DIR={runtime}", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", *words]  # fmt: skip
    script = "\n".join([*lines, f"exec {shlex.join(user)}"])
    return subprocess.run(
        ["unshare", "--mount", "sh", "-euc", script], capture_output=True, text=True, check=False, cwd=home, timeout=600
    )  # fmt: skip


def test_a_campaign_runs_in_an_unprivileged_container(world: Path, home: Path, kernel: Kernel) -> None:
    (home / "ordinary.yaml").write_text(KERNEL_TCP)
    for folder in ("usr", "etc", "proc", "sys", "dev", "tmp", "run", "var", "home", "world"):
        (home / "root" / folder).mkdir(parents=True)
    for link in ("bin", "lib", "lib64", "sbin"):
        (home / "root" / link).symlink_to(f"usr/{link}")
    for path in home.rglob("*"):
        os.chown(path, UID, UID, follow_symlinks=False)
    environment = {
        "HOME": "/home", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONPATH": os.pathsep.join(["/world/checkout", "/world/libraries", DEBIAN]),
        "BACKCHANNEL_NODE": "/world/checkout/node", "BACKCHANNEL_ROOT": "/world/checkout",
    }  # fmt: skip
    volumes = ["/usr:/usr:ro", "/etc:/etc:ro", f"{world}:/world:ro,rbind", f"{home}:/home"]
    done = as_user(world, home, [
        "podman", "--cgroup-manager=cgroupfs", "--runtime=runc", "run", "--rm", "--network=none", "--workdir=/home",
        *(f"--volume={volume}" for volume in volumes), *(f"--env={key}={value}" for key, value in environment.items()),
        "--rootfs", str(home / "root"),
        "/usr/bin/python3", "-m", "experiments", "run", "ordinary.yaml", "--results", "results",
    ])  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "you are not root; the campaign runs on Linux" in done.stderr
    (manifest,) = (json.loads(path.read_text()) for path in (home / "results").rglob("manifest.json"))
    assert (manifest["virtual_kernel"], manifest["interception"]) == (kernel.release, "seccomp")
    assert list((home / "results").rglob("*.pcap.gz"))
