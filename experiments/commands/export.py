"""`./backchannel export` and `./backchannel import-bundle`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import polars as pl

    from analysis.store import Store

#: What can be written, of what, and what its file is called unless the command line says.
KINDS = {
    "values": ("campaign", "a row per run, metric and flow", "{name}-values.csv"),
    "means": ("campaign", "means, deviations and confidence intervals", "{name}-means.csv"),
    "bundle": ("campaign", "an RO-Crate with captures, manifests, tables and figures", "{name}.crate.zip"),
    "metrics": ("run", "the run's metrics", "{name}-metrics.csv"),
    "segments": ("run", "every captured segment", "{name}-segments.parquet"),
    "connections": ("run", "every connection", "{name}-connections.csv"),
    "acks": ("run", "what became of acks, at every line", "{name}-acks.csv"),
    "flent": ("run", "Flent's data format", "{name}.flent.gz"),
    "xplot": ("run", "a folder of xplot files, as tcptrace writes them", "{name}-xplot"),
    "flent-series": ("a Flent file", "its series", "{name}-series.csv"),
    "flent-raw": ("a Flent file", "its raw values", "{name}-raw.csv"),
}

ResultsOption = Annotated[
    Path, typer.Option("--results", metavar="DIR", envvar="BACKCHANNEL_RESULTS", help="Where results are kept.")
]


def export(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"{', '.join(KINDS)} (docs/exports.md).")],
    subject: Annotated[
        str, typer.Argument(metavar="RUN|CAMPAIGN|FILE", help="A run's id or its beginning; a campaign; a Flent file.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Where to write it; a table's ending (.csv, .parquet, .json) is its format."),
    ] = None,
    author: Annotated[str, typer.Option("--author", help="Of a bundle: who made the runs.")] = "",
    licence: Annotated[str, typer.Option("--licence", metavar="URL", help="Of a bundle; CC BY 4.0 without it.")] = "",
    results: ResultsOption = Path("results"),
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
    store = frames.open_store(results)
    try:
        for line in _write(kind, subject, out, store, author, licence):
            typer.echo(line)
    except MissingCapture as error:
        raise AnalysisError(str(error)) from None
    finally:
        store.close()


def _write(kind: str, subject: str, out: Path | None, store: Store, author: str, licence: str) -> list[str]:
    """Writes it; what to tell about it."""
    from analysis import frames
    from analysis.exports import crate, flent, tables, xplot
    from experiments.catalogue import FOLDER

    of, _, called = KINDS[kind]
    # Told before anything is computed.
    name = frames.find_campaign(store, subject).name if of == "campaign" else frames.find_run(store, subject).id
    path = out or Path(called.format(name=name))
    if kind == "bundle":
        digest = crate.write(store, subject, path, FOLDER, author, licence or crate.LICENCE)
        return [str(path), f"sha256 {digest}"]
    if kind == "xplot":
        run = frames.run_data(name, store)
        return [str(one) for flow in run.flows for one in xplot.write(flow, path)]
    if kind == "flent":
        flent.write(frames.run_data(name, store), path, title=_title(store, name))
    else:
        tables.write(_table(kind, subject if of == "campaign" else name, store), path)
    return [str(path)]


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
    own = run.campaigns[0]
    point = ", ".join(f"{field.rpartition('.')[2]}={value}" for field, value in own.parameters)
    return ", ".join(part for part in (own.name, point, f"repetition {own.repetition + 1}") if part)


def _of_flent(kind: str, file: Path, out: Path | None) -> list[str]:
    from analysis.exports import flent, tables

    data = flent.read(file)
    path = out or Path(KINDS[kind][2].format(name=file.name.partition(".")[0]))
    tables.write(data.series if kind == "flent-series" else data.raw, path)
    return [str(path)]


def import_bundle(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `export bundle` wrote, here or elsewhere.")],
    results: ResultsOption = Path("results"),
) -> None:
    """Bring a bundled campaign into the results, after every checksum has been verified."""
    from analysis.errors import AnalysisError
    from analysis.exports import crate_reader
    from analysis.store import Store

    if not file.is_file():
        raise AnalysisError(f"there is no file {file}")
    store = Store.open(results)
    try:
        told = crate_reader.read(store, file)
    finally:
        store.close()
    typer.echo(
        f"{told['name']} ({told['id']}): {told['files']} files verified; {told['runs']} runs, {told['landed']} new here"
    )
