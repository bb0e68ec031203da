"""C files of the user's that are compiled into a kernel: a congestion control or a queueing discipline each."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import BadRequest

#: Folder of the source by the prefix of a file's name, and the field of the structure that names what it registers.
_KINDS = {
    "tcp": ("net/ipv4", "congestion", re.compile(r'\.name\s*=\s*"([^"]+)"')),
    "sch": ("net/sched", "qdisc", re.compile(r'\.id\s*=\s*"([^"]+)"')),
}
_FILE = re.compile(r"(tcp|sch)_[a-z0-9_]+\.c")
#: Ends what a build adds to a Makefile.
_MARK = "# Of a file that --with named."
#: Lines of the compiler that a message has.
MOST_LINES = 40


@dataclass(frozen=True)
class OwnFile:
    """A file to compile in."""

    file: str
    #: "congestion" or "qdisc".
    kind: str
    #: By which Linux knows it.
    name: str
    #: In the source.
    folder: str
    text: str


def read(path: Path) -> OwnFile:
    """A file.

    Raises:
        BadRequest: it cannot be read, or does not say what it is.
    """
    if _FILE.fullmatch(path.name) is None:
        raise BadRequest(
            f"{path}: a congestion control is a file tcp_NAME.c and a queueing discipline sch_NAME.c, with lower-case "
            "letters, digits and underscores in NAME"
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"{path} cannot be read: {error}") from None
    folder, kind, pattern = _KINDS[path.name[:3]]
    names = pattern.findall(text)
    if not names:
        field = ".name" if kind == "congestion" else ".id"
        raise BadRequest(f'{path} has no {field} = "...", by which Linux knows a {kind}')
    return OwnFile(path.name, kind, names[0], folder, text)


@contextmanager
def placed(source: Path, files: Sequence[OwnFile]) -> Iterator[None]:
    """The files in a source tree, which is as before at the end. What a killed build left in it is removed first.

    Raises:
        BadRequest: Linux has a file of that name.
    """
    _remove_left(source)
    for file in files:
        if (source / file.folder / file.file).exists():
            raise BadRequest(f"Linux has a file {file.folder}/{file.file}; give yours another name")
    makefiles = {folder: (source / folder / "Makefile") for folder, *_ in _KINDS.values()}
    before = {path: (path.read_text(), path.stat()) for path in makefiles.values()}
    try:
        for file in files:
            # First, because it names what a build that is killed leaves.
            with makefiles[file.folder].open("a") as makefile:
                makefile.write(f"obj-y += {file.file.removesuffix('.c')}.o {_MARK}\n")
            (source / file.folder / file.file).write_text(file.text)
        yield
    finally:
        for path, (text, status) in before.items():
            _replace(path, text, status)
        for file in files:
            (source / file.folder / file.file).unlink(missing_ok=True)


def _remove_left(source: Path) -> None:
    for folder, *_ in _KINDS.values():
        makefile = source / folder / "Makefile"
        lines = makefile.read_text().splitlines(keepends=True)
        left = [line for line in lines if line.endswith(f"{_MARK}\n")]
        for line in left:
            (source / folder / f"{line.split()[2].removesuffix('.o')}.c").unlink(missing_ok=True)
        if left:
            _replace(makefile, "".join(line for line in lines if line not in left))


def _replace(path: Path, text: str, status: os.stat_result | None = None) -> None:
    """Writes a file, with its times of before, whole or not at all."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(text)
    if status is not None:
        os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
    new.replace(path)


def errors(said: str, files: Sequence[Path]) -> str:
    """What the compiler says of the files, by the user's paths."""
    # Drops make's lines about folders and about files that compile.
    lines = [line for line in said.splitlines() if not re.match(r"make|\s+[A-Z]+ ", line)]
    first = next((number for number, line in enumerate(lines) if ": error:" in line), max(0, len(lines) - MOST_LINES))
    text = "\n".join(lines[first : first + MOST_LINES])
    for path in files:
        text = re.sub(rf"\S*/{re.escape(path.name)}", str(path), text)
    return f"{' and '.join(map(str, files))} does not compile into Linux:\n{text}"
