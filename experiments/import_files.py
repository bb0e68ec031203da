"""Capture files on their way in: labels, checksums, compressed copies, and conversion of foreign formats by tshark."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from experiments.language.problems import ImportProblem
from experiments.limits import LONGEST_S
from testbed import confined

#: Time limit of a program that reads a capture, in s: none of its own, because that of the command holds.
READER_S = LONGEST_S
#: Bytes of a label, to which names of files add their endings.
MOST_LABEL_BYTES = 200


def labels(files: Sequence[Path]) -> list[str]:
    """A name for each capture or log: its file's, numbered where two have the same."""
    labels_: list[str] = []
    for path in files:
        name = path.name
        for ending in (".gz", ".zst", ".pcap", ".pcapng", ".cap", ".sqlog", ".qlog"):
            name = name.removesuffix(ending)
        # Programs would take what begins with a dash for an option.
        name = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip(".").lstrip("-")
        name = name.encode()[:MOST_LABEL_BYTES].decode(errors="ignore") or "capture"
        label, number = name, 2
        while label in labels_:
            label, number = f"{name}-{number}", number + 1
        labels_.append(label)
    return labels_


def sha256(path: Path) -> str:
    """A file's SHA-256; ImportProblem if it cannot be read."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise ImportProblem(f"{path} cannot be read: {error.strerror}") from None


def keep(folder: Path, labels: Sequence[str], files: Sequence[Path]) -> dict[str, Path]:
    """Copies the captures, compressed as they are or by gzip."""
    (folder / "captures").mkdir()
    kept = {}
    for label, path in zip(labels, files, strict=True):
        with path.open("rb") as plain:
            packed = {b"\x1f\x8b": ".gz", b"\x28\xb5": ".zst"}.get(plain.read(2))
            plain.seek(0)
            target = folder / "captures" / f"{label}.pcap{packed or '.gz'}"
            with target.open("wb") as out:
                if packed:
                    shutil.copyfileobj(plain, out, 1 << 20)
                else:
                    with gzip.GzipFile(filename="", mode="wb", fileobj=out, compresslevel=1, mtime=0) as stream:
                        shutil.copyfileobj(plain, stream, 1 << 20)
        kept[label] = target
    return kept


def readable(path: Path, label: str, folder: Path, name: str) -> tuple[Path, str]:
    """A file that our own reader takes, and who reads it: what we do not know goes through tshark.

    Args:
        path: of the kept file.
        label: of the capture.
        folder: that it is imported into.
        name: of the file that was given, for messages.

    Raises:
        ImportProblem: nothing reads it.
    """
    if path.suffix != ".gz":
        return path, "backchannel"
    with gzip.open(path) as stream:
        try:
            magic = stream.read(4)
        except (OSError, EOFError):
            return path, "backchannel"
    if magic in OURS:
        return path, "backchannel"
    if shutil.which("tshark") is None:
        raise ImportProblem(
            f"{name} is neither pcap nor pcapng (it begins with {magic.hex() or 'nothing'}); tshark may read it, "
            "but is not installed"
        )
    (folder / "converted").mkdir(exist_ok=True)
    source, target = folder / "converted" / f"{label}.other", folder / "converted" / f"{label}.pcapng"
    with gzip.open(path) as packed, source.open("wb") as plain:
        shutil.copyfileobj(packed, plain, 1 << 20)
    reader = ["tshark", "-n", "-r", str(source), "-F", "pcapng", "-w", str(target)]
    words = confined.words(reader, write=[source.parent])
    done = subprocess.run(words, capture_output=True, text=True, timeout=READER_S, check=False)
    if not target.is_file() or target.stat().st_size == 0:
        why = [line for line in done.stderr.splitlines() if "Running as" not in line]
        reason = (why[-1] if why else "it gave no reason").replace(str(source), name)
        raise ImportProblem(f"{name} is neither pcap nor pcapng, and tshark cannot read it: {reason}")
    words = confined.words(["capinfos", "-t", "-T", "-r", str(source)], read=[source])
    kind = subprocess.run(words, capture_output=True, text=True, timeout=READER_S, check=False)
    format_ = kind.stdout.strip().split("\t")[-1] or "a format of its own"
    version = subprocess.run(["tshark", "--version"], capture_output=True, text=True, check=False).stdout.split("\n")[0]
    source.unlink()
    return target, f"{version.split(' (Git')[0]} ({format_})"


#: How the files begin that our reader takes.
OURS = frozenset(
    bytes.fromhex(word) for word in ("a1b2c3d4", "d4c3b2a1", "a1b23c4d", "4d3cb2a1", "a1b2cd34", "34cdb2a1", "0a0d0d0a")
)
