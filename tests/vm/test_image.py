"""The container image: built from this checkout, and run as the pod of the Kubernetes manifest.

Slow, so by name only: ./backchannel test --vm. There is no registry of images here: Debian's image is unpacked from
its packages, and Podman plays the pod in place of a cluster.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed import node_binary
from tests.support.ansible_lab import write_yaml
from tests.support.podman import settings
from tests.system.test_container import CAMPAIGN, CONTAINER, pod

pytestmark = [pytest.mark.emulated, pytest.mark.vm]

NAME = "backchannel-test"
#: Of this machine, for the packages that the build installs.
SETTINGS = ("/etc/apt/sources.list.d", "/etc/apt/apt.conf.d", "/etc/ssl/certs", "/etc/pip.conf", "/opt/wheels")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
BUILD_S = 3600


def call(*words: str, **options: Any) -> str:
    """Runs a program and returns what it printed; a failure shows it."""
    options = {"timeout": 600, **options}
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        **options,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    return str(done.stdout)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Name of the built image."""
    base = tmp_path_factory.mktemp("image") / "base.tar"
    call("mmdebstrap", "--quiet", "--variant=minbase", "--include=ca-certificates", "bookworm", str(base))
    call("podman", "import", "--quiet", str(base), f"localhost/{NAME}:base")
    base.unlink()
    words = ["buildah", "build", "--network", "host", "--isolation", "chroot", "--pull-never"]
    words += [word for path in SETTINGS if Path(path).exists() for word in ("--volume", f"{path}:{path}:ro")]
    if CERTIFICATES.exists():
        words += ["--env", f"PIP_CERT={CERTIFICATES}", "--env", f"CARGO_HTTP_CAINFO={CERTIFICATES}"]
    text = (CONTAINER / "Containerfile").read_text()
    assert text.count("FROM debian:bookworm-slim") == 2
    file = base.with_name("Containerfile")
    file.write_text(text.replace("debian:bookworm-slim", f"localhost/{NAME}:base"))
    call(*words, "--tag", NAME, "--file", str(file), str(node_binary.ROOT), timeout=BUILD_S)
    yield f"localhost/{NAME}:latest"
    for name in (f"localhost/{NAME}:latest", f"localhost/{NAME}:base"):
        call("podman", "rmi", "--force", name)


def test_the_pod_of_the_manifest_makes_its_runs(image: str, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results/contained.yaml").write_text(CAMPAIGN)
    spec = pod()
    (container,) = spec["containers"]
    assert container["args"][:1] == ["run"]
    container["image"] = image
    container["args"] = ["run", "/results/contained.yaml", *container["args"][2:], "--attempts", "20"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    del volumes["results"]["persistentVolumeClaim"]
    volumes["results"]["hostPath"] = {"path": str(tmp_path / "results"), "type": "Directory"}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": NAME}, "spec": spec}
    file = write_yaml(tmp_path / "pod.yaml", manifest)
    podman = ["podman", "--runtime", "runc"]
    environment = {**os.environ, "CONTAINERS_CONF": str(settings(tmp_path))}
    try:
        # A network would be this machine's; cells have their own.
        call(*podman, "kube", "play", "--network", "none", str(file), env=environment)
        status = call(*podman, "wait", f"{NAME}-campaign", env=environment).split()[-1]
        output = call(*podman, "logs", f"{NAME}-campaign", env=environment)
    finally:
        call(*podman, "pod", "rm", "--force", "--ignore", NAME, env=environment)
    assert status == "0", output
    assert "2 runs made" in output
    assert len(list((tmp_path / "results/runs").rglob("manifest.json"))) == 2
