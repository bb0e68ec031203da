"""The wheel for arm64 under qemu-user: simulations with this machine's packets, imports, analysis and the site.

Programs of arm64 are known in a user namespace of their own, which the kernel has since Linux 6.7; this machine's list
of formats stays as it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from testbed.node_binary import ROOT
from tests.support.command_line import backchannel
from tests.support.free_ports import free_ports

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.shares_cpu,
    pytest.mark.slow(reason="builds the node binary for arm64, and runs Python in an emulator"),
]
#: Of Debian, with the Python of its series.
SUITE, PYTHON = "bookworm", "3.11"
#: What a program of arm64 starts with, and which of these bits count (linux/Documentation/admin-guide/binfmt-misc.rst).
MAGIC = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
MASK = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
#: F: the emulator is opened now, so that it need not be in the new root.
INSIDE = f"""
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
printf '%s' ':arm64:M::{MAGIC}:{MASK}:/usr/bin/qemu-aarch64-static:F' >/proc/sys/fs/binfmt_misc/register
mount --rbind /dev "$1/dev"
mount --rbind /proc "$1/proc"
exec chroot "$@"
"""
#: What draws numbers or computes roots: losses, RED, web traffic, CUBIC.
CAMPAIGN = """
name: random
backend: sim
network:
  topology: line
  forward:
    rate: 2 Mbit/s
    delay: 30 ms
    queue: {policy: red, limit: 30 packets}
    errors: [{model: exponential, mean: 300 kB}]
  reverse: {rate: 128 kbit/s, delay: 30 ms}
stack: newreno
sweep: {stack: [newreno, modern]}
workload:
  - {name: bulk, from: left, to: right}
  - {name: pages, kind: web, from: left, to: right}
duration: 20 s
"""
#: Words before those of a command there.
COMMAND = ("python3", "-m", "backchannel")


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A root of Debian for arm64 with the wheel and what it needs."""
    dist = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [ROOT / "distribution" / "build", "wheel", dist], check=True, capture_output=True, timeout=7200,
        env={**os.environ, "BACKCHANNEL_WHEEL_MACHINE": "aarch64"},
    )  # fmt: skip
    (wheel,) = dist.glob("*_aarch64.whl")
    with TemporaryDirectory(prefix="arm64-") as folder:
        yield filled(Path(folder) / "root", wheel)


def filled(root: Path, wheel: Path) -> Path:
    """The packages are only unpacked: nothing of them needs to be set up."""
    subprocess.run(
        ["mmdebstrap", "--quiet", "--variant=extract", "--architectures=arm64",
         "--include=python3,libstdc++6,zlib1g,coreutils,dash", SUITE, root],
        check=True, timeout=1800,
    )  # fmt: skip
    for name in ("proc", "dev", "tmp", "root"):
        (root / name).mkdir(exist_ok=True)
    packages = root / "usr/lib/python3/dist-packages"
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    words += ["--python-version", PYTHON, "--implementation", "cp", "--only-binary=:all:", "--target", str(packages)]
    words += [word for glibc in (17, 28, 34) for word in ("--platform", f"manylinux_2_{glibc}_aarch64")]
    subprocess.run([*words, "--platform", "manylinux2014_aarch64", wheel], check=True, timeout=1800)
    return root


def inside(system: Path, *words: str | Path) -> list[str | Path]:
    """A command in that system, whose user is root of a user namespace alone."""
    return [
        "unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
        "sh", "-euc", INSIDE, "sh", system, "/usr/bin/env", "-i", "HOME=/root", "PATH=/usr/bin:/bin", *words,
    ]  # fmt: skip


def run(system: Path, *words: str | Path) -> str:
    """What a command prints there."""
    done = subprocess.run(inside(system, *words), capture_output=True, text=True, check=False, timeout=3600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of this machine."""
    folder = tmp_path_factory.mktemp("here")
    (folder / "random.yaml").write_text(CAMPAIGN)
    backchannel("run", folder / "random.yaml", "--results", folder / "results", status=0)
    return folder / "results"


@pytest.fixture(scope="module")
def there(system: Path) -> Path:
    """Those of the other."""
    (system / "root/random.yaml").write_text(CAMPAIGN)
    run(system, *COMMAND, "run", "/root/random.yaml", "--results", "/root/results")
    return system / "root/results"


def written(results: Path) -> dict[str, str]:
    """Digests of what the simulator wrote, by its name in the results: packets, telemetry, applications."""
    kinds = ("captures", "telemetry", "applications")
    files = [path for kind in kinds for path in (results / "runs").glob(f"*/*/{kind}/*")]
    return {str(path.relative_to(results)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def means(text: str) -> dict[tuple[str, str, str], float]:
    """Means by parameters, flow and metric, from what `results --json` prints."""
    return {
        (json.dumps(point["parameters"]), metric["subject"], metric["name"]): metric["mean"]
        for point in json.loads(text)["points"]
        for metric in point["metrics"]
    }


def test_simulations_write_what_they_write_on_this_machine(system: Path, here: Path, there: Path) -> None:
    assert run(system, "uname", "-m") == "aarch64\n"
    assert len(written(here)) > 10
    assert written(there) == written(here)


def test_analysis_gives_this_machines_values(system: Path, here: Path, there: Path) -> None:
    mine = means(backchannel("results", "random", "--json", "--results", here).stdout)
    others = means(run(system, *COMMAND, "results", "random", "--json", "--results", "/root/results"))
    assert len(mine) > 50
    # Sums of vectors depend on the processor's width.
    assert others == pytest.approx(mine, rel=1e-9, nan_ok=True)


def test_a_capture_is_imported(system: Path, here: Path) -> None:
    capture = next(here.glob("runs/*/*/captures/left-eth0.pcap.gz"))
    shutil.copy(capture, system / "root/left-eth0.pcap.gz")
    backchannel("import", capture, "--results", here.parent / "imports")
    run(system, *COMMAND, "import", "/root/left-eth0.pcap.gz", "--results", "/root/imports")
    words = ("results", "imports", "--json", "--results")
    mine = means(backchannel(*words, here.parent / "imports").stdout)
    assert len(mine) > 10
    assert means(run(system, *COMMAND, *words, "/root/imports")) == pytest.approx(mine, rel=1e-9, nan_ok=True)


def test_the_site_shows_runs(system: Path, there: Path) -> None:
    (port,) = free_ports(1)
    words = inside(system, *COMMAND, "serve", "--port", str(port), "--results", "/root/results")
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as site:
        try:
            assert site.stdout is not None
            assert f"http://127.0.0.1:{port}/" in site.stdout.readline()
            run_id = next(there.glob("runs/*/*")).name
            for path in ("/", f"/runs/{run_id}"):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=600) as page:
                    assert b"random" in page.read()
        finally:
            site.kill()
