"""Files that a campaign names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

from pydantic import ValidationInfo

from analysis.attached import MAX_FILE_BYTES

#: Gives the text of a file by its name. Raises ValueError.
Reader = Callable[[str], str]


def no_file(name: str) -> str:
    """Reads files for a text that has no folder.

    Raises:
        ValueError: always.
    """
    raise ValueError(
        f"files cannot be read here, and {name} is not attached to this text; run the file in its folder "
        "(./backchannel run)"
    )


def reader(info: ValidationInfo) -> Reader:
    """What reads a campaign's files: the context of its validation (Source.file)."""
    return no_file if info.context is None else cast(Reader, info.context)


def named(value: object, read: Reader) -> str:
    """The text of a file that a campaign names.

    Raises:
        ValueError: the value is not a file name, or the file cannot be read.
    """
    if not isinstance(value, str):
        raise ValueError(f"'{value}' is not a file name; write the name of a file beside the campaign file")
    return read(value)


def read_path(path: Path) -> str:
    """The text of a file on this machine.

    Raises:
        ValueError: it is not a regular file, cannot be read, is too large, or is not UTF-8.
    """
    try:
        if path.exists() and not path.is_file():
            raise ValueError(f"{path} is not a regular file")
        with path.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise ValueError(f"{path} is larger than {MAX_FILE_BYTES // 1024**2} MiB")
        return data.decode()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text (byte {error.start}); save the file as UTF-8") from None
