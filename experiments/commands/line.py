"""`line`: a client and a server of a project over an emulated link, for tests in any language."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from experiments.commands.answer import Answer
from experiments.commands.options import RESULTS, ResultsOption, SetOption
from experiments.commands.shared import store_location
from testbed.errors import BadRequest

if TYPE_CHECKING:
    from experiments.commands import documents

PROFILE = typer.Argument(metavar="PROFILE", help="Profile of the link: 'list profiles' shows them.", show_default=False)


def line(
    profile: Annotated[str, PROFILE],
    client: Annotated[
        str, typer.Option("--client", metavar="COMMAND", help="The client, in words as a shell divides them.")
    ],
    server: Annotated[
        str,
        typer.Option(
            "--server",
            metavar="COMMAND",
            help="The server. Words of both may contain {server}, {client}, {port} and {seed} (docs/programs.md).",
        ),
    ],
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Name of the campaign. 'regressions' compares equal names.")
    ] = "line",
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="N", min=1, max=1000, help="Number of runs, with the seeds 1 to N.")
    ] = 1,
    ready: Annotated[
        str,
        typer.Option(
            "--ready",
            metavar="SIGN",
            help="What shows that the server serves: tcp or udp (a socket on {port}), or started.",
        ),
    ] = "tcp",
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            metavar="NAME=YAML",
            show_default=False,
            help="A value of an output, such as 'first_byte={json: t, unit: s}' (docs/programs.md). Repeatable.",
        ),
    ] = None,
    overrides: SetOption = None,
    results: ResultsOption = RESULTS,
) -> Answer[Sequence[documents.LineRun]]:
    """Run a client and a server of yours over an emulated link, in virtual time, and print a JSON object for each run.

    A client that has not ended after 60 s of virtual time fails, unless '--set duration' says otherwise. Programs see
    the system's files and those below the working folder; write their paths in full. The same programs and profile give
    the same packets. The results folder keeps captures and plots. Exit status 1 if a program fails.
    """
    from experiments.line import Line, settings

    place = store_location(results)
    if not isinstance(place, Path):
        raise BadRequest(f"--results {results}: 'line' keeps its runs in a folder, so name one")
    os.environ.update(settings(Path.cwd(), os.environ))
    metrics = dict(_metric(text) for text in metric or [])
    runs = Line(profile, {}, name, place).run(
        _words("--server", server),
        _words("--client", client),
        seeds=seeds,
        ready=ready,
        metrics=metrics,
        overrides=overrides or [],
    )
    shown = [
        {
            "id": run.stored.row.id,
            "metrics": run.metrics,
            "output": run.output,
            "captures": [str(path) for path in run.captures],
            "qlogs": [str(path) for path in run.qlogs],
        }
        for run in runs
    ]
    return Answer(shown, [json.dumps(shown, indent=2)])


def _words(option: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BadRequest(f"{option}: {error} in: {text}") from None


def _metric(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    try:
        if equals:
            return name, YAML(typ="safe").load(value)
    except YAMLError as error:
        raise BadRequest(f"--metric {text}: {str(error).splitlines()[0]}") from None
    raise BadRequest(f"--metric {text}: write it as 'NAME={{json: PATH, unit: UNIT}}'")
