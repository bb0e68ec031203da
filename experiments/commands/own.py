"""`new`, `check` and `unpack`: parts of the user's own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analysis.errors import writing
from experiments import exits, law_page, new_parts
from experiments.commands.answer import Answer
from experiments.commands.shared import fail
from experiments.language import source
from experiments.language.own_code import attached_crates
from testbed import own_crates, own_nodes

if TYPE_CHECKING:
    from experiments.commands import documents


def new(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND", help=f"{', '.join(new_parts.KINDS[:-1])} or {new_parts.KINDS[-1]}.", show_default=False
        ),
    ],
    name: Annotated[
        Path, typer.Argument(metavar="NAME", help="Its name, and the folder that is made.", show_default=False)
    ],
) -> Answer[documents.Part]:
    """Make a small crate or Python package with its test: a mechanism, metric, figure or export of your own."""
    part = new_parts.make(kind, name)
    article = "an" if kind[0] in "aeiou" else "a"
    return Answer(
        {"kind": kind, "folder": str(part.folder), "next": part.commands},
        [
            f"{part.folder} has {article} {kind} that works. Next:",
            *(f"  {command}" for command in part.commands),
            f"{new_parts.GUIDE} describes the steps from there.",
        ],
    )


def check(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of the crate.", show_default=False)],
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="NAME=VALUE",
            show_default=False,
            help="Option of its mechanisms, by the full name and in SI units, such as threshold_packets=5. Repeatable.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            show_default=False,
            help="Page: .html for a browser, else Markdown. Default: NAME-check.md.",
        ),
    ] = None,
) -> Answer[documents.Check]:
    """Test the mechanisms of a crate of yours by the laws that Backchannel's own keep, and write a page of what they do
    to a standard set of arrivals. Exit status 1 if a law is broken.
    """
    if folder.is_file():
        fail(
            f"{folder} is a file, but check takes the folder of a crate; './backchannel validate {folder}' checks a "
            "campaign file",
            exits.BAD_INPUT,
        )
    crate = own_crates.read(folder, own_nodes.lockfile())
    own_nodes.use([crate])
    found = law_page.verdicts(crate, dict(map(_option, options or ())))
    path = output or Path(f"{crate.name}-check.md")
    page = law_page.page(crate, found)
    is_html = path.suffix == ".html"
    with writing(path):
        path.write_text(law_page.as_html(f"{crate.name}: laws", page) if is_html else page, encoding="utf-8")
    lines = []
    for verdict in found:
        broken = f"breaks: {', '.join(verdict.broken)}" if verdict.broken else f"keeps all {len(verdict.laws)} laws"
        lines.append(f"{verdict.kind} {verdict.name} {broken}")
    lines.append(f"{path} has the details, and what it does to a standard set of arrivals.")
    mechanisms = [
        {"kind": verdict.kind, "name": verdict.name, "laws": len(verdict.laws), "broken": verdict.broken}
        for verdict in found
    ]
    is_broken = any(verdict.broken for verdict in found)
    return Answer({"page": str(path), "mechanisms": mechanisms}, lines, exits.FAILED if is_broken else exits.OK)


def _option(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        fail(f"--option: '{text}' is not NAME=VALUE", exits.BAD_INPUT)
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def unpack(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A campaign file, such as that of a bundle.")],
    into: Annotated[
        Path, typer.Option("--into", metavar="FOLDER", help="Folder for the sources; it must not exist.")
    ] = Path("unpacked"),
) -> Answer[Sequence[documents.UnpackedCrate]]:
    """Write the code that is attached to a campaign file to a folder, to be read. Nothing is compiled or run."""
    unpacked = []
    for name, crate in attached_crates(source.read_file(file)):
        new_parts.unpack(crate, into / crate.name)
        unpacked.append({"name": name, "folder": str(into / crate.name)})
    lines = [f"{crate['name']}: {crate['folder']}" for crate in unpacked]
    return Answer(unpacked, lines or [f"no code is attached to {file}"])
