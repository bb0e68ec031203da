"""`prune`: deletes results and builds by rule, after it has said what goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

import analysis
from analysis import naming
from analysis.store import StoreError, pruning as of_store, requests
from analysis.store.removal import Removal, RemovalError
from analysis.store.screened import read as read_screened
from experiments import exits, pruning
from experiments.commands.answer import Answer
from experiments.commands.options import RESULTS, ArtefactsOption, ResultsOption, YesOption
from experiments.commands.shared import (
    answer_console,
    ask_to_delete,
    fail,
    progress,
    rejecting,
    results_option,
    show_note,
    wants_json,
)
from experiments.labels import extent_text
from testbed import build_cache, unused_builds
from testbed.units import number_of, show

if TYPE_CHECKING:
    from analysis.store import Store
    from analysis.store.rows import CampaignRow, ScreenedRow
    from experiments.commands import documents
    from experiments.search.file import Question

app = typer.Typer(help="Delete results and builds by rule, after showing what goes.", no_args_is_help=True)

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Delete nothing; print what would go.")]
AgeOption = Annotated[
    str,
    typer.Option(
        "--older-than", metavar="TIME", help="Only campaigns last run longer ago than this, such as '30 d' or '12 h'."
    ),
]
#: What `--only` takes, and what it is called in a sentence.
_WHOLE = "runs"
_WORDS = {_WHOLE: "runs with their values", "files": "files", "captures": "captures"}
#: Names of kept campaigns in a line.
MOST_NAMES = 5


@app.command("runs", short_help="Delete campaigns, or the files or captures of their runs")
def runs(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CAMPAIGN]...",
            show_default=False,
            help="Names or ids of campaigns; of a name, all campaigns that have it. Default: all campaigns, but for "
            "those that something refers to.",
        ),
    ] = None,
    older_than: AgeOption = "",
    keep: Annotated[
        int, typer.Option("--keep", metavar="N", min=0, help="Keep the newest N campaigns of each name.")
    ] = 0,
    only: Annotated[
        str,
        typer.Option(
            "--only",
            metavar="WHAT",
            help="What goes: 'runs' with their values, their 'files' alone, or of these the 'captures' alone. Values "
            "stay without files, and figures of single runs do not.",
        ),
    ] = _WHOLE,
    referenced: Annotated[
        bool,
        typer.Option(
            "--referenced", help="Also collections, and what papers, report cards, bundles or notes refer to."
        ),
    ] = False,
    now: Annotated[
        bool, typer.Option("--now", help="Delete runs at once, without a day in which 'undelete' restores them.")
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    results: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
) -> Answer[documents.Pruned]:
    """Delete campaigns by name, age or number, or the files or captures of their runs. It first prints what would go.

    Campaigns that run stay. So does what cannot be made again or something refers to, unless you name it or say
    --referenced. A run that another campaign has stays with its files.
    """
    if only not in _WORDS:
        fail(f"--only is 'runs', 'files' or 'captures', not '{only}'", exits.BAD_INPUT)
    if not (names or older_than or keep):
        fail("say which campaigns go: a CAMPAIGN, --older-than TIME or --keep N", exits.BAD_INPUT)
    with analysis.open(results, artefacts) as opened:
        store = opened.store
        # A campaign whose process was killed does not run.
        requests.release_lost(store)
        with rejecting("--older-than"):
            before = store.now() - pruning.age_s(older_than) if older_than else None
        rule = pruning.Rule(_named(store, names or ()), before, keep, referenced)
        goes, stays = pruning.choose(store.campaigns(texts=True), rule, _references(store))
        for reason, kept in stays.items():
            more = f" and {len(kept) - MOST_NAMES} more" if len(kept) > MOST_NAMES else ""
            _say(f"stays: {', '.join(kept[:MOST_NAMES])}{more}: {reason}")
        removals = _removals(store, goes, only)
        if goes:
            from experiments.tables import removals_table

            answer_console().print(removals_table(goes, removals))
        total = _total(list(removals.values()))
        _say(f"Deletes {_WORDS[only]}: {extent_text(total)}, of {number_of(len(goes), 'campaign')}.")
        lines: list[str] = []
        if goes and not dry_run:
            ask_to_delete(yes)
            if only == _WHOLE:
                lines = _delete(store, goes, now, results)
            else:
                _drop_files(store, goes, "captures" if only == "captures" else "files", total.runs)
    campaigns = [
        {"id": row.id, "name": row.name, "runs": removals[row.id].runs, "bytes": removals[row.id].bytes} for row in goes
    ]
    found = {
        "what": only,
        "deleted": bool(goes) and not dry_run,
        "campaigns": campaigns,
        "stays": stays,
    }
    return Answer(found, lines)


@app.command("screened", short_help="Delete runs that searches screened")
def screened(
    interesting: Annotated[
        str,
        typer.Option(
            "--interesting",
            metavar="CONDITION",
            help="Keep runs whose values satisfy this, such as 'throughput(upload) < 100 kbit/s'. Default: keep none.",
        ),
    ] = "",
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    results: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
) -> Answer[documents.PrunedScreened]:
    """Delete screened runs of searches (docs/search.md). What a search has found is an ordinary run and stays. A search
    makes screened runs that are gone again.
    """
    question = _condition(interesting) if interesting else None
    with analysis.open(results, artefacts) as opened:
        database = opened.store.database
        number, characters = of_store.count_screened(database)
        chosen: list[str] = []
        with progress("screened runs: {} of {} read") as show_read:
            read = 0
            for rows in of_store.screened_rows(database) if question is not None else ():
                chosen += [row.run_id for row in rows if not _is_interesting(row, question)]
                read += len(rows)
                show_read(read, number)
        count = number if question is None else len(chosen)
        if count:
            size = show(characters * count / number, "bytes")
            _say(f"Deletes {number_of(count, 'screened run')} of {number}, about {size}.")
        else:
            _say(f"Nothing to delete: of {number_of(number, 'screened run')}, none goes.")
        found = {"deleted": bool(count) and not dry_run, "runs": count, "of": number}
        if not found["deleted"]:
            return Answer(found, [])
        ask_to_delete(yes)
        if question is None:
            chosen = [row.run_id for rows in of_store.screened_rows(database) for row in rows]
        _in_parts(chosen, of_store.ROWS, lambda some: of_store.drop_screened(database, some))
        _compact(opened.store)
    return Answer(found, [])


@app.command("caches", short_help="Delete built nodes and kernels that nobody used")
def caches(
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="TIME", help="Only builds that were last used longer ago than this.")
    ] = "30 d",
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> Answer[documents.PrunedCaches]:
    """Delete nodes with crates of yours, kernels that no version or name leads to, and compiled modules, if they were
    not used for a while. What is needed again is built again.
    """
    with rejecting("--older-than"):
        unused = unused_builds.find(pruning.age_s(older_than))
    kinds = []
    for kind, builds in unused_builds.by_kind(unused).items():
        taken = sum(build.bytes for build in builds)
        place = build_cache.place(kind)
        kinds.append({"kind": kind, "builds": len(builds), "bytes": taken, "folder": str(place)})
        _say(f"{kind}: {number_of(len(builds), 'build')}, {show(taken, 'bytes')}, in {place}")
    if unused:
        total = show(sum(build.bytes for build in unused), "bytes")
        _say(f"Deletes {number_of(len(unused), 'build')}, {total}.")
    else:
        _say(f"Nothing to delete: every build was used within {older_than}.")
    if unused and not dry_run:
        ask_to_delete(yes)
        for build in unused:
            unused_builds.remove(build)
    return Answer({"deleted": bool(unused) and not dry_run, "builds": kinds}, [])


# Which -------------------------------------------------------------------------------------------------------


def _named(store: Store, names: Sequence[str]) -> frozenset[str]:
    """Ids of the campaigns of these names or ids."""
    known = store.campaigns()
    ids: set[str] = set()
    for name in names:
        of_name = [row.id for row in known if row.name == name]
        ids |= set(of_name or [naming.found(known, name).id])
    return frozenset(ids)


def _references(store: Store) -> Callable[[CampaignRow], str]:
    """Why a campaign should stay."""
    from experiments.cards import criteria
    from experiments.papers.reproduction import ARTEFACT

    cases = {f"card-{case.name}" for case in criteria.named([])}
    noted = of_store.with_notes(store.database)

    def reason(row: CampaignRow) -> str:
        if not row.text:
            return "is a collection, whose runs cannot be made again"
        if ARTEFACT.search(row.text):
            return "reproduces a paper's artefact"
        if row.name in cases:
            return "belongs to a report card"
        if row.id in noted:
            return "has runs with notes"
        return "came in a bundle" if of_store.is_from_bundle(store.database, row.id) else ""

    return reason


def _condition(text: str) -> Question:
    from experiments.search.file import read_question

    with rejecting("--interesting"):
        question = read_question({"where": text})
        if question.expression.needs_scenario:
            raise ValueError("starvation needs the scenario, which a screened run does not have: use its throughput")
    return question


def _is_interesting(row: ScreenedRow, question: Question | None) -> bool:
    if question is None:
        return False
    number = question.expression.value(read_screened(row.run_id, row.metrics, row.problems).values)
    return number is not None and question.sample([number]) > 0


# What goes ---------------------------------------------------------------------------------------------------


def _removals(store: Store, goes: Sequence[CampaignRow], only: str) -> dict[str, Removal]:
    ids = [row.id for row in goes]
    if only != _WHOLE:
        return store.files_of(ids, "captures" if only == "captures" else "files")
    return {id_: store.would_go(id_, ids[:number]) for number, id_ in enumerate(ids)}


def _total(removals: Sequence[Removal]) -> Removal:
    return Removal(*(sum(getattr(each, name) for each in removals) for name in ("runs", "bytes", "shared")))


def _say(text: str) -> None:
    """Tells what would go, before it is asked for; scripts have it in the answer."""
    typer.echo(text, err=wants_json.get())


def _delete(store: Store, goes: Sequence[CampaignRow], now: bool, results: str) -> list[str]:
    """Returns what to say then."""
    deleted = []
    for row in goes:
        try:
            store.set_aside(row.id, "deleted")
            deleted.append(row.id)
        except RemovalError as error:
            # It began meanwhile.
            show_note(f"{row.name} ({row.id}) stays: {error}")
    if not now:
        undelete = f"./backchannel undelete CAMPAIGN{results_option(results)}"
        return [f"For a day, `{undelete}` brings each of them back; then the files go."]
    _in_parts(deleted, 1, lambda some: store.purge(some[0]))
    _compact(store)
    return []


def _drop_files(store: Store, goes: Sequence[CampaignRow], what: of_store.Files, runs: int) -> None:
    with progress("files: of {} of {} runs deleted") as show_done:
        store.drop_files([row.id for row in goes], what, lambda done: show_done(done, runs))
    _compact(store)


def _in_parts(ids: Sequence[str], together: int, work: Callable[[Sequence[str]], object]) -> None:
    with progress("{} of {} deleted") as show_done:
        for start in range(0, len(ids), together):
            work(ids[start : start + together])
            show_done(min(start + together, len(ids)), len(ids))


def _compact(store: Store) -> None:
    try:
        of_store.compact(store.database)
    except StoreError as error:
        # Another program uses it, or the disk has no room for a second copy.
        show_note(f"the database keeps its size: {error}; later runs fill the free room")
