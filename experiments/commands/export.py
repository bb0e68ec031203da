"""`./backchannel export` and `./backchannel import-bundle`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.commands.options import RESULTS, ArtefactsOption, ResultsOption

if TYPE_CHECKING:
    import polars as pl

    from analysis.store import Store

#: Kinds of exports: subject, contents and default file name.
KINDS = {
    "values": ("campaign", "a row per run, metric and flow", "{name}-values.csv"),
    "means": ("campaign", "means, deviations and confidence intervals", "{name}-means.csv"),
    "bundle": ("campaign", "an RO-Crate with captures, manifests, tables and figures", "{name}.crate.zip"),
    "metrics": ("run", "the run's metrics", "{name}-metrics.csv"),
    "segments": ("run", "every captured segment", "{name}-segments.parquet"),
    "connections": ("run", "every connection", "{name}-connections.csv"),
    "acks": ("run", "acks at every line: forwarded, dropped, filtered", "{name}-acks.csv"),
    "flent": ("run", "Flent's data format", "{name}.flent.gz"),
    "xplot": ("run", "a folder of xplot files, as tcptrace writes them", "{name}-xplot"),
    "flent-series": ("a Flent file", "its series", "{name}-series.csv"),
    "flent-raw": ("a Flent file", "its raw values", "{name}-raw.csv"),
}


def _kinds_help() -> str:
    """ "Of a run: metrics, ... Of a campaign: ..."."""
    kinds: dict[str, list[str]] = {}
    for name, (subject, _, _) in KINDS.items():
        kinds.setdefault(subject.removeprefix("a "), []).append(name)
    return " ".join(f"Of a {subject}: {', '.join(names)}." for subject, names in kinds.items())


def export(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"{_kinds_help()} Details: docs/exports.md.")],
    subject: Annotated[
        str,
        typer.Argument(
            metavar="RUN|CAMPAIGN|FILE", help="Id of a run, or its first characters; name of a campaign; a Flent file."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            show_default=False,
            help="File to write; of a table, .csv, .parquet or .json. Default: named after the subject and the kind.",
        ),
    ] = None,
    author: Annotated[str, typer.Option("--author", metavar="NAME", help="Author of a bundle's runs.")] = "",
    licence: Annotated[
        str, typer.Option("--licence", metavar="URL", help="Licence of a bundle. Default: CC BY 4.0.")
    ] = "",
    results: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
) -> None:
    """Write results for other programs: tables, Flent and xplot files, and bundles of campaigns."""
    from analysis import frames
    from analysis.captures import MissingCapture
    from analysis.errors import AnalysisError, unknown

    if kind not in KINDS:
        raise unknown("export", kind, KINDS)
    if kind.startswith("flent-"):
        for line in _of_flent(kind, Path(subject), out):
            typer.echo(line)
        return
    store = frames.open_store(results, artefacts)
    try:
        for line in _write(kind, subject, out, store, author, licence):
            typer.echo(line)
    except MissingCapture as error:
        raise AnalysisError(str(error)) from None
    finally:
        store.close()


def _write(kind: str, subject: str, out: Path | None, store: Store, author: str, licence: str) -> list[str]:
    """Writes an export. Returns lines to print."""
    from analysis import frames
    from analysis.errors import AnalysisError
    from analysis.exports import crate, flent, tables, xplot
    from experiments.catalogue import FOLDER
    from experiments.commands.shared import wider_limits

    of, _, called = KINDS[kind]
    # An unknown subject is reported before anything is computed.
    wider: list[str] = []
    if of == "campaign":
        campaign = frames.find_campaign(store, subject)
        name, wider = campaign.name, wider_limits(store, campaign.id, campaign.backend)
    else:
        name = frames.find_run(store, subject).id
    path = out or Path(called.format(name=name))
    if kind == "bundle":
        digest = crate.write(store, subject, path, FOLDER, author, licence or crate.LICENCE)
        return [str(path), f"sha256 {digest}", *wider]
    if kind == "xplot":
        run = frames.run_data(name, store)
        if not run.flows:
            raise AnalysisError("this run has no flows: there is nothing to write")
        files = [str(file) for flow in run.flows for file in xplot.write(flow, path)]
        if not files:
            raise AnalysisError("no flow of this run has segments at its sender: there is nothing to write")
        return files
    if kind == "flent":
        flent.write(frames.run_data(name, store), path, title=_title(store, name))
    else:
        tables.write(_table(kind, subject if of == "campaign" else name, store), path)
    return [str(path), *wider]


def _table(kind: str, name: str, store: Store) -> pl.DataFrame:
    import polars as pl

    from analysis import frames, metrics

    if kind == "values":
        return frames.values(name, store)
    if kind == "means":
        return frames.means(name, store)
    if kind == "metrics":
        rows = frames.find_run(store, name).metrics
        columns = {"run_id": pl.String, "name": pl.String, "subject": pl.String, "value": pl.Float64, "unit": pl.String}
        return pl.DataFrame([vars(row) for row in rows], schema=columns).rename({"name": "metric"})
    run = frames.run_data(name, store)
    if kind == "acks":
        return metrics.ack_accounting(run)
    return run.segments if kind == "segments" else run.connections


def _title(store: Store, run_id: str) -> str:
    """A run's campaign and point, as Flent's legends show it."""
    run = store.run(run_id)
    assert run is not None
    if not run.campaigns:
        return run_id
    membership = run.campaigns[0]
    point = ", ".join(f"{field.rpartition('.')[2]}={value}" for field, value in membership.parameters)
    return ", ".join(part for part in (membership.name, point, f"repetition {membership.repetition + 1}") if part)


def _of_flent(kind: str, file: Path, out: Path | None) -> list[str]:
    from analysis.exports import flent, tables

    data = flent.read(file)
    path = out or Path(KINDS[kind][2].format(name=file.name.partition(".")[0]))
    tables.write(data.series if kind == "flent-series" else data.raw, path)
    return [str(path)]


def import_bundle(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Bundle that `export bundle` wrote, on any machine.")],
    results: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
) -> None:
    """Verify the checksums of a bundle and add its campaign to the results."""
    from analysis.errors import AnalysisError
    from analysis.exports import crate_reader
    from analysis.store import Store
    from experiments.commands.shared import store_location

    if not file.is_file():
        raise AnalysisError(f"there is no file {file}")
    store = Store.open(store_location(results), artefacts)
    try:
        read = crate_reader.read(store, file)
    finally:
        store.close()
    typer.echo(f"{read.name} ({read.id}): {read.files} files verified; {read.runs} runs, {read.landed} new here")
