"""What a campaign answers, on top of its page: sentences, and the trade-off between the two directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flask import g

from analysis import answer
from analysis.figures import tradeoff
from analysis.figures.means import Means, quantities
from analysis.figures.model import Figure
from analysis.question import Asked, beside_of
from analysis.results import Quantity, Results
from analysis.store.rows import CampaignRow, PointRow
from experiments.api import point_label
from testbed.scenario import Scenario
from web import campaign_data
from web.cache import cached

#: Values of the x field that get a sentence each.
MOST_PLACES = 12


@dataclass(frozen=True)
class Answer:
    """What is shown."""

    sentences: list[str]
    #: Value of the x field to the sentences for the points that have it.
    places: list[tuple[str, list[str]]]
    #: None without another direction.
    figure: Figure | None


def of(campaign: CampaignRow, means: Means | None, axes: Mapping[str, Sequence[str]]) -> Answer | None:
    """The answer for the metric, x field and fixed fields that the address asks for; None without results."""
    if means is None:
        return None
    fixed = campaign_data.fixed_fields(axes, means.x_field)
    key = ("answer", campaign.id, means.metric, means.subject, means.x_field, tuple(fixed.items()))
    return cached(key, lambda: _made(campaign, means, axes, fixed))


def _made(
    campaign: CampaignRow, means: Means, axes: Mapping[str, Sequence[str]], fixed: Mapping[str, str]
) -> Answer | None:
    points = campaign_data.points(campaign.id)
    chosen = [point for point in points if fixed.items() <= dict(point.parameters).items()]
    asked, stated = Quantity(means.metric, means.subject, means.unit), campaign_data.question_of(campaign.id)
    if stated is not None and not stated.is_exploratory(asked):
        other = stated.beside
    else:
        other = beside_of(asked, campaign_data.scenario(campaign.id), campaign_data.kinds(campaign.id))
    rows = g.store.values(campaign.id, only=[quantity[:2] for quantity in (asked, other) if quantity is not None])
    stored = Results.of_rows(campaign.name, [dict(point.parameters) for point in points], rows)
    results = Asked.of(stored, stated)
    groups = _places(chosen, means)
    labels = {point.number: point_label(dict(point.parameters)) or "all runs" for point in points}

    def scenario_of_point(number: int) -> Scenario | None:
        return campaign_data.scenario_of_point(campaign.id, number)

    best = answer.best(results, asked, other, [point.number for point in chosen], scenario_of_point)
    if best is None:
        return None
    by_place = []
    for place, of_place in groups:
        best_way = answer.best(results, asked, other, [point.number for point in of_place], scenario_of_point)
        short = {
            point.number: point_label({name: value for name, value in point.parameters if name != means.x_field})
            for point in of_place
        }
        if best_way is not None and best_way.next is not None:
            by_place.append((place, answer.sentences(best_way, short, named=False)))
    figure = None
    if other is not None:
        field = _coloured(axes, fixed)
        colour_of = {point.number: dict(point.parameters).get(field, "all runs") for point in chosen}
        titles = (campaign_data.Kind(*asked).label, campaign_data.Kind(*other).label)
        figure = tradeoff.tradeoff([row for row in rows if row.point in colour_of], asked, other, titles, colour_of)
    said = answer.sentences(best, labels)
    if best.exploratory:
        said.append("This metric is exploratory: the campaign does not ask about it.")
    elif stated is not None and stated.instead:
        said.insert(0, stated.instead)
    return Answer(said, by_place, figure)


def _places(points: Sequence[PointRow], means: Means) -> list[tuple[str, list[PointRow]]]:
    """Points by the value of a numeric x field, where several share a value."""
    if means.sizes is None or not means.is_line:
        return []
    by_place = [
        (place, [point for point in points if dict(point.parameters).get(means.x_field) == place])
        for place in means.places
    ]
    return [(place, some) for place, some in by_place if len(some) > 1][:MOST_PLACES]


def _coloured(axes: Mapping[str, Sequence[str]], fixed: Mapping[str, str]) -> str:
    """The field that colours the dots: one with names, such as a policy, if there is one."""
    free = [name for name in axes if name not in fixed]
    names = [name for name in free if quantities(axes[name]) is None]
    return next(iter([*names, *free]), "")
