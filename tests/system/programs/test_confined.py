"""What a confined program cannot do, tried from inside, on a kernel that has Landlock and seccomp."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed import confined, node_binary

#: Its exit status is 0 if the attempt succeeded, and the errno otherwise.
ATTEMPT = """
import ctypes, os, signal, socket, sys
try:
    {}
except OSError as error:
    sys.exit(error.errno)
"""
EPERM, EACCES = 1, 13


def attempt(code: str, folder: Path, *, traces: bool = False) -> int:
    """The errno of Python code in a confined process that may write below `folder`; 0 if it succeeded."""
    command = [sys.executable, "-I", "-c", ATTEMPT.format(code)]
    words = confined.words(command, read=[sys.prefix, sys.base_prefix], write=[folder], traces=traces)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "error: " not in done.stderr
    assert "Traceback" not in done.stderr
    return done.returncode


def landlock_version() -> int:
    """Of this kernel; -1 without Landlock."""
    landlock_create_ruleset, version_flag = 444, 1
    return int(ctypes.CDLL(None).syscall(landlock_create_ruleset, None, 0, version_flag))


@pytest.fixture(autouse=True)
def _kernel() -> None:
    assert landlock_version() > 0, "this kernel has no Landlock: CONFIG_SECURITY_LANDLOCK, and 'landlock' in lsm="


def test_its_own_folder_is_the_only_one(tmp_path: Path) -> None:
    folder, other = tmp_path / "own", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    (other / "secret").write_text("secret")
    assert attempt(f"open('{folder}/made', 'w').write('x'); os.listdir('{folder}')", folder) == 0
    assert (folder / "made").read_text() == "x"
    for code in (
        f"open('{other}/secret')", f"open('{other}/made', 'w')", f"os.listdir('{other}')",
        f"os.remove('{other}/secret')", "open('/etc/passwd')", "open('/proc/1/environ')", "open('/dev/sda')",
    ):  # fmt: skip
        assert attempt(code, folder) in (EACCES, 2), code
    assert attempt(f"os.rename('{folder}/made', '{other}/made')", folder) in (EACCES, 18)
    assert [path.name for path in other.iterdir()] == ["secret"]


def test_it_has_no_network(tmp_path: Path) -> None:
    assert attempt("socket.socket(socket.AF_INET, socket.SOCK_STREAM)", tmp_path) == EPERM
    assert attempt("socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", tmp_path) == EPERM
    ours, theirs = socket.socketpair()
    with ours, theirs:
        words = confined.words(
            [sys.executable, "-I", "-c", f"import socket; socket.socket(fileno={theirs.fileno()}).sendto(b'x', 0, '')"],
            read=[sys.prefix, sys.base_prefix],
        )
        done = subprocess.run(words, capture_output=True, text=True, pass_fds=[theirs.fileno()], check=False)
        assert "Operation not permitted" in done.stderr


def test_only_a_tracer_passes_descriptors_and_only_where_a_message_has_no_address(tmp_path: Path) -> None:
    """User-Mode Linux passes them to its processes. A datagram could go to any socket that has a name."""
    passed = "a, b = socket.socketpair(type=socket.{}); socket.send_fds(a, [b'x'], [0])"
    stream, datagram = passed.format("SOCK_STREAM"), passed.format("SOCK_DGRAM")
    assert (attempt(stream, tmp_path), attempt(datagram, tmp_path)) == (EPERM, EPERM)
    assert (attempt(stream, tmp_path, traces=True), attempt(datagram, tmp_path, traces=True)) == (0, EPERM)
    assert attempt("socket.socketpair(type=socket.SOCK_DGRAM)", tmp_path) == 0
    assert attempt("socket.socketpair(type=socket.SOCK_DGRAM)", tmp_path, traces=True) == EPERM


def test_it_cannot_reach_other_processes_or_the_kernel(tmp_path: Path) -> None:
    assert attempt("os.kill(os.getppid(), 0)", tmp_path) == EPERM
    for call in ("unshare(0x10000000)", "ptrace(16, os.getppid(), 0, 0)", "reboot(0)"):
        code = (
            f"libc = ctypes.CDLL(None, use_errno=True); failed = libc.{call}; failed and sys.exit(ctypes.get_errno())"
        )
        assert attempt(code, tmp_path) == EPERM, call


def test_it_has_no_capability_but_the_one_for_other_users_files(tmp_path: Path) -> None:
    words = confined.words(["/bin/cat", "/proc/self/status"], read=["/proc/self"])
    # /proc/self is this process's folder, and the program is another one after exec only in name.
    status = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    dac_override = 1 << 1
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(fields[name], 16) & ~dac_override == 0, name
    if os.geteuid() == 0:
        assert int(fields["CapBnd"], 16) == dac_override
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")


def test_what_cannot_be_started_is_a_sentence() -> None:
    done = subprocess.run(confined.words(["/no/such/program"]), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        125, "error: cannot run '/no/such/program': No such file or directory (os error 2)\n"
    )  # fmt: skip


def test_the_reader_of_captures_confines_itself(tmp_path: Path) -> None:
    """It is looked at while it waits for a capture that nobody writes."""
    capture = tmp_path / "capture.pcap"
    os.mkfifo(capture)
    words = [node_binary.path(), "trace", "--out", str(tmp_path / "out"), f"a={capture}"]
    with subprocess.Popen(words, stderr=subprocess.PIPE) as reader:
        try:
            deadline = time.monotonic() + 30
            while "Seccomp:\t2" not in (status := Path(f"/proc/{reader.pid}/status").read_text()):
                assert time.monotonic() < deadline, status
            fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
            assert int(fields["CapPrm"], 16) & ~2 == 0
            assert fields["NoNewPrivs"] == "1"
        finally:
            reader.kill()
