"""What the pages and files of a campaign are made of: its points, metrics, runs and figures, cached."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from flask import abort, g, request, url_for
from werkzeug.datastructures import MultiDict

from analysis import naming, question, swept
from analysis.errors import unknown
from analysis.figures import campaign as figures
from analysis.figures.explorer import KINDS, SLOTS
from analysis.figures.means import Means, ordered
from analysis.handle import StoredCampaign
from analysis.metrics import METRICS, title_of
from analysis.question import Question, is_detail
from analysis.registry import plugin_of
from analysis.results import Quantity, is_output
from analysis.store import notes as written
from analysis.store.queries import RunQuery
from analysis.store.rows import MISSING, CampaignRow, ListedRunRow, MemberRow, NoteRow, PointRow, TableRow
from experiments.papers.figure import CampaignFigure, of_campaign
from experiments.papers.scorecard import published
from testbed import units
from testbed.scenario import Scenario
from web.cache import cached, permanent

#: Rows of a page of runs.
RUNS = 25
#: Pages that an address may ask for; a database refuses greater offsets.
MOST_PAGES = 10**9
#: Names that a message lists.
MOST_LISTED = 12
#: Metrics in the table of runs. With the swept fields there are MOST_COLUMNS at first, which a screen has room for.
COLUMNS, MOST_COLUMNS, LEAST_COLUMNS = (
    (
        "throughput",
        "goodput",
        "retransmissions",
        "latency_p50",
        "latency_p95",
        "responsiveness",
        "call_quality",
        "flow_completion_p50",
        "completion_time",
        "direction_fairness",
    ),
    7,
    3,
)


class Kind(Quantity):
    """A quantity that a campaign has values of, as pages show it."""

    @property
    def unit_name(self) -> str:
        """Its SI unit; empty without one."""
        return units.scale_of(1.0, self.unit)[1]

    @property
    def label(self) -> str:
        """For people: "Throughput, forward"."""
        return f"{title_of(self.metric)}, {self.subject}" if self.subject else title_of(self.metric)


@dataclass(frozen=True)
class RunsPage:
    """A page of a campaign's runs."""

    runs: Sequence[ListedRunRow]
    total: int


def head(campaign_id: str) -> CampaignRow:
    """The campaign; 404 if there is none."""
    campaign: CampaignRow | None = cached(("head", campaign_id), lambda: g.store.campaign_head(campaign_id))
    if campaign is None:
        abort(404, f"Unknown campaign {campaign_id}.")
    return campaign


def apart(campaign_id: str) -> str:
    """What tells it from others of its name; "" where no other has it."""
    if "apart" not in g:
        # A list asks for each of its campaigns.
        g.apart = cached(("apart",), lambda: naming.distinguished(g.store.namesakes()))
    return str(g.apart.get(campaign_id, ""))


def points(campaign_id: str) -> Sequence[PointRow]:
    """Its points."""
    return cached(("points", campaign_id), lambda: g.store.points(campaign_id))


def all_kinds(campaign_id: str) -> list[Kind]:
    """Its metrics; a group of flows comes before its members."""

    def compute() -> list[Kind]:
        found = [Kind(*quantity) for quantity in g.store.kinds(campaign_id)]
        places = question.in_file_order(scenario(campaign_id), {kind.subject for kind in found})
        return sorted(found, key=lambda kind: (order(kind.metric), places.index(kind.subject)))

    return cached(("kinds", campaign_id), compute)


def kinds(campaign_id: str) -> list[Kind]:
    """Its metrics without details, unless it asks about one. The explorer, a run's page and exports have all."""
    asked = question_of(campaign_id)
    wanted = asked.quantity[:2] if asked else None
    return [kind for kind in all_kinds(campaign_id) if not is_detail(kind.metric) or kind[:2] == wanted]


@dataclass(frozen=True)
class Limit:
    """A limit on a metric that runs must keep: "latency_p99/ping <= 200 ms"."""

    text: str
    kind: Kind
    comparison: str
    #: In the SI unit.
    value: float

    def keeps(self, value: float) -> bool:
        """Whether a run with this value is kept."""
        return _COMPARISONS[self.comparison](value, self.value)


_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
#: METRIC/SUBJECT, comparison, value.
_LIMIT = re.compile(r"\s*(.*?)\s*(<=|>=|<|>)\s*(.+?)\s*")


def limit(text: str, known: Sequence[Kind]) -> Limit:
    """A limit from an address.

    Raises:
        ValueError: it is not one, with a sentence that says why.
    """
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise ValueError(f"'{text[:80]}' is not METRIC/FLOW <= VALUE, such as latency_p99/ping <= 200 ms")
    key, comparison, value = match.groups()
    of_key = {kind.key: kind for kind in known} | {kind.metric: kind for kind in known if not kind.subject}
    if key not in of_key:
        raise ValueError(str(unknown("metric", key, list(of_key))))
    kind = of_key[key]
    try:
        number = float(value)
    except ValueError:
        number = float(units.parse(value, kind.unit))
    return Limit(text, kind, comparison, number)


def limits(campaign_id: str) -> tuple[list[Limit], list[str]]:
    """The limits that the address has as `where`, and what is wrong with the others."""
    kept, problems = [], []
    for text in request.args.getlist("where"):
        if not text.strip():
            continue
        try:
            kept.append(limit(text, all_kinds(campaign_id)))
        except ValueError as error:
            problems.append(str(error))
    return kept, problems


def within_limits(campaign_id: str) -> frozenset[str] | None:
    """Ids of the runs that keep every limit of the address; None without one."""
    chosen, _ = limits(campaign_id)
    if not chosen:
        return None

    def compute() -> frozenset[str]:
        kept = [
            {row.run_id for row in g.store.values(campaign_id, only=[one.kind[:2]]) if one.keeps(row.value)}
            for one in chosen
        ]
        return frozenset(set.intersection(*kept))

    return cached(("limits", campaign_id, tuple(one.text for one in chosen)), compute)


def columns(campaign_id: str) -> list[Kind]:
    """Metrics in the table of runs: those that the address asks for, or usual ones."""
    picked = request.args.getlist("col")
    chosen = [kind for kind in all_kinds(campaign_id) if kind.key in picked]
    known = kinds(campaign_id)
    asked = question_of(campaign_id)
    wanted = [asked.quantity, asked.beside] if asked is not None else []
    first = [kind for quantity in wanted for kind in known if quantity and kind.key == quantity.key]
    usual = [*(kind for kind in known if is_output(kind.metric)), *(kind for kind in known if _is_usual(kind.metric))]
    room = max(MOST_COLUMNS - len(axes_of(campaign_id)), LEAST_COLUMNS)
    return chosen or list(dict.fromkeys([*first, *usual]))[:room]


def scenario(campaign_id: str) -> Scenario | None:
    """The scenario of the first run in the store."""
    first: Scenario | None = cached(("scenario", campaign_id), lambda: g.store.first_scenario(campaign_id))
    return first


def scenario_of_point(campaign_id: str, number: int) -> Scenario | None:
    """The scenario of a point's first run in the store; None without one."""
    members = g.store.siblings(campaign_id, number)
    return cached(("scenario", campaign_id, number), lambda: g.store.scenario(members[0].run_id)) if members else None


def question_of(campaign_id: str) -> Question | None:
    """What it asks; None without results."""
    return cached(
        ("question", campaign_id),
        lambda: question.question(
            head(campaign_id),
            scenario(campaign_id),
            g.store.kinds(campaign_id),
            [dict(point.parameters) for point in points(campaign_id)],
        ),
    )


def asked(campaign_id: str) -> RunQuery:
    """Filter, order and page of the runs, from the address."""
    axes, sort = axes_of(campaign_id), request.args.get("sort", "point")
    chosen = filtered(axes)
    ranking: tuple[int, ...] = ()
    if sort in axes:
        rank = {value: number for number, value in enumerate(ordered(axes[sort]))}
        by_value = sorted(points(campaign_id), key=lambda point: rank[dict(point.parameters)[sort]])
        ranking = tuple(point.number for point in by_value)
    return RunQuery(
        state=request.args.get("state", ""),
        words=tuple(request.args.get("q", "").lower().split()),
        points=chosen_points(campaign_id, chosen) if chosen != axes else None,
        only=_only(campaign_id),
        sort=sort,
        ranking=ranking,
        descending=request.args.get("order") == "desc",
        page=page_number(),
        per_page=RUNS,
    )


def axes_of(campaign_id: str) -> dict[str, list[str]]:
    """Swept fields and their values."""
    return cached(("axes", campaign_id), lambda: swept.axes_of(dict(point.parameters) for point in points(campaign_id)))


def filtered(axes: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """The values of each field that the address keeps with `fix.FIELD`; all without any."""
    kept = {name: [value for value in request.args.getlist(f"fix.{name}") if value in axes[name]] for name in axes}
    return {name: [axis for axis in axes[name] if axis in kept[name]] or list(axes[name]) for name in axes}


def chosen_points(campaign_id: str, values: Mapping[str, Sequence[str]]) -> tuple[int, ...]:
    """Points that have one of the given values in every field."""
    return tuple(
        point.number for point in points(campaign_id) if all(value in values[name] for name, value in point.parameters)
    )


def address(endpoint: str, campaign_id: str, changes: Mapping[str, str | int | list[str] | None]) -> str:
    """A page with the arguments of this one, some of them changed; empty ones are removed."""
    arguments: MultiDict[str, str] = request.args.copy()
    for key, value in changes.items():
        listed = value if isinstance(value, list) else [value]
        arguments.setlist(key.replace("__", "."), [str(value) for value in listed if value not in ("", None)])
    query = urlencode([(key, value) for key, values in arguments.lists() for value in values])
    return url_for(endpoint, campaign_id=campaign_id) + (f"?{query}" if query else "")


def notes(campaign_id: str) -> Mapping[str, NoteRow]:
    """What people wrote about its runs."""
    return cached(("notes", campaign_id), lambda: written.of_campaign(g.store, campaign_id))


def tags(campaign_id: str) -> list[str]:
    """Tags of its runs, sorted."""
    return sorted({tag for note in notes(campaign_id).values() for tag in note.tags})


def _tagged(campaign_id: str) -> tuple[str, ...] | None:
    """Ids of the runs that have the tag of the address; None without one."""
    tag = request.args.get("tag", "")
    return tuple(run_id for run_id, note in notes(campaign_id).items() if tag in note.tags) if tag else None


def _only(campaign_id: str) -> tuple[str, ...] | None:
    """Ids of the runs that have the tag and keep the limits of the address; None without either."""
    tagged, within = _tagged(campaign_id), within_limits(campaign_id)
    if tagged is None or within is None:
        return tagged if within is None else tuple(sorted(within))
    return tuple(run_id for run_id in tagged if run_id in within)


def page_number() -> int:
    """The page that the address asks for, from 1."""
    return min(max(request.args.get("page", 1, int), 1), MOST_PAGES)


def runs(campaign_id: str, query: RunQuery) -> RunsPage:
    """A page of its runs."""

    def compute() -> RunsPage:
        rows, total = g.store.runs(campaign_id, query, _matching(points(campaign_id), query.words))
        # Runs that failed without a result say why.
        failed = g.store.last_problems([row.run_id for row in rows if row.state == MISSING])
        return RunsPage([replace(row, problems=failed.get(row.run_id, row.problems)) for row in rows], total)

    return cached(("runs", campaign_id, query), compute)


def _matching(all_points: Sequence[PointRow], words: Sequence[str]) -> list[int] | None:
    """Points whose parameters have every word; None without a search.

    A word finds equal words of fields, values and labels. If a campaign has none, it finds their beginnings, and if it
    has none of these either, their parts.
    """
    if not words:
        return None
    of_point = {point.number: _words_of(point) for point in all_points}
    known = set().union(*of_point.values())
    matching = set(of_point)
    for word in (word.strip(",") for word in words):
        equal = {text for text in known if text == word}
        wanted = equal or {text for text in known if text.startswith(word)} or {text for text in known if word in text}
        matching &= {number for number, words in of_point.items() if words & wanted}
    return sorted(matching)


def _words_of(point: PointRow) -> set[str]:
    """Words by which a point is found: "rate=9.6 kbit/s" has "rate", "9.6", "kbit/s" and "rate=9.6"."""
    words: set[str] = set()
    for name, value in point.parameters:
        last = name.rpartition(".")[2]
        words |= {name, last, *value.split(), *f"{name}={value}".split(), *f"{last}={value}".split()}
    return {word.lower() for word in words}


def ignored(campaign_id: str, axes: Mapping[str, Sequence[str]]) -> list[str]:
    """Arguments of the address that name nothing this campaign has, each as a sentence."""
    args = request.args
    keys = [kind.key for kind in all_kinds(campaign_id)]
    orders = ["point", "repetition", "state", "landed", *axes, *(column.key for column in columns(campaign_id))]
    slots = [(slot, "swept field", [*axes, "none"]) for slot in SLOTS]
    allowed = [
        ("metric", "metric", keys),
        ("against", "metric", keys),
        ("log", "axis", ["x", "y"]),
        ("sort", "order of runs", [*orders, *keys]),
        *slots,
        ("kind", "view", list(KINDS)),
        ("col", "metric", keys),
        ("state", "state of runs", ["valid", "invalid", MISSING]),
        ("order", "direction", ["asc", "desc"]),
        ("tag", "tag", tags(campaign_id)),
        *((f"fix.{name}", f"value of {name}", values) for name, values in axes.items()),
    ]
    problems = [
        str(unknown(what, value, known[:MOST_LISTED]))
        for name, what, known in allowed
        for value in args.getlist(name)
        if value and value not in known
    ]
    problems += [
        str(unknown("swept field", name.removeprefix("fix."), axes))
        for name in args
        if name.startswith("fix.") and name.removeprefix("fix.") not in axes
    ]
    problems += limits(campaign_id)[1]
    return [f"{problem[0].upper()}{problem[1:]}. It is left out." for problem in problems]


def tabled(campaign_id: str) -> list[tuple[str, str]]:
    """Metrics of the table of means. Most metrics of lines have figures only; a group stands for its flows."""
    first, asked = scenario(campaign_id), question_of(campaign_id)
    groups = {flow.group for flow in first.workload if flow.group} if first else set()
    headline = asked.quantity[:2] if asked else ("", "")
    return [
        kind[:2]
        for kind in sorted(kinds(campaign_id), key=lambda kind: kind.metric != headline[0])
        if kind[:2] == headline
        or (kind.metric not in METRICS or METRICS[kind.metric].per in ("flow", "run") or _is_usual(kind.metric))
        and ":" not in kind.subject
        and kind.subject.rpartition("-")[0] not in groups
    ]


def means(
    campaign_id: str, of: Sequence[tuple[str, str]], members: Mapping[int, Sequence[MemberRow]]
) -> Sequence[TableRow]:
    """Means of points. A landed run never changes, so only points with new runs are computed again."""
    keys: dict[Hashable, int] = {
        (campaign_id, number, *of, *((row.run_id, row.landed) for row in rows if row.state == "valid")): number
        for number, rows in members.items()
    }

    def compute(missing: list[Hashable]) -> dict[Hashable, list[TableRow]]:
        rows: dict[Hashable, list[TableRow]] = {key: [] for key in missing}
        key_of = {keys[key]: key for key in missing}
        for row in g.store.table(campaign_id, list(key_of), list(of)):
            rows[key_of[row.point]].append(row)
        return rows

    return [row for rows in permanent(keys, compute).values() for row in rows]


def summary(campaign_id: str, metric: str, subject: str) -> Sequence[TableRow]:
    """Means of a metric at all points."""
    return cached(
        ("figure", campaign_id, metric, subject), lambda: g.store.table(campaign_id, only=[(metric, subject)])
    )


def file_figure(campaign: CampaignRow) -> CampaignFigure | None:
    """The figure that the campaign's file asks for."""
    return cached(("file figure", campaign.id), lambda: of_campaign(StoredCampaign(g.store, campaign)))


def chosen_kind(campaign: CampaignRow) -> Kind | None:
    """The metric that the address asks for; else the one that the campaign asks about. None without results."""
    asked = question_of(campaign.id)
    if asked is None:
        return None
    known = {kind.key: kind for kind in all_kinds(campaign.id)}
    return known.get(request.args.get("metric", "")) or Kind(*asked.quantity)


def fixed_fields(axes: Mapping[str, Sequence[str]], x_field: str) -> dict[str, str]:
    """The fields that the address fixes with `fix.FIELD`, but for the x field, and their values."""
    args = request.args
    return {name: args[f"fix.{name}"] for name in axes if name != x_field and args.get(f"fix.{name}") in axes[name]}


def metric_figure(campaign: CampaignRow) -> Means | None:
    """Means of the metric that the address asks for, along the field that it asks for."""
    campaign_id = campaign.id
    kind = chosen_kind(campaign)
    if kind is None:
        return None
    metric, subject, values = kind.metric, kind.subject, published(campaign.text)
    rows = summary(campaign_id, metric, subject)
    axes = axes_of(campaign_id)
    x_field = request.args.get("x", "")
    if x_field not in axes:
        x_field = figures.default_x(axes)
    fixed = fixed_fields(axes, x_field)

    def make() -> Means:
        return figures.of_points(
            points(campaign_id),
            rows,
            title=kind.label,
            unit=kind.unit,
            metric=metric,
            subject=subject,
            x_field=x_field,
            fixed=fixed,
            published=values,
        )

    # With its intervals, which take most of the time.
    return cached(("means", campaign_id, metric, subject, x_field, tuple(fixed.items())), make)


def _is_usual(name: str) -> bool:
    """Whether the tables of a campaign show a metric unasked: those of COLUMNS, and of other packages."""
    metric = METRICS.get(name)
    return name in COLUMNS or (metric is not None and bool(metric.column and plugin_of(metric.module)))


def order(name: str) -> int:
    """The place of a metric among all."""
    names = list(METRICS)
    return names.index(name) if name in names else len(names)
