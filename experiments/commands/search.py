"""`search`: the place of a campaign's space where something happens."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from ruamel.yaml import YAML

from analysis.errors import writing
from analysis.results import Quantity
from experiments import exits
from experiments.commands.answer import Answer
from experiments.commands.options import RESULTS, ArtefactsOption, JobsOption, ResultsOption
from experiments.commands.shared import console, fail, run_plans, show_note, store_location
from experiments.engine.options import Options
from experiments.labels import level_text, point_label
from experiments.language.backends import Backend
from experiments.language.problems import CampaignError
from testbed.errors import Unavailable
from testbed.units import number_of

if TYPE_CHECKING:
    from analysis.statistics import Interval
    from analysis.store import Store
    from experiments.commands import documents
    from experiments.language.campaign import Plan
    from experiments.search.evaluate import Candidate, Evaluated, Evaluator
    from experiments.search.file import SearchFile
    from experiments.search.loop import Search, Shrunk

#: Answers that are tried with fresh seeds, and share the error.
TRIED = 3
LEVEL = 0.95
#: Most repetitions on Linux in virtual time, where a run takes seconds.
LINUX_REPETITIONS = 5


def search(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A search file (docs/search.md).", show_default=False)],
    runs: Annotated[int, typer.Option("--runs", "-n", metavar="N", min=16, help="Runs of the search.")] = 500,
    repetitions: Annotated[
        int, typer.Option("--confirm", metavar="N", min=3, max=1000, help="Fresh seeds that repeat what was found.")
    ] = 10,
    linux: Annotated[
        bool, typer.Option("--linux/--no-linux", help="Repeat what was found on Linux in virtual time.")
    ] = True,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Folder of the campaign and the map that are written.")
    ] = Path(),
    results: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
    jobs: JobsOption = None,
) -> Answer[documents.Search]:
    """Search a campaign's parameters for the combination where something happens, such as an upload that starves. Write
    the smallest campaign that shows it, and repeat that with fresh seeds and on Linux in virtual time.

    The same command continues an interrupted search. Exit status 1 when nothing was found, or fresh seeds do not show
    it.
    """
    from analysis.store import Store
    from experiments.search.evaluate import Evaluator, check
    from experiments.search.file import read
    from experiments.search.loop import Undecided, search as search_for

    described = read(file)
    check(described)
    terminal = console(stderr=True)
    with Store.open(store_location(results), artefacts) as store, terminal.status("") as status:
        evaluator = Evaluator(described, store, jobs)

        def show(state: Search) -> None:
            text = f"{described.name}: {evaluator.runs} of {runs} runs, {_state(state)}"
            if terminal.is_terminal:
                status.update(text)
            else:
                terminal.print(text, highlight=False, soft_wrap=True)

        try:
            state = search_for(described, evaluator, runs, show)
        except Undecided as error:
            fail(str(error), exits.FAILED)
        if state.note:
            show_note(state.note)
        if all(not point.samples for point in state.points.values()):
            fail(next(iter(state.points.values())).problem, exits.FAILED)
        document = _document(state, evaluator)
        report = [
            f"{number_of(evaluator.runs, 'run')} at {number_of(len(state.points), 'combination')}: {_state(state)}"
        ]
        confirmed = None
        if state.found:
            status.update(f"{described.name}: fresh seeds")
            confirmed = _confirm(state, evaluator, repetitions, document, report)
        if confirmed is not None:
            campaign = out / f"{described.name}-found.yaml"
            _write_campaign(state, confirmed, campaign, repetitions)
            report.append(f"The smallest campaign that shows it is {campaign}; './backchannel run {campaign}' runs it.")
            document["campaign"] = str(campaign)
            status.update(f"{described.name}: ordinary runs")
            options = Options(store_location(results), jobs=jobs, artefacts=artefacts)
            for backend in (Backend.SIM, *([Backend.VIRTUAL_KERNEL] if linux else [])):
                text, row = _repeat(state, confirmed, backend, repetitions, options, store)
                report.append(text)
                document[str(backend)] = row
        elif not state.found:
            report.append("No combination shows it. More runs, or wider ranges, may.")
    _write_map(state, out / f"{described.name}-map.html", report)
    report.append(f"The map is {out / f'{described.name}-map.html'}")
    return Answer(document, report, exits.FAILED if confirmed is None else exits.OK)


def _state(state: Search) -> str:
    ranked = state.ranked
    if state.file.question.decides:
        return f"{number_of(len(state.found), 'combination')} of {len(state.points)} show it"
    return f"best so far {_number(state, ranked[0])}" if ranked else "no values yet"


def _number(state: Search, point: Evaluated) -> str:
    sign = -1 if state.file.question.kind == "min" else 1
    return f"{state.file.question.expression.shown(sign * point.mean)} at {_place(point.candidate)}"


def _place(candidate: Candidate) -> str:
    return point_label({field: str(value) for field, value in candidate.fields}) or "the campaign as it is"


def _document(state: Search, evaluator: Evaluator) -> dict[str, Any]:
    points = []
    for point in state.points.values():
        signed = state.signed(point)
        interval = signed.interval()
        points.append(
            {
                "fields": dict(point.candidate.fields),
                "n": len(point.samples),
                "mean": signed.mean if point.samples else None,
                "low": None if interval is None else interval.low,
                "high": None if interval is None else interval.high,
                "shows": signed.shows() if state.file.question.decides else None,
                "runs": list(point.runs),
                "problem": point.problem,
            }
        )
    return {
        "name": state.file.name,
        "question": {state.file.question.kind: state.file.question.text},
        "runs": evaluator.runs,
        "designed": state.designed,
        "points": points,
    }


# What was found ----------------------------------------------------------------------------------------------


def _confirm(
    state: Search, evaluator: Evaluator, repetitions: int, document: dict[str, Any], report: list[str]
) -> Shrunk | None:
    """The first of the best points that fresh seeds show, shrunk as far as other fresh seeds show that, too.

    The points share the error, and no seed is one by which they were chosen.
    """
    from experiments.search.loop import Shrunk, compared, shrink

    rows = document["fresh_seeds"] = list[dict[str, Any]]()

    def shows(answer: Shrunk, seed: int, level: float) -> bool:
        """Whether fresh seeds show an answer; adds a row and a line that say so."""
        fresh = compared(state, evaluator, answer.candidate, answer.sign, repetitions, seed)
        interval, is_shown = fresh.interval(level), fresh.shows(level)
        low, high = (None, None) if interval is None else (interval.low, interval.high)
        rows.append(
            {
                "fields": dict(answer.candidate.fields),
                "without": sorted(answer.candidate.without),
                "duration": answer.candidate.duration,
                "steps": list(answer.steps),
                "seed": seed,
                "shows": is_shown,
                "level": level,
                "n": len(fresh.samples),
                "mean": fresh.mean if fresh.samples else None,
                "low": low,
                "high": high,
            }
        )
        ends = "no interval" if interval is None else _ends(state, interval)
        steps = f" ({'; '.join(answer.steps)})" if answer.steps else ""
        word = "show it" if is_shown else "do not show it"
        report.append(
            f"{_place(answer.candidate)}{steps}: {len(fresh.samples)} fresh seeds {word}: {ends} ({level_text(level)})"
        )
        return is_shown

    points = state.found[:TRIED]
    level = 1 - (1 - LEVEL) / len(points)
    for number, point in enumerate(points):
        answer = Shrunk(point.candidate, state.sign_of(point.candidate), ())
        if not shows(answer, state.file.seed + 1 + number, level):
            continue
        shrunk = shrink(state, evaluator, answer)
        if shrunk.steps and shows(shrunk, state.file.seed + 1 + TRIED, LEVEL):
            return shrunk
        return answer
    return None


def _ends(state: Search, interval: Interval) -> str:
    question = state.file.question
    return f"{question.amount} {question.expression.shown(interval.low)} to {question.expression.shown(interval.high)}"


def _values(state: Search, candidate: Candidate, backend: Backend, repetitions: int) -> dict[str, Any]:
    from experiments.search.loop import written

    # The seeds of the confirmation chose the answer; these are others.
    values = written(state.file, candidate, f"{state.file.name}-found", repetitions, state.file.seed + 2 + TRIED)
    values["backend"] = str(backend)
    if backend is not Backend.SIM:
        # Counters exist in simulation only.
        values.pop("capture", None)
    return values


def _write_campaign(state: Search, answer: Shrunk, path: Path, repetitions: int) -> None:
    values = _values(state, answer.candidate, Backend.SIM, repetitions)
    order = ("name", "title", "backend")
    ordered = {key: values[key] for key in (*order, *(key for key in values if key not in order))}
    yaml, text = YAML(), io.StringIO()
    yaml.default_flow_style = None
    yaml.dump(_plain(ordered), text)
    head = f"# Written by './backchannel search': the smallest campaign that shows {state.file.question.kind}: "
    with writing(path):
        path.write_text(f"{head}{state.file.question.text}\n{text.getvalue()}")


def _plain(value: Any) -> Any:
    """Without anchors and comments of the file that it was read from."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _repeat(
    state: Search, answer: Shrunk, backend: Backend, repetitions: int, options: Options, store: Store
) -> tuple[str, dict[str, Any]]:
    """Ordinary runs of the written campaign on a backend: a sentence, and the row for scripts."""
    from experiments.language.campaign import expand
    from experiments.search.evaluate import Candidate

    words = "simulated" if backend is Backend.SIM else "Linux in virtual time"
    count = repetitions if backend is Backend.SIM else min(repetitions, LINUX_REPETITIONS)
    candidate = answer.candidate
    candidates = [candidate]
    if not state.file.question.decides:
        candidates.append(Candidate((), candidate.without, candidate.duration))
    try:
        plans = [expand(replace(state.file.base, values=_values(state, each, backend, count))) for each in candidates]
        # The second is what the first is compared with.
        plans = [
            replace(plan, name=name)
            for plan, name in zip(plans, (plans[0].name, f"{state.file.name}-base"), strict=False)
        ]
        run_plans(plans, options, quiet=True)
    except (CampaignError, Unavailable) as error:
        reason = error.problems[0].message if isinstance(error, CampaignError) else str(error)
        return f"{words}: left out: {reason}", {"left_out": reason}
    evaluated = [_of_stored(state.file, each, plan, store) for each, plan in zip(candidates, plans, strict=True)]
    ours = evaluated[0].signed(answer.sign)
    if not state.file.question.decides:
        ours = evaluated[0].less(evaluated[1])
    interval = ours.interval(LEVEL)
    if interval is None:
        return f"{words}: too few values to tell", {"campaign": plans[0].id, "shows": None}
    shows = True if interval.low > 0 else False if interval.high < 0 else None
    text = {True: "shows it", False: "shows the contrary", None: "cannot tell"}[shows]
    row = {"campaign": plans[0].id, "shows": shows, "low": interval.low, "high": interval.high, "n": len(ours.samples)}
    return (f"{words}, {len(ours.samples)} other seeds: {text}: {_ends(state, interval)}, campaign {plans[0].id}"), row


def _of_stored(file: SearchFile, candidate: Candidate, plan: Plan, store: Store) -> Evaluated:
    from experiments.search.evaluate import sampled

    values: dict[str, dict[Quantity, float]] = {}
    for row in store.values(plan.id):
        values.setdefault(row.run_id, {})[Quantity(row.name, row.subject, row.unit)] = row.value
    by_point = [[run for run in plan.runs if run.point == number] for number in range(len(plan.points))]
    return sampled(file.question, candidate, by_point, values)


def _write_map(state: Search, path: Path, report: list[str]) -> None:
    from experiments.search.page import page

    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with writing(path):
        temporary.write_text(page(state, report))
        temporary.replace(path)
