"""Traces attached to a campaign's text as compressed comments, because traces have very many lines."""

from __future__ import annotations

import base64
import binascii
import itertools
import lzma

from experiments.language.files import MAX_FILE_BYTES

_HEAD = ", which is read above, packed (xz, base64):"
_WIDTH = 110
#: Memory limit of decompression, because texts come from visitors of the site too.
_MAX_MEMORY_BYTES = 64 << 20


def begins(line: str) -> bool:
    """Whether a line is the head of a packed file."""
    return line.startswith("# ") and line.endswith(_HEAD)


def attach(text: str, name: str, body: str) -> str:
    """A campaign's text with a file attached."""
    data = base64.b64encode(lzma.compress(body.encode())).decode()
    lines = "".join(f"# {data[at : at + _WIDTH]}\n" for at in range(0, len(data), _WIDTH))
    return f"{text.rstrip()}\n\n# {name}{_HEAD}\n{lines}"


def body_of(text: str, name: str) -> str | None:
    """The content of an attached file; None if it is not attached.

    Raises:
        ValueError: it is damaged or larger than MAX_FILE_BYTES.
    """
    lines = iter(text.splitlines())
    if f"# {name}{_HEAD}" not in lines:
        return None
    data = "".join(line.removeprefix("# ") for line in itertools.takewhile(lambda line: line.startswith("# "), lines))
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_MEMORY_BYTES)
    try:
        body = unpacker.decompress(base64.b64decode(data, validate=True), MAX_FILE_BYTES + 1)
        if len(body) > MAX_FILE_BYTES:
            raise ValueError(f"{name} is larger than {MAX_FILE_BYTES // 1024**2} MiB")
        if not unpacker.eof:
            raise ValueError(f"the attached {name} is incomplete")
        return body.decode()
    except (binascii.Error, lzma.LZMAError, EOFError, UnicodeDecodeError):
        raise ValueError(f"the attached {name} is damaged") from None
