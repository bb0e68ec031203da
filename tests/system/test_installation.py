"""The wheels in an environment of their own: an ordinary user, no checkout or compiler, other packages of our names."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from testbed.node_binary import ROOT
from testbed.virtual_kernel import kernels
from tests.support.command_line import backchannel
from tests.support.free_ports import free_ports
from tests.support.podman import settings
from tests.support.waiting import HANGS_S, wait_until

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.shares_cpu,
    pytest.mark.slow(reason="builds wheels, and installs them with what they need from the network"),
]
NOBODY = 65534
#: A user id that nobody has.
USER = 47_111
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
#: Programs that no installation may need.
COMPILERS = re.compile(r"(.*-)?(gcc|g\+\+|cc|c\+\+|c89|c99|cpp|clang|ld|as|make|cargo|rustc)(-?[\d.]+)?|.*\.(gold|bfd)")
#: The user's programs start here: the checkout, its caches and root's home are not there.
WITHOUT = f"""
for hidden in {ROOT} /root; do mount -t tmpfs none "$hidden"; done
exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups env -i "$@"
"""
QUICKSTART = ("quickstart", "--set", "stack=newreno", "--set", "repetitions=1", "--json")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    for what in ("wheel", "kernel"):
        subprocess.run([ROOT / "distribution" / "build", what, folder], check=True, capture_output=True, timeout=3600)
    return folder


class User:
    """An ordinary user whose home has an environment with the wheels."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.python = home / "venv" / "bin" / "python"

    def install(self, *packages: str | Path) -> None:
        """Installs packages by pip."""
        words = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "--quiet", *map(str, packages)]
        subprocess.run(words, check=True, timeout=600)

    def run(self, *words: str | Path, paths: Sequence[Path] = ()) -> subprocess.CompletedProcess[str]:
        """Runs a command of the environment, with its programs and those of `paths` alone."""
        path = os.pathsep.join(str(place) for place in (self.python.parent, *paths))
        return subprocess.run(
            ["unshare", "--mount", "sh", "-ec", WITHOUT, "sh", f"HOME={self.home}", f"PATH={path}", *map(str, words)],
            cwd=self.home, capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip


@pytest.fixture(scope="module")
def user(wheels: Path) -> Iterator[User]:
    # Not in pytest's folder, which other users cannot enter.
    with TemporaryDirectory(prefix="bc-home-") as folder:
        yield _user(Path(folder), wheels)


def _user(home: Path, wheels: Path) -> User:
    # Debian's, because others may be in root's home.
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", home / "venv"], check=True)
    made = User(home)
    made.install(*sorted(wheels.glob("*.whl")))
    home.chmod(0o755)
    shutil.chown(home, NOBODY, NOBODY)
    return made


@pytest.fixture(scope="module")
def programs(user: User) -> Path:
    """The machine's programs without compilers."""
    folder = user.home / "programs"
    folder.mkdir()
    for program in Path("/usr/bin").iterdir():
        if COMPILERS.fullmatch(program.name) is None:
            (folder / program.name).symlink_to(program)
    assert shutil.which("gcc", path=str(folder)) is None
    return folder


def ids(plan: str) -> list[str]:
    """The ids of the runs that `plan --json` shows."""
    return [run["id"] for run in json.loads(plan)["runs"]]


def test_a_simulated_campaign_has_the_ids_and_values_of_a_checkout(user: User, tmp_path: Path) -> None:
    there = user.run("backchannel", "run", *QUICKSTART, "--backend", "sim", "--results", "sim")
    assert there.returncode == 0, there.stderr
    here = backchannel("run", *QUICKSTART, "--backend", "sim", "--results", tmp_path)
    mine, checkouts = json.loads(there.stdout), json.loads(here.stdout)
    assert mine["campaign"] == checkouts["campaign"]
    assert mine["points"] == checkouts["points"]
    assert len(mine["points"]) == 4


def test_linux_in_virtual_time_needs_no_compiler(user: User, programs: Path) -> None:
    """The kernel is the package's, and the run's id that of the kernel that a checkout builds."""
    one = ("--set", "network.reverse.queue.policy=droptail", "--set", "duration=7 s", "--set", "stack=reno")
    words = (
        "quickstart",
        "--set",
        "repetitions=1",
        *one,
        "--backend",
        "virtual-kernel",
        "--json",
        "--results",
        "kernel",
    )
    done = user.run("backchannel", "run", *words, paths=[programs])
    assert done.returncode == 0, done.stderr
    planned = user.run("backchannel", "plan", *words, paths=[programs])
    assert ids(planned.stdout) == ids(backchannel("plan", *words).stdout)
    (kernel,) = [row for row in json.loads(user.run("backchannel", "kernel", "list", "--json").stdout) if row["built"]]
    assert kernel["release"] == kernels.find(kernels.DEFAULT).release
    assert list((user.home / ".cache" / "backchannel").glob("kernels/linux-*")) == []


def test_the_kernels_package_has_its_licence_and_source_offer(user: User) -> None:
    packages = user.python.parents[1] / "lib"
    (licence,) = packages.rglob("backchannel_kernel-*.dist-info/licenses/GPL-2.0.txt")
    assert "GNU GENERAL PUBLIC LICENSE" in licence.read_text()
    (offer,) = packages.rglob("backchannel_kernel/README.md")
    assert "complete corresponding source" in offer.read_text()
    (mine,) = packages.rglob("backchannel-*.dist-info/METADATA")
    assert "License-Expression: MIT" in mine.read_text()


def test_packages_with_our_folders_names_work_beside_it(user: User) -> None:
    """Of top-level names the wheels add two."""
    names = {path.name for path in user.python.parents[1].rglob("site-packages/*")}
    assert not names & {"agents", "analysis", "experiments", "testbed", "web"}
    assert {name for name in names if "backchannel" in name and "dist-info" not in name} == {
        "backchannel",
        "backchannel_kernel",
    }
    user.install("openai-agents", "web.py")
    assert user.run("backchannel", "run", *QUICKSTART, "--backend", "sim", "--results", "sim").returncode == 0
    code = (
        "import agents, web, backchannel\n"
        "from backchannel.web import app\n"
        "from backchannel.agents import qdiscs\n"
        "assert agents.Agent(name='a').name == 'a' and web.application(('/', 'x')) and app.create_app\n"
        "with backchannel.open('sim') as s: print(s['quickstart'].means().height)\n"
    )
    done = user.run("python", "-c", code)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


def test_the_handle_is_typed(user: User) -> None:
    words = [sys.executable, "-m", "mypy", "--python-executable", str(user.python), "--strict", "-c"]
    code = "import backchannel\nreveal_type(backchannel.open('x')['a'].means())\nbackchannel.open(3)\n"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([*words, code], capture_output=True, text=True, check=False, cwd=user.home, env=environment)
    assert 'Revealed type is "polars.dataframe.frame.DataFrame"' in done.stdout, done.stdout
    assert 'error: Argument 1 to "open" has incompatible type "int"' in done.stdout


def test_commands_of_a_checkout_say_so(user: User) -> None:
    done = user.run("backchannel", "test")
    assert (done.returncode, done.stdout) == (2, "")
    assert "needs a checkout" in done.stderr


@pytest.fixture(scope="module")
def deb(wheels: Path) -> Path:
    """The Debian package."""
    subprocess.run([ROOT / "distribution" / "build", "deb", wheels], check=True, capture_output=True, timeout=3600)
    (package,) = wheels.glob("*.deb")
    return package


@pytest.fixture(scope="module")
def unpacked(deb: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the Debian package."""
    folder = tmp_path_factory.mktemp("unpacked")
    subprocess.run(["dpkg-deb", "-x", deb, folder], check=True)
    fields = subprocess.run(["dpkg-deb", "-f", deb], check=True, capture_output=True, text=True).stdout
    for needed in ("mininet", "tcpdump", "tshark"):
        assert re.search(rf"^Depends: .*\b{needed}\b", fields, re.MULTILINE), fields
    return folder


def in_place(unpacked: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs a command where the package has its files and the checkout is not."""
    script = f"""
mkdir -p /opt/backchannel && mount --bind {unpacked}/opt/backchannel /opt/backchannel
mount -t tmpfs none {ROOT}
cd /tmp && exec env -i PATH=/usr/bin:/bin HOME=/tmp "$@"
"""
    return subprocess.run(
        ["unshare", "--mount", "sh", "-ec", f"mount -t tmpfs none /opt\n{script}", "sh", *words],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip


def test_the_debian_packages_command_and_units_start(unpacked: Path, tmp_path: Path) -> None:
    link = unpacked / "usr/bin/backchannel"
    assert link.readlink() == Path("/opt/backchannel/bin/backchannel")
    done = in_place(unpacked, str(link.readlink()), "plan", "quickstart", "--backend", "virtual-kernel", "--json")
    assert done.returncode == 0, done.stderr
    assert ids(done.stdout) == ids(backchannel("plan", "quickstart", "--backend", "virtual-kernel", "--json").stdout)
    listed = json.loads(in_place(unpacked, str(link.readlink()), "kernel", "list", "--json").stdout)
    assert any(row["built"] for row in listed)
    units = sorted((unpacked / "lib/systemd/system").glob("*.service"))
    assert [unit.stem for unit in units] == [f"backchannel-{name}" for name in ("runner", "site", "worker")]
    defaults = (unpacked / "etc/default/backchannel").read_text()
    for unit in units:
        (start,) = re.findall(r"^ExecStart=/usr/bin/backchannel (.*) \$(\w+)$", unit.read_text(), re.MULTILINE)
        assert f"\n{start[1]}=\n" in defaults
        done = in_place(unpacked, str(link.readlink()), *start[0].split(), "--help")
        assert (done.returncode, f"Usage: backchannel {start[0]}" in done.stdout) == (0, True), done.stderr
        # The command is not installed here, and systemd looks for it.
        (tmp_path / unit.name).write_text(unit.read_text().replace("/usr/bin/backchannel", "/bin/true"))
    words: list[str | Path] = ["systemd-analyze", "verify", "--man=no", *tmp_path.glob("*.service")]
    verified = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (verified.returncode, [line for line in verified.stderr.splitlines() if "backchannel" in line]) == (0, [])


@pytest.fixture(scope="module")
def image(deb: Path) -> Path:
    """The OCI image, as an archive."""
    subprocess.run([ROOT / "distribution" / "build", "oci", deb.parent], check=True, capture_output=True, timeout=3600)
    (archive,) = deb.parent.glob("*.oci.tar")
    return archive


#: Starts a program as a user who has subordinate ids, in namespaces that end with it. The shell stays their first
#: process: a change of user clears the signal by which the end of unshare is its end.
AS_A_USER_WITH_IDS = f"""
for file in passwd subuid subgid; do mount --bind "$1/$file" /etc/$file; done
mount -t tmpfs none {ROOT}
setpriv --reuid {USER} --regid {USER} --clear-groups env -i HOME="$1" XDG_RUNTIME_DIR="$1" \\
    CONTAINERS_CONF="$1/containers.conf" PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -euc "$2"
exit
"""


@pytest.fixture
def account() -> Iterator[Path]:
    """Home of that user, who is in no file of this machine."""
    # Not in pytest's folder, which other users cannot enter.
    with TemporaryDirectory(prefix="bc-home-") as folder:
        home = Path(folder)
        (home / "passwd").write_text(f"{Path('/etc/passwd').read_text()}visitor:x:{USER}:{USER}::{home}:/bin/sh\n")
        for name in ("subuid", "subgid"):
            (home / name).write_text("visitor:500000:65536\n")
        settings(home)
        home.chmod(0o755)
        shutil.chown(home, USER, USER)
        yield home


def test_one_command_starts_site_and_runner_of_the_image_without_root(image: Path, account: Path) -> None:
    site_and_runner = configuration(image)
    assert (site_and_runner["Entrypoint"], site_and_runner["Cmd"]) == (["backchannel"], ["serve", "--with-runner"])
    (port,) = free_ports(1)
    archive = account / "image.tar"
    shutil.copy(image, archive)
    archive.chmod(0o644)
    # On the machine's network, because a network of its own would need /dev/net/tun for users.
    command = (
        "podman --log-level=error load --quiet --input $HOME/image.tar && "
        f"exec podman --log-level=error --runtime runc run --rm --network host backchannel:{VERSION} "
        f"serve --with-runner --port {port}"
    )
    words = ["unshare", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child"]
    # Podman enters its working directory again, and the user may not enter pytest's folder.
    in_its_home: list[str | Path] = [*words, "sh", "-euc", AS_A_USER_WITH_IDS, "sh", account, command]
    with subprocess.Popen(in_its_home, cwd=account) as started:
        try:
            asked = {
                "text": (ROOT / "experiments/quickstart.yaml").read_text(), "file": "quickstart.yaml",
                "overrides": ["backend=sim", "stack=newreno", "repetitions=1"],
            }  # fmt: skip
            wait_until(lambda: started.poll() is not None or get(port, "/metrics"), "the site", 600.0)
            assert json.loads(get(port, "/api/requests", asked))["runs"] == 4
            wait_until(lambda: 'backchannel_requests{state="done"} 1' in get(port, "/metrics"), "the runner", 600.0)
            assert 'backchannel_runs{state="valid"} 4' in get(port, "/metrics")
        finally:
            started.kill()
    wait_until(lambda: not get(port, "/metrics"), "the end of the site", HANGS_S)


def configuration(image: Path) -> dict[str, Any]:
    """The configuration of an image's containers."""
    with tarfile.open(image) as archive:

        def read(name: str) -> Any:
            file = archive.extractfile(f"./{name}")
            assert file is not None
            return json.load(file)

        def blob(description: dict[str, str]) -> Any:
            return read(f"blobs/{description['digest'].replace(':', '/')}")

        (manifest,) = read("index.json")["manifests"]
        return dict(blob(blob(manifest)["config"])["config"])


def get(port: int, path: str, asked: object = None) -> str:
    """An answer of the site; "" where nothing answers yet."""
    body = None if asked is None else json.dumps(asked).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=HANGS_S) as answer:
            return str(answer.read().decode())
    except ConnectionError:
        return ""
    except urllib.error.URLError as error:
        if isinstance(error.reason, ConnectionError):
            return ""
        raise
