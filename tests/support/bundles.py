"""Bundles that were changed on purpose."""

from __future__ import annotations

import copy
import hashlib
import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from analysis.exports.unpack import CAMPAIGN, METADATA

#: What a field of a foreign document may have.
HOSTILE: tuple[Any, ...] = (
    None, True, "", "x" * 3000, "../../x", "a\0b", "\ud800", "9" * 30, -1, 0, 1, 10**40, 2**63, 1e308, -1e308,
    float("nan"), float("inf"), [], {}, [[]], {"": {}}, "valid", "invalid", "1e999", [0] * 1000,
)  # fmt: skip


def rewritten(bundle: Path, path: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """A copy of the bundle with its files changed."""
    with zipfile.ZipFile(bundle) as opened:
        files = {name: opened.read(name) for name in opened.namelist()}
    change(files)
    with zipfile.ZipFile(path, "w") as out:
        for name, data in files.items():
            out.writestr(name, data)
    return path


def redescribed(files: dict[str, bytes], name: str, data: bytes) -> None:
    """Changes a file and its description as well: what only a careful reading finds."""
    document = json.loads(files[METADATA])
    for entry in document["@graph"]:
        if entry["@id"] == name:
            entry["contentSize"], entry["sha256"] = str(len(data)), hashlib.sha256(data).hexdigest()
    files[METADATA] = json.dumps(document).encode()
    files[name] = data


def edited(edit: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, bytes]], None]:
    """A change of the document of the campaign, whose description is changed with it."""

    def change(files: dict[str, bytes]) -> None:
        document = json.loads(files[CAMPAIGN])
        edit(document)
        redescribed(files, CAMPAIGN, json.dumps(document).encode())

    return change


def mutate(document: Any, random: random.Random) -> None:
    """Changes some values of a JSON document, at any depth: replaced, removed, repeated or exchanged."""
    for _ in range(1 << random.randrange(3)):
        places = list(_places(document))
        holder, key = random.choice(places)
        kind = random.randrange(6)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        elif kind == 2:
            other, at = random.choice(places)
            holder[key] = copy.deepcopy(other[at])
        elif kind == 3 and isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
            holder[key] *= random.choice((-1, 0.5, 10))
        else:
            holder[key] = copy.deepcopy(random.choice(HOSTILE))


def _places(value: Any) -> Any:
    """Each value of a document as what holds it, and its key there."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])
