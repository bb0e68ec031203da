"""The answer of `./backchannel ack-filter` for people and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from analysis.comparison import difference_text
from analysis.estimates import ESTIMATES_NOTE
from analysis.metrics.registry import estimate
from experiments.plain_table import plain_table
from experiments.uplink import trial
from testbed import units
from testbed.units import number_of

if TYPE_CHECKING:
    from experiments.uplink.seen import Direction, Replayed, Seen
    from experiments.uplink.trial import Advice, Effect

#: Names at most in a sentence.
_NAMES = 4
_SENTENCES: dict[Advice, str] = {
    "on": "Filter on.",
    "off": "Filter off.",
    "mixed": "It depends on what you want: the filter makes something better and something worse.",
    "no difference": "It does not matter: with the filter and without are the same within 5 %.",
    "cannot tell": "These runs cannot tell; more may (--repetitions).",
    "nothing to filter": "Nothing to filter: leave it off.",
}


#: Instead of what a simulation shows, and where none of its runs is valid.
_UNSIMULATED = "Nothing was simulated: the capture has no large TCP transfer that a filter could make faster."
_NO_RUNS = "No simulated run is valid, so nothing can be told."


@dataclass(frozen=True)
class LinkRates:
    """The rates of the line, and whether they are estimated from the capture's busiest second."""

    up_bps: float
    down_bps: float
    up_is_estimated: bool
    down_is_estimated: bool


@dataclass(frozen=True)
class Answer:
    """All that is known of the filter on a line."""

    seen: Seen
    rates: LinkRates
    #: The captured uplink through a queue without the filter and with it; None without acks.
    replayed: tuple[Replayed, Replayed] | None = None
    #: Of the simulation, and its campaign.
    queue: str = ""
    campaign: str = ""
    effects: Sequence[Effect] = ()
    advice: Advice = "nothing to filter"


def why_nothing(seen: Seen) -> str | None:
    """Why there is nothing to filter; None: there is."""
    if seen.up.pure_acks:
        return None
    if seen.up.quic_packets:
        return (
            "The uplink has no pure ack of TCP. QUIC's acks are encrypted among its packets, and no filter in the "
            "network can see them."
        )
    return "The uplink has no pure ack of TCP."


def conclusion(answer: Answer) -> str:
    """The advice as a sentence, or why there is none."""
    if answer.replayed is not None and not answer.effects:
        return _NO_RUNS if answer.campaign else _UNSIMULATED
    return _SENTENCES[answer.advice]


def document(answer: Answer) -> dict[str, Any]:
    """The answer as JSON, in SI units."""
    replayed = answer.replayed
    return {
        "advice": answer.advice,
        "why": why_nothing(answer.seen),
        "capture": dataclasses.asdict(answer.seen),
        **dataclasses.asdict(answer.rates),
        "uplink_utilisation": _used(answer.seen.up, answer.rates.up_bps, answer.seen.duration_s),
        "ack_share_of_uplink_bytes": answer.seen.up.ack_share,
        "replay": None
        if replayed is None
        else {trial.OFF: dataclasses.asdict(replayed[0]), trial.ON: dataclasses.asdict(replayed[1])},
        "simulation": {
            "campaign": answer.campaign,
            "queue": answer.queue,
            "effects": list(map(_effect, answer.effects)),
        },
    }


def _effect(effect: Effect) -> dict[str, Any]:
    gap = effect.compared.difference
    interval = gap.interval
    return {
        "metric": effect.quantity.metric,
        "of": effect.quantity.subject,
        "unit": effect.quantity.unit,
        trial.OFF: gap.mean_first,
        trial.ON: gap.mean_second,
        "difference": gap.value,
        "interval": None if interval is None else [interval.low, interval.high],
        "level": gap.level,
        "runs": effect.compared.runs,
        "verdict": effect.compared.verdict,
    }


def shown(answer: Answer) -> Group:
    """The answer for the terminal."""
    return Group(*_parts(answer))


def _parts(answer: Answer) -> Iterator[Any]:
    seen = answer.seen
    hosts = ", ".join(seen.local[:_NAMES]) + (
        f" and {len(seen.local) - _NAMES} more" if len(seen.local) > _NAMES else ""
    )
    yield Text(f"Capture of {units.show(seen.duration_s, 'time')}; the uplink is from {hosts} ({seen.found_by}).")
    table = plain_table(
        "", "packets", "bytes", "rate of the busiest second", "pure acks of TCP", "share of bytes", "QUIC"
    )
    for name, way in (("up", seen.up), ("down", seen.down)):
        table.add_row(
            name,
            f"{way.packets:,}",
            units.show(way.bytes, "bytes"),
            units.show(seen.busiest_bps(way), "rate"),
            f"{way.pure_acks:,}",
            f"{100 * way.ack_share:.1f} %",
            f"{way.quic_packets:,} packets",
        )
    yield table
    for damage in seen.damage[:_NAMES]:
        yield Text(f"The capture is damaged: {damage}", style="yellow")
    rates = ", ".join(
        f"{name} {units.show(bps, 'rate')}{' (its busiest second; set it by --' + name + ')' if is_estimated else ''}"
        for name, bps, is_estimated in (
            ("up", answer.rates.up_bps, answer.rates.up_is_estimated),
            ("down", answer.rates.down_bps, answer.rates.down_is_estimated),
        )
    )
    used = _used(seen.up, answer.rates.up_bps, seen.duration_s)
    yield Text(f"Link: {rates}. The capture uses {100 * used:.0f} % of the uplink on average.")
    if (why := why_nothing(seen)) is not None:
        yield Text(f"\n{why}")
    if answer.replayed is not None:
        plain, filtered = answer.replayed
        yield Text(
            f"Replayed through a queue at that rate, the filter removes {filtered.purged:,} of {seen.up.pure_acks:,} "
            f"acks ({100 * filtered.purged / seen.up.pure_acks:.0f} %). Packets wait "
            f"{units.show(filtered.mean_wait_s, 'time')} on average instead of {units.show(plain.mean_wait_s, 'time')}."
        )
    if answer.effects:
        yield from _simulated(answer)
    yield Text(f"\n{conclusion(answer)}", style="bold")


def _simulated(answer: Answer) -> Iterator[Any]:
    shape = answer.seen.shape
    flows = [
        number_of(count, kind)
        for count, kind in (
            (shape.downloads, "TCP download"),
            (shape.quic_downloads, "QUIC download"),
            (shape.uploads, "upload"),
        )
        if count
    ]
    rtt = units.show(shape.rtt_s, "time") + ("" if shape.rtt_is_measured else " (usual; the capture has no sample)")
    runs = max(effect.compared.runs for effect in answer.effects)
    yield Text(
        f"\nSimulated: {', '.join(flows)} at the same time, round trip {rtt}, {answer.queue} before both directions, "
        f"{number_of(runs, 'pair')} of runs:"
    )
    table = plain_table("", "filter off", "filter on", "on less off", "")
    for effect in answer.effects:
        unit = effect.quantity.unit
        off, on = (
            estimate(effect.quantity.metric, unit, list(side.values())).text(unit) for side in (effect.off, effect.on)
        )
        word = {True: "better", False: "worse", None: effect.compared.verdict}[effect.is_better]
        table.add_row(trial.title(effect.quantity), off, on, difference_text(effect.compared, unit), word)
    yield table
    yield Text(f"{ESTIMATES_NOTE}. Differences hold together at 95 %.", style="dim")


def _used(way: Direction, rate_bps: float, duration_s: float) -> float:
    return 8 * way.bytes / (rate_bps * duration_s) if duration_s else 0.0
