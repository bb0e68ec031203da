"""Crates outside the repository that add mechanisms: read from a folder or from a text that travels with a campaign."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from testbed.errors import BadRequest
from testbed.scenario import CrateUsed

#: The crate that every one of them depends on.
NODE = "backchannel-node"
MANIFEST, LOCK, LIBRARY = "Cargo.toml", "Cargo.lock", "src/lib.rs"
#: Folders that hold no sources.
SKIPPED = {"target", "results"}
#: Endings of the sources beside the manifest. Campaigns, notes and figures there are none.
TOP_ENDINGS = {".rs", ".toml"}
#: Limits of a crate, because its sources travel with campaigns.
MOST_FILES, MOST_BYTES = 500, 4 << 20
NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
#: Its dependency on NODE, whose path differs between machines. Digests are of the sources without that path.
_DEPENDENCY = re.compile(rf"^{NODE}\s*=.*$", re.MULTILINE)
_PACKAGE = re.compile(r'\[\[package\]\]\nname = "(.+)"\n(?:.+\n)*')


@dataclass(frozen=True)
class Crate:
    """Sources of a crate."""

    #: Texts by their paths below its folder, without its Cargo.lock.
    files: Mapping[str, str]
    #: The parts of its Cargo.lock about packages that Backchannel does not use.
    locked: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of the package."""
        return str(self._package["name"])

    @property
    def version(self) -> str:
        """Of the package."""
        return str(self._package["version"])

    @property
    def used(self) -> CrateUsed:
        """It, as a scenario names it."""
        return CrateUsed(name=self.name, version=self.version, sha256=self.sha256)

    @property
    def module(self) -> str:
        """Its name in Rust."""
        return self.name.replace("-", "_")

    @cached_property
    def sha256(self) -> str:
        """Digest of what it is, the same on every machine."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @cached_property
    def text(self) -> str:
        """The crate as one text, which `from_text` reads."""
        files = {**self.files, MANIFEST: manifest_for(self, "BACKCHANNEL")}
        return json.dumps({"files": files, "locked": self.locked}, sort_keys=True, indent=0, ensure_ascii=False)

    @cached_property
    def _package(self) -> dict[str, Any]:
        return dict(tomllib.loads(self.files[MANIFEST])["package"])


def manifest_for(crate: Crate, root: str) -> str:
    """Its manifest, depending on the node of the checkout in the folder `root`, and without a workspace of its own."""
    dependency = f"{NODE} = {{ path = {json.dumps(f'{root}/agents/node')} }}"
    text = _DEPENDENCY.sub(lambda _: dependency, crate.files[MANIFEST])
    return re.sub(r"^\[workspace\]\s*$", "", text, flags=re.MULTILINE)


def read(folder: Path, ours: str) -> Crate:
    """The crate in a folder.

    Args:
        folder: of its Cargo.toml.
        ours: Backchannel's own Cargo.lock.

    Raises:
        BadRequest: it is not a crate that a node can have.
    """
    if not (folder / MANIFEST).is_file():
        raise BadRequest(
            f"{folder} has no {MANIFEST}: './backchannel new policy NAME' makes a crate that a campaign can name"
        )
    files: dict[str, str] = {}
    total = 0
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if not path.is_file() or SKIPPED & set(name.parts[:-1]) or any(part.startswith(".") for part in name.parts):
            continue
        if name.name == LOCK or (len(name.parts) == 1 and path.suffix not in TOP_ENDINGS):
            continue
        total += path.stat().st_size
        if len(files) >= MOST_FILES or total > MOST_BYTES:
            raise BadRequest(
                f"{folder} has more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB, the limits of a crate whose "
                f"sources travel with campaigns; keep what is not compiled beside {MANIFEST}, or in another folder"
            )
        try:
            files[name.as_posix()] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise BadRequest(
                f"{path} is not UTF-8 text; a crate whose sources travel with campaigns is text; keep what is not "
                f"compiled beside {MANIFEST}, or in another folder"
            ) from None
        except OSError as error:
            raise BadRequest(f"{path} cannot be read: {error.strerror}") from None
    known = set(_PACKAGE.findall(ours))
    lock = folder / LOCK
    blocks = _PACKAGE.finditer(lock.read_text(encoding="utf-8")) if lock.is_file() else ()
    crate = _checked(Crate(files), str(folder))
    return Crate(files, tuple(block[0].strip() for block in blocks if block[1] not in {*known, crate.name}))


@lru_cache(maxsize=64)
def from_text(text: str, place: str) -> Crate:
    """The crate that a text holds; `place` names it in messages.

    Raises:
        BadRequest: it holds none.
    """
    try:
        document = json.loads(text)
        files, locked = document["files"], document["locked"]
        good = all(isinstance(part, str) for part in (*files, *files.values(), *locked))
    except (ValueError, KeyError, TypeError, AttributeError):
        good = False
    if not good or any(not _stays_inside(name) for name in files):
        raise BadRequest(f"the sources attached for {place} are damaged")
    return _checked(Crate(files, tuple(locked)), place)


def _stays_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and not any(part.startswith(".") for part in path.parts)


def _checked(crate: Crate, place: str) -> Crate:
    try:
        manifest = tomllib.loads(crate.files.get(MANIFEST, ""))
    except tomllib.TOMLDecodeError as error:
        raise BadRequest(f"{place}/{MANIFEST} is not TOML: {error}") from None
    package = manifest.get("package", {})
    if not NAME.fullmatch(str(package.get("name", ""))) or not isinstance(package.get("version"), str):
        raise BadRequest(
            f"{place}/{MANIFEST} needs a [package] with a version and a name of lower-case letters, digits and hyphens"
        )
    if str(package["name"]).startswith("backchannel"):
        raise BadRequest(f"{place}/{MANIFEST}: the name {package['name']} is one of Backchannel's; take another")
    if LIBRARY not in crate.files:
        raise BadRequest(f"{place} has no {LIBRARY}, whose function `register` adds its mechanisms to a node")
    if not _DEPENDENCY.search(crate.files[MANIFEST]):
        raise BadRequest(
            f"{place}/{MANIFEST} needs a line '{NODE} = {{ path = \"...\" }}' below [dependencies]; the path is "
            "that of agents/node in a checkout, and the launcher replaces it"
        )
    return crate
