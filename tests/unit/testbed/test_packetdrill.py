"""Which scripts of packetdrill run, by which program, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import BadRequest, Unavailable
from testbed.virtual_kernel import packetdrill
from testbed.virtual_kernel.packetdrill import Version


def made(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_folders_stand_for_their_scripts(tmp_path: Path) -> None:
    one, two = made(tmp_path / "tcp/b/two.pkt"), made(tmp_path / "tcp/a/one.pkt")
    made(tmp_path / "tcp/a/defaults.sh")
    assert packetdrill.scripts([tmp_path / "tcp", one]) == [two, one, one]
    with pytest.raises(BadRequest, match="absent.pkt does not exist"):
        packetdrill.scripts([tmp_path / "absent.pkt"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadRequest, match="has no packetdrill script"):
        packetdrill.scripts([tmp_path / "empty"])


@pytest.mark.parametrize(
    ("name", "text", "versions"),
    [
        ("any.pkt", "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3", list(Version)),
        ("stated.pkt", "// a script\n--ip_version=ipv6\n", [Version.IPV6]),
        ("basic-v4.pkt", "", [Version.IPV4, Version.MAPPED]),
        ("basic-v6.pkt", "", [Version.IPV6]),
    ],
)
def test_a_script_may_be_for_some_versions(name: str, text: str, versions: list[Version], tmp_path: Path) -> None:
    script = made(tmp_path / name, text)
    assert packetdrill.versions(script, list(Version)) == versions
    assert packetdrill.versions(script, [Version.IPV6]) == [version for version in versions if version == Version.IPV6]


def test_the_program_is_that_of_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    script = made(tmp_path / "checkout/gtests/net/tcp/close/close.pkt")
    with pytest.raises(Unavailable, match="or name it with --program FILE"):
        packetdrill.program(None, [script])
    source = tmp_path / "checkout/gtests/net/packetdrill"
    source.mkdir()
    with pytest.raises(Unavailable, match=f"'cd {source} && ./configure && make'"):
        packetdrill.program(None, [script])
    installed = made(tmp_path / "bin/packetdrill")
    installed.chmod(0o755)
    assert packetdrill.program(None, [script]) == installed
    built = made(source / "packetdrill")
    assert packetdrill.program(None, [script]) == built
    assert packetdrill.program(installed, [script]) == installed
    with pytest.raises(BadRequest, match="^program .* does not exist"):
        packetdrill.program(tmp_path / "absent", [script])
