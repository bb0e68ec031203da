"""Nodes with mechanisms of the user's crates, built once in the user's cache, and which of them this process uses.

The workspace of a build lies in a scratch folder outside the repository. All builds share one folder of objects, so
that a further one compiles a crate and links.
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from testbed import build_cache, node_binary
from testbed.errors import BadRequest, TestbedError, Unavailable
from testbed.node_binary import ROOT, VARIABLE
from testbed.own_crates import LOCK, MANIFEST, Crate, manifest_for
from testbed.scenario import CrateUsed, lacking

#: Folders of the sources of a node.
FOLDERS = ("agents", "analysis", "testbed")
BINARY = "backchannel-node"
#: Free space that the first build needs.
ROOM_BYTES = 2 << 30
#: Seconds that the first build takes on the reference machine, for the note before it.
FIRST_S = 180
#: Lines of the compiler that a message has.
MOST_LINES = 60
#: Packages of a node by their optimisation, where it is not the highest: none of them works while packets do.
OPTIMISED_LESS = {
    0: ("chrono", "clap_builder", "num-bigint", "rustls", "rustls-webpki", "schemars"),
    1: ("backchannel-audit", "backchannel-laws", "backchannel-node", "parquet"),
}
#: A node of one crate is linked often and run for seconds, so that it is not optimised across crates.
PROFILE = "[profile.release.package]\n" + "".join(
    f"{name}.opt-level = {level}\n" for level, names in OPTIMISED_LESS.items() for name in names
)

Say = Callable[[str], None]

_in_use: dict[str, Crate] = {}
_lock = threading.Lock()


def say(text: str) -> None:
    """Writes a note to standard error."""
    print(f"backchannel: {text}", file=sys.stderr)


def lockfile() -> str:
    """Backchannel's own Cargo.lock; empty where its sources are not."""
    path = ROOT / LOCK
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def use(crates: Iterable[Crate], report: Say = say) -> None:
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
        binary = build(list(wanted.values()), report)
        _in_use.update(wanted)
        os.environ[VARIABLE] = str(binary)


def in_use() -> tuple[Crate, ...]:
    """The crates that this process has asked for."""
    return tuple(_in_use.values())


def lack(crates: Iterable[CrateUsed]) -> str | None:
    """Why the current node cannot run a scenario with these crates; None if it can."""
    return lacking(crates, {own["name"]: own["sha256"] for own in node_binary.registry()["crates"]})


def build(crates: Sequence[Crate], report: Say) -> Path:
    """The node with these crates, from the cache or new.

    Raises:
        as `use`.
    """
    crates = sorted(crates, key=lambda crate: crate.name)
    place = build_cache.place("nodes")
    sources = _sources()
    digest = hashlib.sha256("\n".join([sources, PROFILE, *(crate.sha256 for crate in crates)]).encode())
    folder = place / digest.hexdigest()[:16]
    names = " and ".join(crate.name for crate in crates)

    def make(scratch: Path) -> None:
        target = place / "target"
        # Cargo compiles Backchannel's crates anew for another checkout, and after a change of them.
        compiled = target / f"compiled-{hashlib.sha256(f'{ROOT} {sources}'.encode()).hexdigest()[:16]}"
        once = f"once, about {FIRST_S // 60} min; seconds for further ones"
        about = "some seconds" if compiled.exists() else once
        report(f"building a node with {names}: {about}")
        workspace = scratch / "workspace"
        _write(workspace, crates)
        log = place / "build.log"
        log.write_bytes(b"")
        _cargo(workspace, target, log, {crate.name: crate for crate in crates})
        compiled.touch()
        built = scratch / build_cache.BUILT
        shutil.copy2(target / "release" / BINARY, built / BINARY)
        shutil.copytree(workspace, built / "sources")
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
    """The workspace of a node with these crates."""
    for crate in crates:
        for name, text in {**crate.files, MANIFEST: manifest_for(crate, str(ROOT))}.items():
            path = workspace / crate.name / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    dependencies = "".join(f'{crate.name} = {{ path = "{crate.name}" }}\n' for crate in crates)
    node = f"backchannel-node = {{ path = {json.dumps(str(ROOT / 'agents/node'))} }}\n"
    (workspace / "src").mkdir(parents=True)
    (workspace / MANIFEST).write_text(
        '[package]\nname = "own-node"\nversion = "0.0.0"\nedition = "2021"\n\n'
        f'[[bin]]\nname = "{BINARY}"\npath = "src/main.rs"\n\n'
        f"[dependencies]\n{node}{dependencies}\n[workspace]\n\n{PROFILE}"
    )
    entries = "".join(
        f"        Crate {{ name: {json.dumps(crate.name)}, version: {json.dumps(crate.version)}, "
        f'sha256: "{crate.sha256}", register: {crate.module}::register }},\n'
        for crate in crates
    )
    (workspace / "src/main.rs").write_text(
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
    words = [program, "build", "--release", "--quiet", "--color=never", "--target-dir", str(target)]
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
