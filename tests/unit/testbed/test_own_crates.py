"""Reading crates of the user's: what they are, on any machine, and what they may not be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed import own_crates
from testbed.errors import BadRequest
from testbed.own_crates import Crate

MANIFEST = """
[package]
name = "mine"
version = "0.3.0"

[dependencies]
backchannel-node = { path = "/somewhere/agents/node" }

[workspace]
"""
OURS = '[[package]]\nname = "serde"\nversion = "1.0.0"\n'


def crate(folder: Path, manifest: str = MANIFEST, library: str = "pub fn register() {}\n") -> Path:
    (folder / "src").mkdir(parents=True)
    (folder / "Cargo.toml").write_text(manifest)
    (folder / "src/lib.rs").write_text(library)
    return folder


def read(folder: Path) -> Crate:
    return own_crates.read(folder, OURS)


def test_a_crate_is_the_same_wherever_it_lies_and_whatever_lies_beside_it(tmp_path: Path) -> None:
    first = read(crate(tmp_path / "a"))
    second = crate(tmp_path / "b", MANIFEST.replace("/somewhere", "/elsewhere"))
    for path in ("target/debug/object", "results/results.db", ".git/HEAD", ".cargo/config.toml"):
        (second / path).parent.mkdir(parents=True)
        (second / path).write_bytes(b"\xff")
    # What `new` writes beside the sources, and what users add there.
    for name in ("campaign.yaml", "README.md", "figure.png"):
        (second / name).write_bytes(b"\xff")
    # Cargo completes it with what Backchannel itself uses, and with the crate.
    (second / "Cargo.lock").write_text(f'{OURS}\n[[package]]\nname = "mine"\nversion = "0.3.0"\n')
    assert (first.name, first.version, first.module) == ("mine", "0.3.0", "mine")
    assert read(second).sha256 == first.sha256
    assert own_crates.from_text(first.text, "./mine").sha256 == first.sha256


def test_sources_versions_and_locked_packages_of_its_own_make_another_crate(tmp_path: Path) -> None:
    crates = [
        crate(tmp_path / "a"),
        crate(tmp_path / "b", library="pub fn register() { }\n"),
        crate(tmp_path / "c", MANIFEST.replace("0.3.0", "0.3.1")),
        crate(tmp_path / "d"),
        crate(tmp_path / "e"),
        crate(tmp_path / "f"),
        crate(tmp_path / "g"),
    ]
    (crates[5] / "build.rs").write_text("fn main() {}\n")
    (crates[6] / "src/table.csv").write_text("1\n")
    for folder, version in zip(crates[3:5], ("1.0.0", "1.0.1"), strict=True):
        lock = f'{OURS}\n[[package]]\nname = "libm"\nversion = "{version}"\n'
        (folder / "Cargo.lock").write_text(lock)
    assert len({read(folder).sha256 for folder in crates}) == 7
    assert read(crates[3]).locked == ('[[package]]\nname = "libm"\nversion = "1.0.0"',)


def test_the_manifest_of_a_build_names_this_checkout_and_joins_its_workspace(tmp_path: Path) -> None:
    manifest = own_crates.manifest_for(read(crate(tmp_path / "a")), "/here")
    assert 'backchannel-node = { path = "/here/agents/node" }' in manifest
    assert "[workspace]" not in manifest
    assert "/somewhere" not in manifest


def manifest(old: str, new: str) -> Callable[[Path], object]:
    """Changes the manifest of a folder."""
    return lambda folder: (folder / "Cargo.toml").write_text(MANIFEST.replace(old, new))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda folder: (folder / "Cargo.toml").unlink(), "has no Cargo.toml: './backchannel new policy NAME'"),
        (lambda folder: (folder / "src/lib.rs").unlink(), "has no src/lib.rs"),
        (manifest("name", "name ="), "is not TOML"), (manifest('"mine"', '"Mine"'), "needs a [package]"),
        (manifest('"mine"', '"backchannel-x"'), "one of Backchannel's"),
        (manifest("backchannel-node", "backchannel-core"), "needs a line 'backchannel-node"),
        (lambda folder: (folder / "src/picture.png").write_bytes(b"\x89PNG"), "picture.png is not UTF-8 text"),
        (lambda folder: (folder / "src/data.csv").write_bytes(b"1" * (5 << 20)), "more than 500 files or 4 MiB"),
    ],
)  # fmt: skip
def test_what_is_no_crate_for_a_node_is_refused(tmp_path: Path, change: Callable[[Path], None], words: str) -> None:
    folder = crate(tmp_path / "mine")
    change(folder)
    with pytest.raises(BadRequest) as error:
        read(folder)
    assert words in str(error.value)


@pytest.mark.parametrize("path", ["../outside.rs", "/etc/cron.d/x", "src/../../x", ".cargo/config.toml"])
def test_attached_sources_stay_in_their_folder(tmp_path: Path, path: str) -> None:
    good = read(crate(tmp_path / "mine"))
    evil = Crate({**good.files, path: "x"}).text
    with pytest.raises(BadRequest, match="damaged"):
        own_crates.from_text(evil, "./mine")
