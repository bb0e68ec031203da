"""What a program inside sees of the machine: no file of a user, and nothing to write but the run's own folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.language.campaign import load
from testbed.virtual_kernel import exposed
from testbed.virtual_kernel.kernels import Kernel
from testbed.virtual_kernel.machine import Interception, VirtualMachine

CAMPAIGN = """
name: curious
backend: virtual-kernel
network: {topology: line, forward: {rate: 1 Mbit/s}, reverse: {rate: 1 Mbit/s}}
stack: cubic
workload:
  - name: curious
    kind: command
    from: left
    to: right
    command: {client_at: from, client: [sh, curious.sh], files: [curious.sh]}
duration: 5 s
repetitions: 1
"""
#: A program inside is root there, and can mount the machine's files again.
CURIOUS = """
cat {secret} 2>/dev/null || echo hidden
cat /etc/shadow 2>/dev/null || echo no passwords
mount -t hostfs -o / none /mnt && cat /mnt{secret} 2>/dev/null || echo hidden again
echo changed 2>/dev/null >/mnt{secret} || echo not writable
head -c 4 /etc/passwd
"""


def said(kernel: Kernel, folder: Path, name: str, secret: Path, interception: Interception) -> str:
    """What the program says of this file."""
    campaign = folder / f"{name}.yaml"
    campaign.write_text(CAMPAIGN)
    (folder / "curious.sh").write_text(CURIOUS.format(secret=secret))
    scenario = load(campaign).runs[0].scenario
    machine = VirtualMachine(kernel, interception)
    machine.run(scenario, folder / name, lambda progress: None)
    return (folder / name / "programs/curious.client.out").read_text()


@pytest.mark.parametrize("interception", ["seccomp", "ptrace"])
def test_files_of_users_are_hidden_and_nothing_is_written(
    interception: Interception, kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "private/secret"
    secret.parent.mkdir()
    secret.write_text("a secret\n")
    assert (
        said(kernel, tmp_path, "hidden", secret, interception)
        == "hidden\nno passwords\nhidden again\nnot writable\nroot"
    )
    monkeypatch.setenv(exposed.MORE, str(secret.parent))
    assert (
        said(kernel, tmp_path, "shown", secret, interception) == "a secret\nno passwords\na secret\nnot writable\nroot"
    )
    assert secret.read_text() == "a secret\n"


def test_what_is_readable_has_programs_and_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/home/me/bin")
    for name in ("nix/store", "usr/bin", "home/me", "var/lib", "etc/ssh", "etc/ssl/private", "etc/ssl/certs"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("shadow", "passwd", "ssh/ssh_config", "ssh/ssh_host_ed25519_key"):
        (tmp_path / "etc" / name).touch()
    paths = exposed.readable(Path("/kernels/linux-6.12"), tmp_path)
    own = {str(path.relative_to(tmp_path)) for path in paths if path.is_relative_to(tmp_path)}
    assert own == {"nix", "usr", "etc/passwd", "etc/ssh/ssh_config", "etc/ssl/certs"}
    assert {Path("/kernels/linux-6.12"), Path("/home/me/bin")} <= set(paths)
