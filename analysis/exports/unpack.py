"""Unpacks a bundle, in a process of its own without privileges: analysis.exports.crate_reader calls it confined.

    python -I analysis/exports/unpack.py BUNDLE FOLDER BYTES     # at most BYTES in all

It prints the size and SHA-256 of every file as JSON. With status 2, standard error says what is wrong. Only the
standard library is imported, because the process may read little else.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import urllib.parse
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Any

METADATA = "ro-crate-metadata.json"
CAMPAIGN = "campaign.json"
#: The page for people; the specification has it in no list of data.
PREVIEW = "ro-crate-preview.html"
#: Neither file can be larger: campaigns of tens of thousands of runs stay below.
MOST_METADATA_BYTES = 1 << 28
_CHUNK = 1 << 20


class BundleError(Exception):
    """A fault of a bundle, as a clause that follows the bundle's path."""


def unpack(path: Path, folder: Path, most_bytes: int) -> dict[str, tuple[int, str]]:
    """Writes every file of a bundle below a folder, after its name, size and checksum were verified.

    Returns:
        Size in bytes and SHA-256 of every file by its name.

    Raises:
        BundleError: it is not a bundle, or something in it is not what its metadata say.
    """
    try:
        with zipfile.ZipFile(path) as bundle:
            described = _described(bundle, most_bytes)
            _unpack(bundle, described, folder)
            return described
    except BundleError:
        raise
    except OSError as error:
        raise BundleError(f"cannot be read: {error.strerror or error}") from None
    except Exception as error:  # noqa: BLE001 (zipfile raises whatever the damage leads it to)
        raise BundleError(f"not a bundle, or damaged: {error}") from None


def _described(bundle: zipfile.ZipFile, most_bytes: int) -> dict[str, tuple[int, str]]:
    """Size and SHA-256 of every file in the metadata, by name, checked against the list of the zip."""
    listed = [entry for entry in bundle.infolist() if not entry.is_dir()]
    names = [entry.filename for entry in listed]
    if METADATA not in names:
        raise BundleError(f"not a bundle: it has no {METADATA}")
    with bundle.open(METADATA) as stream:
        text = stream.read(MOST_METADATA_BYTES + 1)
    graph = json_object(text, METADATA).get("@graph")
    if not isinstance(graph, list):
        raise BundleError(f"{METADATA} has no @graph")
    members: dict[str, tuple[int, str]] = {}
    for entity in graph:
        if not isinstance(entity, dict) or (entity.get("@type") != "File" and entity.get("@id") != PREVIEW):
            continue
        name = urllib.parse.unquote(str(entity.get("@id")))
        size, digest = str(entity.get("contentSize")), str(entity.get("sha256"))
        if not size.isdigit() or not re.fullmatch("[0-9a-f]{64}", digest):
            raise BundleError(f"{METADATA} has no size and SHA-256 of {name}")
        members[name] = (int(size), digest)
    for name in (*members, *names):
        parts = PurePosixPath(name).parts
        if name.startswith("/") or "\\" in name or "\0" in name or ".." in parts or not parts:
            raise BundleError(f"file name '{name}' points outside the bundle")
    if len(set(names)) < len(names):
        raise BundleError("a file occurs twice")
    for what, odd in (
        ("is not described in it", set(names) - {METADATA} - set(members)),
        ("is missing", set(members) - set(names)),
    ):
        if odd:
            raise BundleError(f"{min(odd)} {what}")
    if CAMPAIGN not in members:
        raise BundleError(f"an RO-Crate, but not of a Backchannel campaign: it has no {CAMPAIGN}")
    total = sum(size for size, _ in members.values())
    if total > most_bytes:
        raise BundleError(f"it holds {total / 1e6:.1f} MB, and {most_bytes / 1e6:.1f} MB are free")
    return members


def _unpack(bundle: zipfile.ZipFile, described: Mapping[str, tuple[int, str]], folder: Path) -> None:
    """Writes every file, never more of one than its size, and verifies it."""
    for name, (size, digest) in described.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with bundle.open(name) as source, target.open("wb") as out:
            seen = _copy(source, out, size)
        if seen != digest:
            raise BundleError(f"size or checksum mismatch: {name} is corrupt or was modified")


def _copy(source: IO[bytes], target: IO[bytes], size: int) -> str:
    seen, left = hashlib.sha256(), size
    while chunk := source.read(min(_CHUNK, left + 1)):
        left -= len(chunk)
        if left < 0:
            return "too long"
        seen.update(chunk)
        target.write(chunk)
    return seen.hexdigest() if left == 0 else "too short"


def json_object(text: bytes, name: str) -> dict[str, Any]:
    """A JSON object of bounded size.

    Raises:
        BundleError: it is none, or too large.
    """
    if len(text) > MOST_METADATA_BYTES:
        raise BundleError(f"{name} is too large")
    try:
        document = json.loads(text)
        if b"\\ud" in text.lower():
            # A lone surrogate is not text, and databases reject it.
            json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{name} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise BundleError(f"{name} is not a JSON object")
    return document


def main() -> int:
    """Unpacks what the command line names."""
    path, folder, most_bytes = sys.argv[1:]
    try:
        print(json.dumps(unpack(Path(path), Path(folder), int(most_bytes))))
    except BundleError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
