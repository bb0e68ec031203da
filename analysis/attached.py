"""Files attached to a campaign's text as comments, so that the text is complete without its folder.

Included campaign files are attached as they are. Traces, programs and sources have very many lines and are compressed.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import lzma
import re
from collections.abc import Mapping

#: Size limit of files that a campaign names, because scenarios contain them.
MAX_FILE_BYTES = 8 * 1024 * 1024
#: Ends the comment above an included text. Texts that the included text includes are comments within it.
_INCLUDED_HEAD = ", which is included above:"
_INCLUDED = re.compile(rf"# (?!# )(.+){re.escape(_INCLUDED_HEAD)}")
_PACKED_HEAD = ", which is read above, packed (xz, base64):"
_WIDTH = 110
#: Memory limit of decompression, because texts come from visitors of the site too.
_MAX_MEMORY_BYTES = 64 << 20


def include(text: str, name: str, body: str) -> str:
    """A campaign's text with a file that it includes attached."""
    commented = "".join(f"# {line}".rstrip() + "\n" for line in body.splitlines())
    return f"{text.rstrip()}\n\n# {name}{_INCLUDED_HEAD}\n{commented}"


def included(text: str) -> dict[str, str]:
    """The attached texts by the names under which a text includes them."""
    bodies: dict[str, list[str]] = {}
    lines: list[str] | None = None
    for line in text.splitlines():
        head = _INCLUDED.fullmatch(line)
        if head is not None:
            lines = bodies.setdefault(head[1], [])
        elif line.startswith("# ") and line.endswith(_PACKED_HEAD):
            lines = None
        elif lines is not None and line.startswith("#"):
            lines.append(line.removeprefix("#").removeprefix(" "))
    return {name: "\n".join(lines).strip("\n") + "\n" for name, lines in bodies.items()}


def attach(text: str, bodies: Mapping[str, str]) -> str:
    """A campaign's text with files attached, compressed. A name that the text has already keeps its file."""
    there = set(text.splitlines())
    for name, body in bodies.items():
        head = f"# {name}{_PACKED_HEAD}"
        if head not in there:
            data = base64.b64encode(lzma.compress(body.encode())).decode()
            lines = "".join(f"# {data[at : at + _WIDTH]}\n" for at in range(0, len(data), _WIDTH))
            text = f"{text.rstrip()}\n\n{head}\n{lines}"
    return text


def body_of(text: str, name: str) -> str | None:
    """The content of a compressed file; None if it is not attached.

    Raises:
        ValueError: it is damaged or larger than MAX_FILE_BYTES.
    """
    lines = iter(text.splitlines())
    if f"# {name}{_PACKED_HEAD}" not in lines:
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
