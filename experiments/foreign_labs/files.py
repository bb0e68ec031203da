"""Reads foreign files within bounds, with the line of each value."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.parsers import expat

from experiments.foreign_labs.lent import ROWS, Rows, wrong
from experiments.language import yaml_text

#: Largest file, in bytes.
MAX_BYTES = 2_000_000
#: Bounds of an XML document: how deep it is, and how many elements it has.
MAX_DEPTH, MAX_ELEMENTS = 40, 50_000


@dataclass
class Element:
    """An element of an XML document."""

    #: Without its namespace.
    tag: str
    attributes: dict[str, str]
    line: int
    children: list[Element] = field(default_factory=list)

    def all(self, tag: str) -> list[Element]:
        """Its children of one kind."""
        return [child for child in self.children if child.tag == tag]


def text_of(path: Path) -> str:
    """A file's text.

    Raises:
        CampaignError: it cannot be read, is too large or no text.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise wrong(str(path), 0, "", f"cannot be read: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise wrong(str(path), 0, "", f"is too large for a description of a lab; at most {MAX_BYTES} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise wrong(str(path), 0, "", "is not UTF-8 text") from None


def rows_of(path: Path) -> tuple[Any, Rows]:
    """The values of a YAML or JSON file, and a reader that knows their lines. A list is in the field ROWS.

    Raises:
        CampaignError: it is neither, or too large.
    """
    text = text_of(path)
    if text.lstrip().startswith(("[", "- ")):
        # The lines stay those of the file. JSON is YAML, with spaces instead of tabs.
        is_json = text.lstrip().startswith("[")
        text = f'{{"{ROWS}": {text}}}' if is_json else f'"{ROWS}":\n{text}'
        offset = 0 if is_json else 1
    else:
        offset = 0
    values, lines = yaml_text.parse(str(path), text.replace("\t", " "))
    return values, Rows(str(path), {place: max(line - offset, 0) for place, line in lines.items()})


def xml_of(path: Path) -> Element:
    """The root of an XML document. A document type is refused, and with it every entity.

    Raises:
        CampaignError: it is not such a document, or is too large.
    """
    file, text = str(path), text_of(path)
    parser = expat.ParserCreate(namespace_separator=" ")
    open_: list[Element] = []
    roots: list[Element] = []
    count = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        line = parser.CurrentLineNumber
        if len(open_) >= MAX_DEPTH or count > MAX_ELEMENTS:
            raise wrong(
                file, line, "", f"has more than {MAX_ELEMENTS} elements, or more than {MAX_DEPTH} in each other"
            )
        plain = {key.rpartition(" ")[2]: value for key, value in attributes.items()}
        element = Element(name.rpartition(" ")[2], plain, line)
        (open_[-1].children if open_ else roots).append(element)
        open_.append(element)

    def end(_: str) -> None:
        open_.pop()

    def refuse(*_: object) -> None:
        raise wrong(file, parser.CurrentLineNumber, "", "declares a document type, which no manifest needs; remove it")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise wrong(file, error.lineno, "", f"is not XML: {expat.ErrorString(error.code)}") from None
    return roots[0]
