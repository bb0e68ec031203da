"""What `doctor` says of readings that other machines give."""

from __future__ import annotations

from pathlib import Path

from testbed import doctor

MEMORY = "MemTotal:        8388608 kB\nMemFree: 1 kB\n"
DEBIAN = 'NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 13 (trixie)"\n'
ALL, NONE = "CapEff:\t000001ffffffffff\n", "CapEff:\t0000000000000000\n"


def test_a_machine() -> None:
    found = doctor.machine("aarch64", 1, MEMORY, DEBIAN, "")
    assert (found.works, found.detail) == (True, "aarch64, 1 CPU, 8.6 GB, Debian GNU/Linux 13 (trixie)")
    other = doctor.machine("riscv64", 4, MEMORY, "", "")
    assert (other.works, other.missing) == (False, ("supported are x86_64 and aarch64",))


def test_surroundings() -> None:
    wsl = doctor.surroundings("5.15.167.4-microsoft-standard-WSL2", "flags : fpu hypervisor\n", True)
    assert wsl == " (WSL 2, in a container)"
    assert doctor.surroundings("6.12.0", "flags : fpu hypervisor\n", False) == " (a virtual machine)"
    assert doctor.surroundings("6.12.0", "flags : fpu\n", False) == ""


def test_a_kernel_without_netem_says_what_needs_it() -> None:
    found = doctor.kernel("6.12.0", lambda words: "unknown qdisc" if "netem" in words else None)
    assert (found.works, found.detail) == (False, "Linux 6.12.0 with bridge")
    assert [line.split(",")[0] for line in found.missing] == ["netem"]
    assert doctor.kernel("6.12.0", lambda _: None).missing == ()


def test_without_namespaces_the_kernels_features_are_unknown() -> None:
    found = doctor.kernel("6.12.0", lambda _: "unshare failed: Operation not permitted")
    assert (found.works, found.missing) == (None, ())
    assert "Operation not permitted" in found.detail


def test_rights() -> None:
    assert doctor.rights(1000, ALL).works is None
    assert doctor.rights(0, ALL).works is True
    poor = doctor.rights(0, NONE)
    assert poor.works is False
    assert "CAP_SYS_ADMIN, CAP_NET_ADMIN" in poor.missing[0]


def test_a_clock_is_judged_by_the_99th_percentile_of_sleeps() -> None:
    good = doctor.clock("tsc", True, [0.0001] * 99 + [0.5])
    assert (good.works, good.missing) == (True, ())
    late = doctor.clock("tsc", True, [0.0001] * 98 + [0.003, 0.5])
    assert "sleeps end 3 ms late" in late.detail
    assert [line[:13] for line in late.missing] == ["emulated runs"]
    slow = doctor.clock("acpi_pm", False, [0.0])
    assert [line[:10] for line in slow.missing] == ["reading ac", "real hosts"]


def test_this_machine_answers() -> None:
    assert [found.subject for found in doctor.of_this_machine()] == ["machine", "kernel", "rights", "clock"]
    assert isinstance(doctor.is_synchronised(), bool)


def test_the_launcher_has_the_capabilities_file_that_it_names() -> None:
    assert (Path(doctor.__file__).parent / "container" / "job.yaml").is_file()
