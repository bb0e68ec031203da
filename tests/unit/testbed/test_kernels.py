"""Kernels in virtual time: what identifies one, and what is said when one is missing."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path

import pytest

from testbed import build_cache
from testbed.errors import BadRequest, TestbedError, Unavailable
from testbed.report import Phase, Progress
from testbed.scenario import Scenario
from testbed.virtual_kernel import build, kernels
from testbed.virtual_kernel.machine import NO_SECCOMP, VirtualMachine
from tests.conftest import two_hosts
from tests.support.faults.leftovers import state
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The guest's Python modules, which the first machine compiles."""
    return tmp_path_factory.mktemp("modules")


@pytest.fixture(autouse=True)
def empty_cache(modules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's cache, without kernels."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = build_cache.place("bytecode")
    place.parent.mkdir()
    place.symlink_to(modules)


def test_a_kernel_that_is_not_built_is_reported_with_the_command_that_builds_it() -> None:
    assert kernels.built() == []
    with pytest.raises(Unavailable, match="backchannel kernel build --version 6.12'"):
        kernels.named(kernels.full_name("6.12"))
    with pytest.raises(Unavailable, match="kernel build --source FOLDER --name net-next'"):
        kernels.named("linux-net-next-000000000000")
    with pytest.raises(TestbedError, match="no kernel 'linux-6.12-000000000000'"):
        kernels.named("linux-6.12-000000000000")


def test_a_kernels_name_follows_its_configuration_and_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [kernels.full_name("6.12")]
    *others, last = kernels.PRELOADED
    for path in (kernels.CONFIG, last):
        (tmp_path / path.name).write_text(path.read_text() + "\n# CONFIG_NET_SCH_CAKE is not set\n")
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "CONFIG", tmp_path / kernels.CONFIG.name)
        names.append(kernels.full_name("6.12"))
    monkeypatch.setattr(kernels, "PRELOADED", (*others, tmp_path / last.name))
    assert len({*names, kernels.full_name("6.12")}) == 3


def test_a_users_kernel_is_named_after_what_was_built_and_the_newest_counts(tmp_path: Path) -> None:
    place = build_cache.place("kernels")
    for digest, lacks in (("0123456789ab", ""), ("ba9876543210", "dualpi2\nseccomp\n")):
        folder = place / f"linux-net-next-{digest}"
        folder.mkdir(parents=True)
        (folder / "linux").touch()
        (folder / "release").write_text(f"Linux 7.4.0 sha256:{digest}")
        (folder / "lacks").write_text(lacks)
        kernels.pointer("net-next").unlink(missing_ok=True)
        kernels.pointer("net-next").symlink_to(folder.name)
    assert kernels.names() == ["7.3", "6.12", "6.1", "net-next"]
    assert kernels.full_name("net-next") == "linux-net-next-ba9876543210"
    assert kernels.find("net-next").lacks == {"dualpi2", "seccomp"}
    assert [kernel.name for kernel in kernels.built()] == ["net-next"]
    # Runs on the first can still be repeated.
    assert kernels.named("linux-net-next-0123456789ab").release.endswith("0123456789ab")
    with pytest.raises(TestbedError, match="unknown kernel 'netnext': did you mean 'net-next'"):
        kernels.find("netnext")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (["Failed to initialize management console", "userspace - ptrace set fp regs failed, errno = 14",
          "Kernel panic - not syncing: Attempted to kill init!", "[<60104d70>] ? 0x60104d70"],
         "userspace - ptrace set fp regs failed, errno = 14"),
        (["no memory for this"], "no memory for this"),
        ([], "it said nothing"),
    ],
)  # fmt: skip
def test_why_a_machine_did_not_boot_is_told_and_kept(said: list[str], reason: str, tmp_path: Path) -> None:
    kernel = pretended(tmp_path, *(f"echo '{line}'" for line in said), "exit 134")
    with pytest.raises(TestbedError, match=f"^the virtual kernel ended before its run: {re.escape(reason)}$"):
        VirtualMachine(kernel).run(Scenario.read(two_hosts()), tmp_path / "out", lambda progress: None)
    assert (tmp_path / "out" / "kernel.log").read_text().splitlines() == said


def pretended(folder: Path, *lines: str, name: str = "6.12") -> kernels.Kernel:
    """A shell script in the place of a kernel."""
    kernel = kernels.Kernel(name, folder / "kernel")
    kernel.folder.mkdir()
    kernel.binary.write_text("\n".join(("#!/bin/sh", *lines)))
    kernel.binary.chmod(0o755)
    build_cache.logged(["gcc", "-shared", "-fPIC", "-o", str(kernel.preloaded), *map(str, kernels.PRELOADED)],
                       folder / "log")  # fmt: skip
    return kernel


def test_progress_is_heard_while_a_machine_runs(tmp_path: Path) -> None:
    line = json.dumps(Progress(Phase.RUNNING, 1.5, 3.0).as_json())
    kernel = pretended(tmp_path, "printf 'Linux version '", "echo 6.12", f"echo '{line}'", "sleep 60", "echo end")
    machine, heard = VirtualMachine(kernel), list[Progress]()

    def on_progress(progress: Progress) -> None:
        heard.append(progress)
        machine.kill()

    with pytest.raises(TestbedError, match="Linux version 6.12$"):
        machine.run(Scenario.read(two_hosts()), tmp_path / "out", on_progress)
    assert heard == [Progress(Phase.RUNNING, 1.5, 3.0)]
    assert (tmp_path / "out" / "kernel.log").read_text() == "Linux version 6.12\n"


def test_a_machine_that_is_silent_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.virtual_kernel.machine.SILENT_S", 1.0)
    kernel = pretended(tmp_path, "printf begin", "sleep 60", "echo end")
    with pytest.raises(TestbedError, match="begin$"):
        VirtualMachine(kernel).run(Scenario.read(two_hosts()), tmp_path / "out", lambda progress: None)
    assert (tmp_path / "out" / "kernel.log").read_text() == "begin"


def test_where_the_host_forbids_seccomp_the_kernel_traces(tmp_path: Path) -> None:
    script = (f'case "$*" in *seccomp=on*) echo "{NO_SECCOMP}!" >&2; exit 1;; esac', "echo booted; exit 1")
    kernel = pretended(tmp_path, *script, name="7.3")
    machine = VirtualMachine(kernel)
    with pytest.raises(TestbedError, match="booted"):
        machine.run(Scenario.read(two_hosts()), tmp_path / "out", lambda progress: None)
    assert machine.interception == "ptrace"
    forced = VirtualMachine(kernel, "seccomp")
    with pytest.raises(TestbedError, match="SECCOMP"):
        forced.run(Scenario.read(two_hosts()), tmp_path / "forced", lambda progress: None)
    assert forced.interception == "seccomp"


def test_an_option_that_a_tree_does_not_have_is_named_unless_it_is_optional() -> None:
    wanted = "# A comment\nCONFIG_NET=y\nCONFIG_A=y\nCONFIG_B=y # optional: since then\n# CONFIG_IPV6 is not set\n"
    assert build.lacking_options(wanted, "CONFIG_NET=y\n# CONFIG_A is not set\n") == ["CONFIG_A"]


def test_missing_build_programs_are_named_by_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "testbed.virtual_kernel.build.shutil.which", lambda program: None if program in ("flex", "xz") else program
    )
    with pytest.raises(Unavailable, match="apt-get install flex xz-utils$"):
        build.build("6.12", lambda line: None)


def test_bad_requests_are_one_sentence_and_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="unknown version of Linux '5.4': .* 7.3, 6.12, 6.1; --source"):
        build.build("5.4", print)
    tree = tmp_path / "tree"
    (tree / "arch/um").mkdir(parents=True)
    with pytest.raises(BadRequest, match="is not a source tree of Linux"):
        build.build_own("mine", print, tree=tree)
    (tree / "Makefile").write_text("VERSION = 7\nPATCHLEVEL = 4\nSUBLEVEL = 0\nEXTRAVERSION = -rc2\n")
    assert build.linux_version(tree) == "7.4.0-rc2"
    with pytest.raises(BadRequest, match="'7.4' is not a name for a kernel"):
        build.build_own("7.4", print, tree=tree)
    (tree / ".config").touch()
    with pytest.raises(BadRequest, match="run 'make mrproper' in it first"):
        build.build_own("mine", print, tree=tree)
    assert not build_cache.place("kernels").exists()


def test_another_hz_comes_before_every_other_default() -> None:
    options = 'mainmenu "Linux"\n\nsource "init/Kconfig"\nsource "arch/Kconfig"\n'
    assert build.with_ticks(options, 1000).split("source")[0] == (
        'mainmenu "Linux"\n\nconfig HZ\n\tint\n\tdefault 1000\n\n'
    )
    assert build.with_ticks(options, 1000).endswith('source "init/Kconfig"\nsource "arch/Kconfig"\n')


def test_a_build_that_fails_leaves_the_old_kernel_and_nothing_else(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "arch/um").mkdir(parents=True)
    (tree / "Makefile").write_text("VERSION = 7\nPATCHLEVEL = 4\n%:\n\t@echo this tree is broken; exit 1\n")
    place = build_cache.place("kernels")
    old = place / "linux-mine-000000000000"
    old.mkdir(parents=True)
    kernels.pointer("mine").symlink_to(old.name)
    with pytest.raises(TestbedError, match="full output: .*build-mine.log"):
        build.build_own("mine", print, tree=tree)
    assert {path.name for path in place.iterdir()} == {old.name, "named-mine", "lock-mine", "build-mine.log"}
    assert kernels.pointer("mine").resolve() == old


def test_a_full_disk_is_named_in_place_of_its_consequence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_cache, "FULL_BYTES", 1 << 60)
    with (
        pytest.raises(TestbedError, match="building it filled the disk of .*: make 1 GiB of room"),
        build_cache.scratch(tmp_path, "building it", 1 << 30),
    ):
        raise TestbedError("make failed: Error 1")
    monkeypatch.setattr(build_cache, "FULL_BYTES", 1)
    with (
        pytest.raises(TestbedError, match="needs 1073741824 GiB"),
        build_cache.scratch(tmp_path, "building it", 1 << 60),
    ):
        pass
    assert not list(tmp_path.glob("new-*"))


def test_a_build_that_is_left_ends_with_all_that_it_started(tmp_path: Path) -> None:
    output = build_cache.lines(["sh", "-c", "sleep 300 & echo $!; wait"], tmp_path / "log")
    sleeping = int(next(output))
    assert Path(f"/proc/{sleeping}").exists()
    output.close()
    wait_until(lambda: state(sleeping) in ("", "Z"), "its end")
    assert (tmp_path / "log").read_text() == f"{sleeping}\n"


def test_a_replaced_release_is_reported_and_the_newest_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "apt-cache"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    series = kernels.Series("7.3", "suite", ("7.3.4-1", hashlib.sha256(b"pinned").hexdigest()))

    def package(*offered: str) -> str:
        """What is downloaded from an archive with these versions of packages: "7.3 7.3.4-1"."""
        rows = "\n".join(f"linux-source-{row.split()[0]} | {row.split()[1]} | archive" for row in offered)
        archive.write_text(
            f'#!/bin/sh\nfor package; do :; done\ncase "$*" in *madison*) grep "^$package " <<X\n{rows}\nX\n;;'
            f"*) cut -d\" \" -f1 <<X | sed 's/$/ - Linux/'\n{rows}\nX\n;;esac\n"
        )
        archive.chmod(0o755)
        return build._newest(series, ("apt-get", "-q"))

    assert package("7.2 7.2.9-1", "7.3 7.3.4-1", "7.3 7.3.6-1") == "linux-source-7.3=7.3.4-1"
    assert package("7.3 7.3.6-1", "7.4 7.4.1-1") == "linux-source-7.3"
    assert package("7.2 7.2.9-1", "7.4 7.4.1-1", "7.10 7.10.2-1") == "linux-source-7.10"
    with pytest.raises(TestbedError, match="the suite suite of this machine's Debian archive has no linux-source-7.3"):
        package("7.2 7.2.9-1")

    said: list[str] = []
    deb = tmp_path / "linux-source-7.3.deb"
    deb.write_bytes(b"pinned")
    build._check_pin(series, deb, "7.3.4-1", said.append)
    assert said == []
    build._check_pin(series, deb, "7.3.6-1", said.append)
    assert said == ["Debian's archive has replaced Linux 7.3.4-1; taking 7.3.6-1"]
    deb.write_bytes(b"other")
    with pytest.raises(TestbedError, match="does not have the SHA-256"):
        build._check_pin(series, deb, "7.3.4-1", said.append)
