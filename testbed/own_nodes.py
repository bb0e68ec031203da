"""Nodes with mechanisms of the user's crates, built once in the user's cache, and which of them this process uses.

The workspace of a build lies in a scratch folder: the checkout's own, by links, with more members. Cargo names objects
by their paths below a workspace, so that those of the checkout's node serve, and a build compiles the crates and links.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from testbed import build_cache, node_binary
from testbed.errors import BadRequest, TestbedError, Unavailable
from testbed.node_binary import ROOT, VARIABLE
from testbed.own_crates import LOCK, MANIFEST, Crate, manifest_for
from testbed.scenario import CrateUsed, lacking

#: Folders of the sources of a node.
FOLDERS = ("agents", "analysis", "testbed")
BINARY = "backchannel-node"
#: The package, and the program, of a node with crates.
OWN_NODE = "own-node"
#: Free space that a build needs where nothing is compiled.
ROOM_BYTES = 2 << 30
#: Seconds that a build takes there on the reference machine, for the note before it.
FIRST_S = 180
#: Lines of the compiler that a message has.
MOST_LINES = 60
#: How the list of its members begins in the checkout's manifest.
_MEMBERS = "members = ["

_in_use: dict[str, Crate] = {}
_lock = threading.Lock()


def say(text: str) -> None:
    """Writes a note to standard error."""
    print(f"backchannel: {text}", file=sys.stderr)


def lockfile() -> str:
    """Backchannel's own Cargo.lock; empty where its sources are not."""
    path = ROOT / LOCK
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def use(crates: Iterable[Crate]) -> None:
    """Lets this process, and those that it starts, use a node that has these crates beside those that it had before.

    Raises:
        BadRequest: a crate does not compile, or two have a mechanism of one name.
        Unavailable: this installation cannot build nodes.
        TestbedError: the build failed otherwise.
    """
    with _lock:
        wanted = {**_in_use, **{crate.name: crate for crate in crates}}
        if wanted.keys() == _in_use.keys() and all(_in_use[name].sha256 == wanted[name].sha256 for name in wanted):
            return
        if not _has_sources() and lack(crate.used for crate in wanted.values()) is None:
            # Ansible has copied the node with them.
            _in_use.update(wanted)
            return
        binary = build(list(wanted.values()))
        _in_use.update(wanted)
        os.environ[VARIABLE] = str(binary)


def in_use() -> tuple[Crate, ...]:
    """The crates that this process has asked for."""
    return tuple(_in_use.values())


def lack(crates: Iterable[CrateUsed]) -> str | None:
    """Why the current node cannot run a scenario with these crates; None if it can."""
    return lacking(crates, {own["name"]: own["sha256"] for own in node_binary.registry()["crates"]})


def build(crates: Sequence[Crate]) -> Path:
    """The node with these crates, from the cache or new.

    Raises:
        as `use`.
    """
    crates = sorted(crates, key=lambda crate: crate.name)
    place = build_cache.place("nodes")
    digest = hashlib.sha256("\n".join([_sources(), *(crate.sha256 for crate in crates)]).encode())
    folder = place / digest.hexdigest()[:16]
    names = " and ".join(crate.name for crate in crates)

    def make(scratch: Path) -> None:
        # Objects of a checkout of somebody else's are there to be read only.
        target = ROOT / "target"
        if not os.access(target / "release", os.W_OK):
            target = place / "target"
        compiled = any((target / "release/deps").glob("libbackchannel_node-*.rlib"))
        once = f"once, about {FIRST_S // 60} min; seconds for further ones"
        say(f"building a node with {names}: {'some seconds' if compiled else once}")
        workspace = scratch / "workspace"
        _write(workspace, crates)
        log = place / "build.log"
        log.write_bytes(b"")
        built = scratch / build_cache.BUILT
        # Others, with a cache of their own, may build in the same checkout.
        with build_cache.locked(target, f"lock-{OWN_NODE}"):
            _cargo(workspace, target, log, {crate.name: crate for crate in crates})
            shutil.copy2(target / "release" / OWN_NODE, built / BINARY)
        shutil.copytree(workspace / OWN_NODE, built / "sources")
        _try(built / BINARY, names)

    # One lock for all: they share the folder of objects.
    build_cache.build_once(folder, "lock", f"building a node with {names}", ROOM_BYTES, make)
    return folder / BINARY


def _has_sources() -> bool:
    return (ROOT / LOCK).is_file() and (ROOT / "agents/node/src").is_dir()


def _sources() -> str:
    """Digest of the Rust sources of a node.

    Raises:
        Unavailable: this installation has none.
    """
    if not _has_sources():
        raise Unavailable(
            f"{ROOT} has no Rust sources, so that it cannot build a node with a crate of yours: use a checkout, or let "
            "'./backchannel testbed site --campaign FILE' copy the node to a worker that Ansible installed"
        )
    paths = [ROOT / MANIFEST, ROOT / LOCK]
    for name in FOLDERS:
        paths += [path for suffix in ("rs", "toml") for path in (ROOT / name).rglob(f"*.{suffix}")]
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(f"{path.relative_to(ROOT)} ".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _write(workspace: Path, crates: Sequence[Crate]) -> None:
    """The checkout's workspace with a node that has these crates."""
    node = workspace / OWN_NODE
    for crate in crates:
        for name, text in {**crate.files, MANIFEST: manifest_for(crate, "../..")}.items():
            path = node / crate.name / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    (node / "src").mkdir(parents=True)
    dependencies = "".join(f'{crate.name} = {{ path = "{crate.name}" }}\n' for crate in crates)
    (node / MANIFEST).write_text(
        f'[package]\nname = "{OWN_NODE}"\nversion = "0.0.0"\nedition = "2021"\n\n'
        f'[dependencies]\nbackchannel-node = {{ path = "../agents/node" }}\n{dependencies}'
    )
    ours = (ROOT / MANIFEST).read_text(encoding="utf-8")
    for folder in {Path(member).parts[0] for member in tomllib.loads(ours)["workspace"]["members"]}:
        (workspace / folder).symlink_to(ROOT / folder)
    # The crates are members, because the node depends on their paths.
    (workspace / MANIFEST).write_text(ours.replace(_MEMBERS, f'{_MEMBERS}"{OWN_NODE}", ', 1), encoding="utf-8")
    entries = "".join(
        f"        Crate {{ name: {json.dumps(crate.name)}, version: {json.dumps(crate.version)}, "
        f'sha256: "{crate.sha256}", register: {crate.module}::register }},\n'
        for crate in crates
    )
    (node / "src/main.rs").write_text(
        "use backchannel_node::{Crate, Registry};\n\n"
        "fn main() -> std::process::ExitCode {\n"
        f"    backchannel_node::main_with(Registry::builtin(), &[\n{entries}    ])\n}}\n"
    )
    locked = [part for crate in crates for part in crate.locked]
    (workspace / LOCK).write_text("\n\n".join([lockfile().strip(), *dict.fromkeys(locked)]) + "\n")


def _cargo(workspace: Path, target: Path, log: Path, crates: Mapping[str, Crate]) -> None:
    program = os.environ.get("CARGO", "cargo")
    if shutil.which(program) is None:
        raise Unavailable(
            "building a node with a crate of yours needs cargo, Rust's build program; './backchannel build' installs it"
        )
    words = [program, "build", "--release", "--quiet", "--color=never", "--package", OWN_NODE]
    words += ["--target-dir", str(target)]
    try:
        build_cache.logged(words, log, cwd=workspace)
    except TestbedError:
        said = log.read_text(errors="replace").strip()
        # Warnings precede errors.
        errors = said[match.start() :] if (match := re.search(r"^error", said, re.MULTILINE)) else said
        lines = errors.splitlines()
        more = [f"... {len(lines) - MOST_LINES} lines more in {log}"] if len(lines) > MOST_LINES else []
        whose = " and ".join(name for name in crates if f"{name}/src" in errors or f"`{name}`" in errors)
        raise BadRequest(
            "\n".join([f"{whose or ' and '.join(crates)} does not compile:", *lines[:MOST_LINES], *more])
        ) from None


def _try(binary: Path, names: str) -> None:
    """Raises BadRequest if a node cannot list its mechanisms, because two have one name."""
    done = subprocess.run([binary, "registry"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BadRequest(f"a node with {names} does not start: {node_binary.failure(done.returncode, done.stderr)}")
