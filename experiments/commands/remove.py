"""`archive`, `delete` and `undelete`: what happens to campaigns that nobody needs in lists any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

import analysis
from analysis import naming
from analysis.store import requests
from experiments.commands.answer import Answer
from experiments.commands.options import RESULTS, ArtefactsOption, ResultsOption, YesOption
from experiments.commands.shared import ask_to_delete, console, open_campaign, wants_json
from experiments.labels import campaign_summary, extent_text
from testbed.units import show

if TYPE_CHECKING:
    from analysis.handle import OpenResults, StoredRun
    from analysis.store.removal import State
    from experiments.commands import documents

SubjectArgument = Annotated[
    str,
    typer.Argument(
        metavar="CAMPAIGN|RUN",
        show_default=False,
        help="Name or id of a campaign, or id of an imported run or session; an id's first characters will do.",
    ),
]


@dataclass(frozen=True)
class _Subject:
    """What is archived or deleted: a campaign, or a run of a collection."""

    id: str
    #: What a sentence calls it.
    title: str
    run: StoredRun | None = None


def _found(store: OpenResults, name: str) -> _Subject:
    known = [*store.store.campaigns(), *store.store.campaigns(set_aside="archived")]
    if any(name == row.name or row.id.startswith(name) for row in known) or not store.store.run_ids(name):
        row = open_campaign(store, name).row
        return _Subject(row.id, f"campaign {row.name} ({row.id})")
    run = store.run(name)
    return _Subject(run.id, f"run {run.id}", run)


def _set_aside(store: OpenResults, subject: _Subject, state: State) -> str:
    """Archives or deletes it; returns the id that `undelete` takes."""
    if subject.run is not None:
        return store.store.set_run_aside(subject.id, state)
    # A campaign whose process was killed does not run.
    requests.release_lost(store.store)
    store.store.set_aside(subject.id, state)
    return subject.id


def archive(
    name: SubjectArgument, results: ResultsOption = RESULTS, artefacts: ArtefactsOption = None
) -> Answer[documents.SetAside]:
    """Take a campaign, or a run of a collection, out of all lists. Its results stay, and its id still names it."""
    with analysis.open(results, artefacts) as store:
        subject = _found(store, name)
        archived = _set_aside(store, subject, "archived")
    line = f"{subject.title} is archived. `./backchannel undelete {archived}` lists it again"
    return Answer({"id": archived, "state": "archived"}, [line])


def delete(
    name: SubjectArgument,
    yes: YesOption = False,
    now: Annotated[
        bool, typer.Option("--now", help="Delete the files at once, without a time to restore them.")
    ] = False,
    results: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
) -> Answer[documents.SetAside]:
    """Delete a campaign with its runs and files, or a run of a collection. It can be restored for a day."""
    with analysis.open(results, artefacts) as store:
        subject = _found(store, name)
        if subject.run is not None:
            extent = f"{show(sum(file.bytes for file in subject.run.row.files), 'bytes')} of files"
        else:
            extent = extent_text(store.store.would_go(subject.id))
        typer.echo(f"Deletes {subject.title}: {extent}.", err=wants_json.get())
        ask_to_delete(yes)
        deleted = _set_aside(store, subject, "deleted")
        if now:
            store.store.purge(deleted)
            return Answer({"id": deleted, "state": "purged"}, ["Its files are gone."])
    line = f"For a day, `./backchannel undelete {deleted}` brings it back; then the files go."
    return Answer({"id": deleted, "state": "deleted"}, [line])


def undelete(
    name: Annotated[
        str,
        typer.Argument(metavar="CAMPAIGN", help="Name or id of an archived or deleted campaign. Default: list them."),
    ] = "",
    results: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
) -> Answer[documents.SetAside | Sequence[documents.AsideCampaign]]:
    """List an archived or deleted campaign again, or show which there are."""
    from experiments.tables import campaigns_table

    with analysis.open(results, artefacts) as store:
        known = [row for state in ("archived", "deleted") for row in store.store.campaigns(texts=True, set_aside=state)]
        if not name:
            since = {row.id: store.store.aside(row.id) for row in known}
            apart = {row_id: found.state for row_id, found in since.items() if found is not None}
            rows = [{**campaign_summary(row), "set_aside": apart[row.id]} for row in known if row.id in apart]
            return Answer(rows, lambda: console().print(campaigns_table(known, apart)))
        row = naming.found(known, name)
        listed = store.store.restore(row.id)
    return Answer({"id": listed, "state": "listed"}, [f"{row.name} ({listed}) is listed again"])
