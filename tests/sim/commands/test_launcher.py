"""The launcher, and its messages where something is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from testbed import node_binary
from tests.support.waiting import HANGS_S

LAUNCHER = node_binary.ROOT / "backchannel"


@pytest.mark.parametrize("path", ["tests/nothing.py", "tests/nothing", "nothing.py::test_a"])
def test_the_suite_refuses_a_file_that_does_not_exist(path: str) -> None:
    """pytest on several processes reports such a file as a part without tests."""
    suite = [str(node_binary.ROOT / "tests/run"), "python", "--", path, "-k", "a.b"]
    done = subprocess.run(suite, capture_output=True, text=True, check=False, timeout=HANGS_S)
    file = path.partition("::")[0]
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"tests/run: file '{file}' does not exist\n")


def test_an_unknown_part_is_answered_with_the_parts() -> None:
    suite = [str(node_binary.ROOT / "tests/run"), "--quik"]
    done = subprocess.run(suite, capture_output=True, text=True, check=False, timeout=HANGS_S)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "tests/run: unknown part '--quik'; the parts are: lint rust unit sim virtual-kernel system real, python, "
        "emulated, --quick, --all, --vm\n"
    )


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A fresh checkout in a folder whose name has a space, and a PATH with basic tools only."""
    root = tmp_path / "a checkout"
    root.mkdir()
    shutil.copy(LAUNCHER, root)
    for name in ("requirements.txt", "Cargo.toml"):
        shutil.copy(node_binary.ROOT / name, root)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "env", "dirname", "readlink", "id", "mkdir", "cmp", "find", "head", "rm", "cp", "touch", "sed",
                 "tail"):  # fmt: skip
        result = shutil.which(name)
        assert result is not None
        (tools / name).symlink_to(result)
    return root


def call(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(root.parent / "bin"), "HOME": str(root)}
    shell = str(root.parent / "bin" / "sh")
    words = (shell, str(root / "backchannel"), *words)
    return subprocess.run(words, capture_output=True, text=True, check=False, env=environment, cwd="/")


def test_unsupported_system_gives_one_message(bare: Path) -> None:
    done = call(bare, "run", "x.yaml")
    assert done.returncode == 3
    assert done.stderr.startswith("backchannel: this system has no apt-get")
    assert len(done.stderr.splitlines()) == 1
    assert not (bare / ".venv").exists()


@pytest.mark.parametrize(
    ("words", "builds_kernel"), [("", True), ("--backend emulated", False), ("--backend=emulated", False)]
)
def test_without_root_and_sudo_the_missing_packages_are_listed(bare: Path, words: str, builds_kernel: bool) -> None:
    tools = bare.parent / "bin"
    for name, text in (("apt-get", "exit 1"), ("apt-cache", "exit 1"), ("id", "echo 1000")):
        (tools / name).unlink(missing_ok=True)
        executable(tools / name, text)
    done = call(bare, "run", "x.yaml", *words.split())
    assert done.returncode == 3
    assert "needs root or sudo" in done.stderr
    assert "mininet" in done.stderr
    assert ("flex" in done.stderr) == builds_kernel


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("test --help", "./backchannel test"),
        ("test lint -h", "./backchannel test"),
        ("build --pgo --help", "usage: ./backchannel build [--pgo]"),
        ("bench --help", "  tap             TCP through two TAP interfaces"),
        ("bench tap --rounds 3 --help", "./backchannel bench tap"),
        ("screenshots --help", "./backchannel screenshots [FOLDER]"),
        ("docs --help", "usage: ./backchannel docs serve [PORT]"),
    ],
)
def test_help_needs_nothing_installed(bare: Path, words: str, says: str) -> None:
    for name in ("grep", "basename", "tr", "cat"):
        (bare.parent / "bin" / name).symlink_to(f"/bin/{name}")
    for file in ("tests/run", "benchmarks/tap.py", "tests/screenshots.py"):
        (bare / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(node_binary.ROOT / file, bare / file)
    before = {path.relative_to(bare) for path in bare.rglob("*")}
    done = call(bare, *words.split())
    assert (done.returncode, done.stderr) == (0, "")
    assert says in done.stdout
    assert {path.relative_to(bare) for path in bare.rglob("*")} - before == {Path(".cache")}


def test_words_after_two_hyphens_ask_for_no_help_of_the_launcher(bare: Path) -> None:
    assert call(bare, "test", "--", "--help").returncode == 3


@pytest.mark.parametrize(
    ("versions", "chosen"),
    [
        ({"python3.13": (3, 13), "python3.12": (3, 12), "python3": (3, 11)}, "python3.13"),
        ({"python3.12": (3, 12), "python3": (3, 11)}, "python3.12"),
        ({"python3.13": None, "python3": (3, 11)}, "python3"),  # without venv, or a version manager's empty wrapper
    ],
)
def test_the_newest_python_is_taken(bare: Path, versions: dict[str, tuple[int, int] | None], chosen: str) -> None:
    tools = bare.parent / "bin"
    for name in ("mnexec", "tcpdump", "ip", "ethtool", "ifconfig", "ping", "ssh", "cc", "ld"):
        (tools / name).symlink_to("/bin/true")
    executable(tools / "cargo", "echo 'cargo 1.95.0 (x)'")
    for name, version in versions.items():
        # Answers the launcher's question, and writes down that it was asked for an environment.
        answer = "exit 1" if version is None else f"echo Python {version[0]}.{version[1]}.0"
        executable(tools / name, f'[ "$2" = venv ] && echo "{name}" >"{bare}/chosen"\n{answer}')
    call(bare, "list")
    assert (bare / "chosen").read_text().strip() == chosen


@pytest.fixture
def builder(bare: Path) -> Path:
    """The checkout with a compiler of LLVM 22, an environment and a cargo that write down what they are asked for."""
    tools = bare.parent / "bin"
    for name in ("cc", "ld", "true", "cp", "mv", "cat", "ln"):
        (tools / name).unlink(missing_ok=True)
        (tools / name).symlink_to("/bin/true" if name in ("cc", "ld") else f"/bin/{name}")
    environment = bare / ".venv"
    (environment / "bin").mkdir(parents=True)
    # Mininet is linked into it where the machine has it.
    (environment / "lib/python3.13/site-packages").mkdir(parents=True)
    (environment / ".made").touch()
    shutil.copy(bare / "requirements.txt", environment / "requirements.txt.installed")
    programs = {
        tools / "cargo": f"""
            [ "$1" != --version ] || {{ echo "cargo 1.95.0 (x)"; exit 0; }}
            echo "cargo $CARGO_ENCODED_RUSTFLAGS" >>"{bare}/asked"
            mkdir -p "{bare}/target/pgo/$8/release"
            echo "$CARGO_ENCODED_RUSTFLAGS" >"{bare}/target/pgo/$8/release/backchannel-node"
            """,
        tools / "rustc": f"""
            [ "$1" != -vV ] || {{ echo "host: x86_64-test"; echo "LLVM version: 22.1.2"; exit 0; }}
            echo "{bare}/sysroot"
            """,
        environment / "bin/python": f"""
            echo "python $(cat "$BACKCHANNEL_NODE")" >>"{bare}/asked"
            : >"{bare}/target/pgo/profiles/1.profraw"
            """,
    }
    for path, text in programs.items():
        executable(path, text)
    return bare


def executable(path: Path, text: str) -> None:
    """A program of the shell in the bare PATH."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_pip_and_cargo_work_side_by_side(builder: Path) -> None:
    """Each waits until the other has begun."""
    (builder / ".venv/requirements.txt.installed").unlink()
    tools, environment = builder.parent / "bin", builder / ".venv/bin"
    for tool in ("sleep", "nice"):
        (tools / tool).symlink_to(f"/usr/bin/{tool}")
    meet = """
        : >"{root}/{mine}"
        for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
            [ ! -e "{root}/{other}" ] || break
            sleep 1
        done
        [ -e "{root}/{other}" ] || exit 1
        """
    pip = meet.format(root=builder, mine="pip", other="cargo")
    executable(environment / "python", f'[ "$2" = pip ] || {{ echo "ran $*"; exit 0; }}\n{pip}')
    version = '[ "$1" != --version ] || { echo "cargo 1.95.0 (x)"; exit 0; }\n'
    made = "mkdir -p target/release\n: >target/release/backchannel-node"
    executable(tools / "cargo", version + meet.format(root=builder, mine="cargo", other="pip") + made)
    done = call(builder, "list")
    assert (done.returncode, done.stdout) == (0, "ran -m experiments list\n"), done.stderr
    # The environment's failure is the command's.
    (builder / ".venv/requirements.txt.installed").unlink()
    (builder / "target/release/backchannel-node").unlink()
    executable(environment / "python", "exit 1")
    done = call(builder, "list")
    assert (done.returncode, "cannot install the Python packages" in done.stderr) == (3, True)


def test_of_two_commands_in_a_fresh_checkout_one_makes_the_environment(builder: Path) -> None:
    shutil.rmtree(builder / ".venv")
    tools = builder.parent / "bin"
    for tool in ("sleep", "flock", "nice"):
        (tools / tool).symlink_to(f"/usr/bin/{tool}")
    (builder / "target/release").mkdir(parents=True)
    executable(builder / "target/release/backchannel-node", "")
    for name in ("mnexec", "tcpdump", "ip", "ethtool", "ifconfig", "ping", "ssh"):
        (tools / name).symlink_to("/bin/true")
    inside = f"""
        [ "$2" = pip ] || {{ echo "ran $*"; exit 0; }}
        echo begins >>"{builder}/pip"
        sleep 2
        echo ends >>"{builder}/pip"
        """
    executable(builder / "inside", inside)
    make = f"""
        [ "$2" = venv ] || {{ echo "Python 3.13.0"; exit 0; }}
        sleep 1
        mkdir -p "$3/bin" "$3/lib/python3.13/site-packages"
        cp "{builder}/inside" "$3/bin/python"
        """
    executable(tools / "python3.13", make)
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: call(builder, "list"), range(2)))
    assert [(done.returncode, done.stdout) for done in both] == [(0, "ran -m experiments list\n")] * 2, both
    assert (builder / "pip").read_text() == "begins\nends\n"
    assert sum("another command is installing Python packages" in done.stderr for done in both) == 1


def test_a_profile_guided_build_counts_then_trains_then_optimises(builder: Path) -> None:
    profdata = builder / "sysroot/lib/rustlib/x86_64-unknown-linux-gnu/bin/llvm-profdata"
    executable(profdata, f'echo "profdata $1 $4" >>"{builder}/asked"')
    done = call(builder, "build", "--pgo")
    assert done.returncode == 0, done.stderr
    pgo = builder / "target/pgo"
    counting, optimised = f"-Cprofile-generate={pgo}/profiles", f"-Cprofile-use={pgo}/profile"
    steps = [
        f"cargo {counting}",
        f"python {counting}",
        f"profdata merge {pgo}/profiles/1.profraw",
        f"cargo {optimised}",
    ]
    assert (builder / "asked").read_text().splitlines() == steps
    assert (builder / "target/release/backchannel-node").read_text() == f"{optimised}\n"


def test_a_profile_guided_build_needs_the_compilers_profdata(builder: Path) -> None:
    executable(builder.parent / "bin/rustc", "echo LLVM version: 99.0")
    executable(builder.parent / "bin/apt-cache", "exit 1")
    done = call(builder, "build", "--pgo")
    assert done.returncode == 3
    assert "needs llvm-profdata of LLVM 99" in done.stderr
    assert not (builder / "asked").exists()


def test_mininet_of_the_distribution_is_the_only_one_in_the_environment() -> None:
    import mininet

    site = Path(sysconfig.get_paths()["purelib"])
    assert (site / "mininet").is_symlink()
    assert Path(mininet.__file__).resolve() == Path("/usr/lib/python3/dist-packages/mininet/__init__.py")
    assert not [path for path in sys.path if path.startswith("/usr/lib/python3/dist-packages")]


def test_without_network_one_message_is_given(bare: Path) -> None:
    tools = bare.parent / "bin"
    for name in ("apt-get", "apt-cache"):
        executable(tools / name, "exit 1")
    if os.geteuid() != 0:
        executable(tools / "sudo", 'exec "$@"')
    done = call(bare, "run", "x.yaml")
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == "backchannel: cannot update the package lists; check the network connection"


def test_runs_from_any_directory_and_through_a_link(tmp_path: Path) -> None:
    link = tmp_path / "bc"
    link.symlink_to(LAUNCHER)
    done = subprocess.run([str(link), "list", "policies"], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "ack-filtering" in done.stdout


def test_completion() -> None:
    shell = {"COMP_WORDS": "backchannel cal", "COMP_CWORD": "1", "_BACKCHANNEL_COMPLETE": "complete_bash"}
    done = subprocess.run([str(LAUNCHER)], capture_output=True, text=True, check=True, env={**os.environ, **shell})
    assert done.stdout.split() == ["calibrate"]


def test_version_is_release_and_commit() -> None:
    words = [sys.executable, "-m", "experiments", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"backchannel \d+\.\d+\.\d+(, commit [0-9a-f]{10,})?\n", done.stdout)


def test_help_has_one_line_per_command() -> None:
    words = [sys.executable, "-m", "experiments", "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    groups = done.stdout.split("Run:\n")[1].split("\n\n  Development")[0]
    lines = [line for line in groups.splitlines() if line.startswith("  ")]
    assert len(lines) >= 21
    assert not [line for line in lines if line.endswith("...")]


def test_every_benchmark_can_be_called() -> None:
    files = [path for path in (node_binary.ROOT / "benchmarks").glob("*.py") if "__main__" in path.read_text()]
    programs = {path.stem.replace("_", "-") for path in files}
    done = subprocess.run([str(LAUNCHER), "bench"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert set(done.stderr.split()[-1].split("|")) == programs
