"""Which QUIC programs give the same bytes in each run on Linux in virtual time.

    ./backchannel bench quic-programs [NAME ...] [--install] [--runs N]

Each program that is installed fetches a file of 1 MB in several runs, by its campaign in experiments/programs. A row
has when the last byte was there, the packets at the client, and whether all captures of all runs have the same bytes:
of two runs alone, a program that tosses one coin has them half of the time. Where they have not, it names the first
packet that differs and the files that have the instruction RDRAND, whose numbers no kernel can replace. --install gets
what is absent, into .cache/quic-programs. Programs that no registry has end the table, each with the command that looks
for it and what it says.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis import outputs
from experiments.language.campaign import load
from testbed import commands, node_binary, pcap
from testbed.errors import TestbedError
from testbed.virtual_kernel import kernels
from testbed.virtual_kernel.build import build
from testbed.virtual_kernel.kernels import Kernel
from testbed.virtual_kernel.machine import VirtualMachine

CAMPAIGNS = node_binary.ROOT / "experiments/programs"
#: What `--install` gets.
HOME = node_binary.ROOT / ".cache/quic-programs"
BIN = HOME / "bin"
#: Programs of ours on libraries for which no registry has a server and a client, each a feature.
QUIC_FILE = CAMPAIGNS / "quic_file"
#: ngtcp2 draws so little that two runs of it are often the same.
RUNS = 6
RDRAND = re.compile(r"\trdrand ")


@dataclass(frozen=True)
class ProgramPair:
    """A client and a server of one QUIC implementation."""

    name: str
    #: Of the campaign.
    file: str
    server: str
    client: str
    #: Command line that installs it.
    source: str


PROGRAMS = (
    ProgramPair(
        "ngtcp2", "quic.yaml", "/usr/sbin/gtlsserver", "gtlsclient", "apt-get install ngtcp2-client ngtcp2-server"
    ),
    ProgramPair("quic-go", "quic-go.yaml", "quic-go-server", "quic-go-client", "go install .../quic-go/example"),
    ProgramPair("aioquic", "aioquic.yaml", "aioquic-python", "aioquic-python", "pip install aioquic"),
    ProgramPair("quinn", "quinn.yaml", "quinn-server", "quinn-client", "cargo install quinn --examples"),
    ProgramPair("s2n-quic", "s2n-quic.yaml", "s2n-quic-file", "s2n-quic-file", "cargo install --path .../quic_file"),
    ProgramPair(
        "quiche", "quiche.yaml", "quiche-file", "quiche-file", "cargo install --path .../quic_file, with cmake"
    ),
    ProgramPair(
        "msquic", "msquic.yaml", "msquic-file", "msquic-file", "cargo install --path .../quic_file, with cmake"
    ),
    ProgramPair("picoquic", "picoquic.yaml", "picoquicdemo", "picoquicdemo", "pip download aiopquic, cmake"),
)
#: Programs that no registry had when they were last looked for, each with a command that looks.
SOUGHT = {
    "neqo": ("cargo", "info", "neqo-transport"),
    "lsquic": ("npm", "view", "lsquic", "version"),
    "xquic": ("npm", "view", "xquic", "version"),
    "mvfst": ("apt-cache", "show", "mvfst"),
}


def install(program: ProgramPair) -> None:
    """Gets a program.

    Raises:
        subprocess.CalledProcessError: an installer failed.
        OSError: unknown installer.
    """
    BIN.mkdir(parents=True, exist_ok=True)
    name, cargo = program.name, os.environ.get("CARGO", "cargo")
    if name == "ngtcp2":
        _run("apt-get", "install", "-y", "ngtcp2-client", "ngtcp2-server")
    elif name == "quic-go":
        module = "github.com/quic-go/quic-go/example"
        for package, made, kept in ((module, "example", "server"), (f"{module}/client", "client", "client")):
            _run("go", "install", f"{package}@latest", GOBIN=str(BIN))
            (BIN / made).rename(BIN / f"{name}-{kept}")
    elif name == "aioquic":
        venv.create(HOME / name, with_pip=True)
        python = HOME / name / "bin/python"
        _run(python, "-m", "pip", "install", "--quiet", "aioquic")
        wrapper = BIN / "aioquic-python"
        wrapper.write_text(f'#!/bin/sh\nexec {python} "$@"\n')
        wrapper.chmod(0o755)
    elif name == "quinn":
        _run(cargo, "install", name, "--example", "server", "--example", "client", "--root", HOME / name)
        for role in ("server", "client"):
            shutil.copy(HOME / name / "bin" / role, BIN / f"{name}-{role}")
    elif name == "picoquic":
        _build_picoquic()
    else:
        with tempfile.TemporaryDirectory(prefix="quic-file-") as folder:
            words = (cargo, "install", "--path", QUIC_FILE, "--features", name, "--root", HOME, "--target-dir", folder)
            # s2n-quic's AWS-LC would seed itself by the jitter of the processor's clock too.
            _run(*words, AWS_LC_SYS_NO_JITTER_ENTROPY="1")


def _build_picoquic() -> None:
    """Builds picoquicdemo from picoquic's source, which the source package of aiopquic has with that of picotls."""
    with tempfile.TemporaryDirectory(prefix="picoquic-") as folder:
        place = Path(folder)
        # The package is for newer versions of Python; what is built here does not need them.
        words = ("--quiet", "--no-deps", "--no-binary", "aiopquic", "--ignore-requires-python", "--dest", place)
        _run(sys.executable, "-m", "pip", "download", *words, "aiopquic")
        (package,) = place.glob("aiopquic-*.tar.gz")
        shutil.unpack_archive(package, place)
        (sources,) = place.glob("aiopquic-*/third_party")
        tls, quic = place / "tls", place / "quic"
        parts = ("core", "openssl", "minicrypto", "fusion")
        release = "-DCMAKE_BUILD_TYPE=Release"
        _run("cmake", "-S", sources / "picotls", "-B", tls, release)
        _run("cmake", "--build", tls, "--target", *(f"picotls-{part}" for part in parts))
        settings = [f"-DPTLS_{part.upper()}_LIBRARY={tls}/libpicotls-{part}.a" for part in parts]
        settings.append(f"-DPTLS_INCLUDE_DIR={sources}/picotls/include")
        _run("cmake", "-S", sources / "picoquic", "-B", quic, release, "-Dpicoquic_BUILD_TESTS=OFF", *settings)
        _run("cmake", "--build", quic, "--target", "picoquicdemo")
        shutil.copy(quic / "picoquicdemo", BIN)


def _run(*words: str | Path, **variables: str) -> None:
    subprocess.run(words, env={**os.environ, **variables}, check=True)


def sought(command: Sequence[str]) -> str:
    """What a registry says of a program that it did not have."""
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    lines = (said.stdout if said.returncode == 0 else said.stderr).strip().splitlines()
    # cargo first states what it does.
    lines = [line for line in lines if not line.lstrip().startswith("Updating")]
    return lines[0] if lines else f"exit status {said.returncode}"


def fetched(kernel: Kernel, program: ProgramPair, out: Path) -> tuple[dict[str, bytes], str]:
    """Runs a program's campaign. Returns its captures, and what it states of the download.

    Raises:
        TestbedError: the run failed.
    """
    scenario = load(CAMPAIGNS / program.file, ["backend=virtual-kernel"]).runs[0].scenario
    report = VirtualMachine(kernel).run(scenario, out, lambda progress: None)
    values = {row.metric: row.value for row in outputs.read(out, scenario).rows}
    problems = list(commands.problems(scenario, report, out))
    if problems or values.get("output.size") != 1_000_000:
        raise TestbedError("; ".join(map(str, problems)) or "it fetched another file")
    captures = {path.name: path.read_bytes() for path in sorted((out / "captures").iterdir())}
    return captures, f"{values['output.completion']:.5f} s"


def difference(one: dict[str, bytes], other: dict[str, bytes]) -> str:
    """The first packet that two runs have not in common; "" if there is none."""
    for name, data in one.items():
        packets = zip(pcap.records(data), pcap.records(other[name]), strict=False)
        for number, (first, second) in enumerate(packets, 1):
            if first != second:
                places = [
                    at for at, pair in enumerate(zip(first.data, second.data, strict=False)) if pair[0] != pair[1]
                ]
                shown = ", ".join(map(str, places[:4])) + (", ..." if len(places) > 4 else "")
                return f"packet {number} at {name} ({f'bytes {shown}' if places else 'its time'})"
        if data != other[name]:
            return f"the number of packets at {name}"
    return ""


def with_rdrand(program: ProgramPair) -> list[str]:
    """Files of a program, libraries included, that have the instruction."""
    path = shutil.which(program.server)
    assert path is not None, "the program is installed"
    listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
    files = [path, *re.findall(r"=> (/\S+)", listed)]
    with_instruction = []
    for file in files:
        with subprocess.Popen(["objdump", "-d", "--no-show-raw-insn", file], stdout=subprocess.PIPE, text=True) as dump:
            assert dump.stdout is not None
            if any(RDRAND.search(line) for line in dump.stdout):
                with_instruction.append(Path(file).name)
            dump.kill()
    return with_instruction


def row(kernel: Kernel, program: ProgramPair, runs: int) -> Sequence[str]:
    """What is printed of a program, by its runs."""
    if not (shutil.which(program.server) and shutil.which(program.client)):
        return program.name, "absent", "", "", program.source
    with tempfile.TemporaryDirectory(prefix="quic-programs-") as folder:
        try:
            results = [fetched(kernel, program, Path(folder) / str(number)) for number in range(runs)]
        except TestbedError as error:
            return program.name, "failed", "", "", str(error)
    (one, completed), *others = results
    packets = str(sum(1 for _ in pcap.records(one["right-eth0.pcap"])))
    differs = next(filter(None, (difference(one, other) for other, _ in others)), "")
    if not differs:
        return program.name, "yes", completed, packets, ""
    rdrand = ", ".join(with_rdrand(program)) if shutil.which("objdump") else "(objdump is not installed)"
    return program.name, "no", completed, packets, f"{differs}; RDRAND in {rdrand or 'none of its files'}"


def main() -> int:
    """Prints the table."""
    names = [*(program.name for program in PROGRAMS), *SOUGHT]
    parser = argparse.ArgumentParser(description="QUIC programs several times on Linux in virtual time.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(names)} (default: all)")
    parser.add_argument("--install", action="store_true", help="install those that are absent")
    parser.add_argument("--runs", type=int, default=RUNS, metavar="N", help=f"runs of each (default: {RUNS})")
    asked = parser.parse_args()
    if asked.runs < 2:
        parser.error(f"--runs {asked.runs}: at least 2 can be compared")
    unknown = sorted(set(asked.names) - set(names))
    if unknown:
        parser.error(f"unknown program {unknown[0]}; allowed: {', '.join(names)}")
    os.environ["PATH"] = f"{BIN}:{os.environ['PATH']}"
    reads = [str(HOME), os.environ.get("BACKCHANNEL_VIRTUAL_KERNEL_READS", "")]
    if shutil.which("go"):
        # quic-go's examples read certificates of their source.
        reads.append(
            subprocess.run(["go", "env", "GOMODCACHE"], capture_output=True, text=True, check=True).stdout.strip()
        )
    os.environ["BACKCHANNEL_VIRTUAL_KERNEL_READS"] = ":".join(filter(None, reads))
    kernel = build(kernels.DEFAULT, print)
    form = "{:<10}{:>12}{:>14}{:>10}   {}"
    print(form.format("program", "same bytes", "completion", "packets", "note"))
    for program in PROGRAMS:
        if asked.names and program.name not in asked.names:
            continue
        if asked.install and not (shutil.which(program.server) and shutil.which(program.client)):
            try:
                install(program)
            except (OSError, subprocess.CalledProcessError) as error:
                print(f"{program.name} cannot be installed: {error}", file=sys.stderr)
        print(form.format(*row(kernel, program, asked.runs)).rstrip(), flush=True)
    for name, command in SOUGHT.items():
        if not asked.names or name in asked.names:
            print(form.format(name, "not there", "", "", f"{' '.join(command)}: {sought(command)}"), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
