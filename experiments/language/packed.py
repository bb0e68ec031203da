"""Files that a campaign's text brings along, as comments below it: packed, since traces have very many lines."""

from __future__ import annotations

import base64
import binascii
import itertools
import lzma

from experiments.language.registry import MAX_FILE_BYTES

_HEAD = ", which is read above, packed (xz, base64):"
_WIDTH = 110
#: What unpacking may take: a text comes from anywhere.
_MOST_MEMORY = 64 << 20


def begins(line: str) -> bool:
    """Whether a line stands above a packed file."""
    return line.startswith("# ") and line.endswith(_HEAD)


def attach(text: str, name: str, body: str) -> str:
    """A campaign's text that brings a file along."""
    data = base64.b64encode(lzma.compress(body.encode())).decode()
    lines = "".join(f"# {data[at : at + _WIDTH]}\n" for at in range(0, len(data), _WIDTH))
    return f"{text.rstrip()}\n\n# {name}{_HEAD}\n{lines}"


def find(text: str, name: str) -> str | None:
    """A file that a text brings along; None without it.

    Raises:
        ValueError: it is not what `attach` makes, or too large, with a sentence.
    """
    lines = iter(text.splitlines())
    if f"# {name}{_HEAD}" not in lines:
        return None
    data = "".join(line.removeprefix("# ") for line in itertools.takewhile(lambda one: one.startswith("# "), lines))
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MOST_MEMORY)
    try:
        body = unpacker.decompress(base64.b64decode(data, validate=True), MAX_FILE_BYTES + 1)
        if len(body) > MAX_FILE_BYTES:
            raise ValueError(f"{name} is larger than {MAX_FILE_BYTES // 1024**2} MiB")
        if not unpacker.eof:
            raise ValueError(f"{name} is cut short in this text")
        return body.decode()
    except (binascii.Error, lzma.LZMAError, EOFError, UnicodeDecodeError):
        raise ValueError(f"what this text brings along as {name} cannot be unpacked") from None
