"""The studies of docs/beyond.md: runs what is missing, writes the tables' data and the page's tables, or checks them.

    ./backchannel bench beyond --results results            # runs campaigns and perturbations, writes data and page
    ./backchannel bench beyond --results results --check    # runs nothing; fails where results, data and page differ
    ./backchannel bench beyond --results results --study ack-filters    # only this study; the others stay as they are

The data are experiments/beyond/results.json: for every measure and point the values of the repetitions, and the mean
under each perturbation of the links (`./backchannel sensitivity`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from pydantic import BaseModel, ConfigDict

from analysis.estimates import AT_LEAST_0, Bounds, Estimate, plus_minus
from analysis.handle import StoredCampaign
from analysis.statistics import Compared, compare_all
from analysis.store import Store
from experiments.commands.shared import console
from experiments.engine.options import Options
from experiments.engine.scheduling import run_campaigns
from experiments.language.campaign import Plan, load
from experiments.papers.scorecard import results_table
from experiments.papers.sensitivity import BY, perturbed_plan
from experiments.terminal import TerminalReporter

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/beyond.md"
FOLDER = ROOT / "experiments/beyond"
DATA = FOLDER / "results.json"
#: Perturbations of the links, and repetitions of each.
PERTURBATIONS, PERTURBED_REPETITIONS = 2, 5
#: Significant digits of the data.
DIGITS = 5


class Study(BaseModel):
    """One campaign and what its tables show."""

    model_config = ConfigDict(frozen=True)

    campaign: str
    #: Axes of the rows.
    rows: tuple[str, ...] = ("policy",)
    #: Axis whose labels divide the columns; empty: there is one column for each measure.
    columns: str = ""
    #: Measure to its title.
    measures: Mapping[str, str] = {"download": "download", "upload": "upload"}
    #: Shown values are the measures' times this, in `unit`.
    scale: float = 1e-6
    unit: str = "Mbit/s"
    #: The same of measures with another unit, which their titles state.
    own_scale: Mapping[str, float] = {}
    #: Rows with which all others are compared.
    baselines: tuple[str, ...] = ("droptail", "fq-drr")
    #: Column with which all others are compared in each row; empty: none.
    column_baseline: str = ""
    #: Study of the simulator with which each row that it has too is compared; empty: none. Its runs are others, so
    #: repetitions do not pair.
    simulated: str = ""
    #: (measure, column) that means nothing.
    left_out: tuple[tuple[str, str], ...] = ()
    #: Perturbations of the links; 0 where the kernel's own queues have no option to perturb, or runs take too long.
    perturbations: int = PERTURBATIONS


#: Of the link's rate.
SHARES = {"download_share": "download", "upload_share": "upload"}
#: Answers of which a simulation and Linux have campaigns of their own.
_FILTER = Study(
    campaign="filter-and-quic",
    rows=("download",),
    columns="line",
    measures={"download": "download", "upload": "upload", "ping": "ping's 95th percentile, ms"},
    own_scale={"ping": 1e3},
    baselines=("TCP",),
    perturbations=0,
)
_SENDERS = Study(
    campaign="queues-and-senders-lines",
    rows=("queue", "senders"),
    columns="line",
    measures={"first": "first", "second": "second", "ping": "ping's 95th percentile, ms"},
    own_scale={"ping": 1e3},
    baselines=(),
    perturbations=0,
)
STUDIES = (
    Study(campaign="links-of-today", columns="link", measures=SHARES, scale=100, unit="%"),
    Study(campaign="flow-counts", columns="flows", measures=SHARES, scale=100, unit="%"),
    # Alone there is no upload but a connection of one kilobyte.
    Study(
        campaign="ack-rates",
        rows=("acks",),
        columns="load",
        baselines=("delayed (2)",),
        left_out=(("upload", "downloads alone"),),
    ),
    Study(campaign="lte-like-link"),
    Study(
        campaign="related-work", rows=("scheme",), measures=SHARES, scale=100, unit="%", baselines=("droptail", "AQ")
    ),
    Study(
        campaign="filter-variants",
        rows=("filter",),
        columns="load",
        baselines=("all",),
        left_out=(("upload", "alone"),),
    ),
    Study(
        campaign="queues-of-today",
        rows=("queue",),
        measures={**SHARES, "ping": "ping's 95th percentile, ms"},
        scale=100,
        unit="%",
        own_scale={"ping": 1e3},
    ),
    Study(
        campaign="acks-over-grants",
        rows=("acks",),
        columns="uplink",
        measures={"download": "download", "upload": "upload", "ping": "ping's 95th percentile, ms"},
        own_scale={"ping": 1e3},
        baselines=("TCP",),
    ),
    Study(
        campaign="acks-over-idle-grants",
        rows=("acks",),
        columns="uplink",
        measures={"download": "download", "ping": "ping's 95th percentile, ms"},
        own_scale={"ping": 1e3},
        baselines=("TCP",),
    ),
    _FILTER,
    _FILTER.model_copy(update={"campaign": "filter-and-quic-short"}),
    _FILTER.model_copy(update={"campaign": "filter-and-quic-linux", "simulated": "filter-and-quic-short"}),
    _FILTER.model_copy(update={"campaign": "filter-and-access", "columns": "access"}),
    Study(
        campaign="queues-and-senders",
        rows=("queue", "senders"),
        measures={"first": "first", "second": "second", "ping": "ping's 95th percentile, ms"},
        own_scale={"ping": 1e3},
        baselines=(),
        perturbations=0,
    ),
    _SENDERS,
    _SENDERS.model_copy(update={"campaign": "queues-and-senders-bbr1"}),
    _SENDERS.model_copy(update={"campaign": "queues-and-senders-linux", "simulated": "queues-and-senders-bbr1"}),
    Study(
        campaign="ack-filters",
        rows=("filter",),
        scale=1e-3,
        unit="kbit/s",
        baselines=("CAKE", "CAKE, filter"),
        perturbations=0,
    ),
    Study(campaign="shapers", rows=("shaper",), baselines=("emulator",), perturbations=0),
    Study(
        campaign="kernels",
        rows=("stack", "policy"),
        columns="kernel",
        scale=1e-3,
        unit="kbit/s",
        baselines=(),
        column_baseline="6.12",
        perturbations=0,
    ),
    Study(
        campaign="ten-gigabit",
        rows=("return",),
        measures={"download": "download"},
        scale=1e-9,
        unit="Gbit/s",
        baselines=("1 Gbit/s",),
        perturbations=0,
    ),
)


class Point(BaseModel):
    """A measure at one point."""

    model_config = ConfigDict(frozen=True)

    measure: str
    row: str
    column: str
    #: In the study's unit, one for each repetition; repetitions of all points pair.
    values: tuple[float, ...]
    #: Means under each perturbation.
    perturbed: tuple[float, ...]


class Data(BaseModel):
    """The tables' data: points by campaign."""

    model_config = ConfigDict(frozen=True)

    points: Mapping[str, tuple[Point, ...]]

    def written(self) -> str:
        """The file's text: a line for each point."""
        studies = [
            f'"{name}": [\n' + ",\n".join(point.model_dump_json() for point in points) + "\n]"
            for name, points in self.points.items()
        ]
        return '{"points": {\n' + ",\n".join(studies) + "\n}}\n"


def plans(study: Study) -> list[Plan]:
    """The campaign and its perturbations."""
    file = FOLDER / f"{study.campaign}.yaml"
    shorter = load(file, [f"repetitions={PERTURBED_REPETITIONS}"])
    return [load(file), *(perturbed_plan(shorter, number + 1, BY) for number in range(study.perturbations))]


def collect(store: Store, study: Study) -> tuple[Point, ...]:
    """The points of a study.

    Raises:
        ValueError: a campaign is not complete.
    """
    original, *perturbed = (_values(store, plan, study) for plan in plans(study))
    return tuple(
        Point(
            measure=measure,
            row=row,
            column=column,
            values=tuple(map(_rounded, values)),
            perturbed=tuple(_rounded(fmean(entry[measure, row, column])) for entry in perturbed),
        )
        for (measure, row, column), values in original.items()
    )


def _values(store: Store, plan: Plan, study: Study) -> dict[tuple[str, str, str], list[float]]:
    """By measure, row and column the repetitions' values, in the study's unit."""
    campaign = store.campaign(plan.id)
    table = None if campaign is None else results_table(StoredCampaign(store, campaign))
    result = {
        (measure, ", ".join(cell.labels[axis] for axis in study.rows), cell.labels.get(study.columns, "")): [
            study.own_scale.get(measure, study.scale) * value for value in cell.values
        ]
        for measure in study.measures
        for cell in (table.cells(measure) if table is not None else ())
        if (measure, cell.labels.get(study.columns, "")) not in study.left_out
    }
    if not result or any(len(values) != plan.repetitions for values in result.values()):
        raise ValueError(f"{plan.name} is not complete; run './backchannel bench beyond' without --check")
    return result


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def tables(study: Study, points: Sequence[Point], simulated: Sequence[Point] = ()) -> str:
    """Means and differences of a study, as Markdown. `simulated`: the points of `study.simulated`."""
    by_place = {(point.measure, point.row, point.column): point for point in points}
    rows = list(dict.fromkeys(point.row for point in points))
    columns = [
        (measure, column)
        for column in dict.fromkeys(point.column for point in points)
        for measure in study.measures
        if (measure, column) not in study.left_out
    ]
    heads = [f"{column}, {study.measures[measure]}".removeprefix(", ") for measure, column in columns]
    lines = _head(f"mean, {study.unit}", heads)
    lines += [_line(row, [_mean(study, by_place[measure, row, column]) for measure, column in columns]) for row in rows]
    compared = [
        (baseline, row)
        for number, baseline in enumerate(study.baselines)
        for row in rows
        if row not in study.baselines[: number + 1]
    ]
    pairs = [
        (by_place[measure, baseline, column], by_place[measure, row, column])
        for baseline, row in compared
        for measure, column in columns
    ]
    judged = iter(zip(pairs, compare_all([_sets(*pair) for pair in pairs]), strict=True))
    for baseline in study.baselines:
        lines += ["", *_head(f"less {baseline}, {'points' if study.unit == '%' else study.unit}", heads)]
        lines += [
            _line(row, [_difference(*next(judged)) for _ in columns]) for entry, row in compared if entry == baseline
        ]
    if study.column_baseline:
        lines += _beside_a_column(study, by_place, rows, columns)
    if study.simulated:
        lines += _beside_the_simulator(study, by_place, simulated)
    return "\n".join(lines) + "\n"


def _beside_a_column(
    study: Study,
    by_place: Mapping[tuple[str, str, str], Point],
    rows: Sequence[str],
    columns: Sequence[tuple[str, str]],
) -> list[str]:
    """Differences from the baseline's column in each row; all are judged together."""
    others = [(measure, column) for measure, column in columns if column != study.column_baseline]
    pairs = [
        (by_place[measure, row, study.column_baseline], by_place[measure, row, column])
        for row in rows
        for measure, column in others
    ]
    judged = iter(zip(pairs, compare_all([_sets(*pair) for pair in pairs]), strict=True))
    heads = [f"{column}, {study.measures[measure]}" for measure, column in others]
    lines = [_line(row, [_difference(*next(judged)) for _ in others]) for row in rows]
    return ["", *_head(f"less {study.column_baseline}, {study.unit}", heads), *lines]


def _beside_the_simulator(
    study: Study, by_place: Mapping[tuple[str, str, str], Point], simulated: Sequence[Point]
) -> list[str]:
    """Differences from the same points in simulation; all are judged together."""
    places = [(point.measure, point.row, point.column) for point in simulated]
    pairs = {
        place: (point, by_place[place]) for place, point in zip(places, simulated, strict=True) if place in by_place
    }
    sets = [_sets(*pair) for pair in pairs.values()]
    alone = [(first, {-1 - number: value for number, value in second.items()}) for first, second in sets]
    judged = dict(zip(pairs, compare_all(alone), strict=True))
    columns = list(dict.fromkeys((measure, column) for measure, _, column in pairs))
    heads = [f"{column}, {study.measures[measure]}".removeprefix(", ") for measure, column in columns]
    lines = [
        _line(row, [_difference(pairs[place], judged[place]) for place in ((m, row, c) for m, c in columns)])
        for row in dict.fromkeys(row for _, row, _ in pairs)
    ]
    return ["", *_head(f"less simulation ({study.simulated}), {study.unit}", heads), *lines]


def _head(first: str, heads: Sequence[str]) -> list[str]:
    return [_line(first, heads), "|---" * (len(heads) + 1) + "|"]


def _line(first: str, cells: Sequence[str]) -> str:
    return f"| {first} | " + " | ".join(cells) + " |"


def _mean(study: Study, point: Point) -> str:
    is_share = study.unit == "%" and point.measure not in study.own_scale
    bounds = Bounds(0.0, 100.0) if is_share else AT_LEAST_0
    return Estimate(point.values, bounds).text("number")


def _sets(first: Point, second: Point) -> tuple[dict[int, float], dict[int, float]]:
    return dict(enumerate(first.values)), dict(enumerate(second.values))


def _difference(pair: tuple[Point, Point], judged: Compared) -> str:
    """ "+12.3 ± 1.1", with "(2 of 3)" where perturbations turn it round; else "same" or "cannot tell"."""
    result = judged.difference
    if judged.verdict != "different":
        return judged.verdict
    changes = [after - before for before, after in zip(pair[0].perturbed, pair[1].perturbed, strict=True)]
    kept = sum(change * result.value > 0 for change in changes)
    shown = plus_minus(result.value, result.half, "+") if result.half else f"{result.value:+.3f}"
    return shown + ("" if kept == len(changes) else f" ({kept} of {len(changes)})")


def markers(study: Study) -> tuple[str, str]:
    """The lines of the page around a study's tables."""
    return f"<!-- {study.campaign}: written by ./backchannel bench beyond -->\n", f"<!-- end of {study.campaign} -->\n"


def tables_of(study: Study, data: Data) -> str:
    """The tables of a study, with the comparison that it asks for."""
    return tables(study, data.points[study.campaign], data.points.get(study.simulated, ()))


def page(text: str, data: Data, studies: Sequence[Study] = STUDIES) -> str:
    """The page with the data's tables."""
    for study in studies:
        start, end = markers(study)
        before, _, rest = text.partition(start)
        text = before + start + tables_of(study, data) + end + rest.partition(end)[2]
    return text


def main() -> None:
    """Writes or checks data and page."""
    parser = argparse.ArgumentParser(description="The tables of docs/beyond.md.")
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="DIR", help="results folder (results)")
    parser.add_argument("--jobs", type=int, help="runs at the same time; as many as there are CPUs by default")
    parser.add_argument(
        "--check", action="store_true", help="run and write nothing; fail if results, data and page differ"
    )
    names = [study.campaign for study in STUDIES]
    parser.add_argument("--study", action="append", choices=names, help="only this study; may be repeated")
    args = parser.parse_args()
    studies = [study for study in STUDIES if study.campaign in (args.study or names)]
    if not args.check:
        every = [plan for study in studies for plan in plans(study)]
        outcomes = run_campaigns(every, Options(args.results, args.jobs), TerminalReporter(console(stderr=True)))
        if any(outcome.interrupted or outcome.failed for outcome in outcomes):
            sys.exit("not complete; the same command continues")
    store = Store.open(args.results)
    try:
        written = Data.model_validate_json(DATA.read_text("utf-8")).points
        collected = {study.campaign: collect(store, study) for study in studies}
        points = {**written, **collected}
        data = Data(points={name: points[name] for name in names if name in points})
    except ValueError as error:
        sys.exit(str(error))
    finally:
        store.close()
    text = PAGE.read_text(encoding="utf-8")
    # Linux's tables have differences from the simulator's values too.
    shown = [study for study in STUDIES if {study.campaign, study.simulated} & collected.keys()]
    made = {DATA: data.written(), PAGE: page(text, data, shown)}
    if args.check:
        differ = [str(path.relative_to(ROOT)) for path, wanted in made.items() if path.read_text("utf-8") != wanted]
        sys.exit(f"{' and '.join(differ)} differ from {args.results}" if differ else 0)
    for path, wanted in made.items():
        path.write_text(wanted, encoding="utf-8")
    for study in studies:
        print(f"\n{study.campaign}\n\n{tables_of(study, data)}", end="")


if __name__ == "__main__":
    main()
