"""`ack-filter`: whether an ack filter would help on the link that a capture shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analysis.results import by_point
from experiments import exits
from experiments.commands.answer import Answer
from experiments.commands.options import RESULTS, ArtefactsOption, JobsOption, ResultsOption
from experiments.commands.shared import console, fail, rejecting, run_plans, store_location
from experiments.engine.options import Options
from testbed import units
from testbed.local_folders import ScratchFolder

if TYPE_CHECKING:
    from experiments.commands import documents
    from experiments.uplink.answer import Answer as Advice


def ack_filter(
    capture: Annotated[
        Path,
        typer.Argument(
            metavar="CAPTURE",
            show_default=False,
            help="A capture of your link, pcap or pcapng, plain, gzip or zstd, made on the side of your hosts.",
        ),
    ],
    up: Annotated[
        str,
        typer.Option(
            "--up",
            metavar="RATE",
            help="Rate of the uplink, such as '2 Mbit/s'. Default: that of the "
            "capture's busiest second, which is too low if the link was never full.",
        ),
    ] = "",
    down: Annotated[str, typer.Option("--down", metavar="RATE", help="Rate of the downlink. Default: as --up.")] = "",
    local: Annotated[
        list[str] | None,
        typer.Option(
            "--local",
            metavar="ADDRESS",
            show_default=False,
            help="Address of a host on your side. Repeatable. Default: found by the traffic.",
        ),
    ] = None,
    queue: Annotated[
        str,
        typer.Option(
            "--queue", metavar="NAME", help="Queue before both directions in simulation: cake, fq-codel or droptail."
        ),
    ] = "cake",
    repetitions: Annotated[
        int, typer.Option("--repetitions", metavar="N", min=3, max=100, help="Simulated runs on each side.")
    ] = 6,
    results: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
    jobs: JobsOption = None,
) -> Answer[documents.AckFilter]:
    """Say whether an ack filter would help on the link that a capture shows (docs/ack-filter.md).

    Counts the acks of the uplink, lets the filter treat them, and simulates the capture's traffic with the filter and
    without.
    """
    from analysis.store import Store
    from experiments.language import registry
    from experiments.uplink import answer, seen, trial

    if queue not in trial.QUEUES:
        fail(f"--queue: {registry.unknown('queue', queue, list(trial.QUEUES))}", exits.BAD_INPUT)
    rates = [_rate(name, text) for name, text in (("--up", up), ("--down", down))]
    with ScratchFolder() as folder:
        traffic = seen.look(capture, folder, local or ())
    up_bps, down_bps = (
        given or max(traffic.busiest_bps(way), 1e3)
        for given, way in zip(rates, (traffic.up, traffic.down), strict=True)
    )

    link_rates = answer.LinkRates(up_bps, down_bps, rates[0] is None, rates[1] is None)
    nothing = answer.Answer(traffic, link_rates)
    if answer.why_nothing(traffic) is not None:
        return _answer(nothing)
    room = {"limit_packets": 100_000}
    policies = (
        {"name": "droptail", "options": room},
        {"name": "ack-filtering", "options": {**room, "filter_sack": True}},
    )
    plain, filtered = (seen.replay(capture, traffic.local, up_bps, policy) for policy in policies)
    replayed = replace(nothing, replayed=(plain, filtered), queue=queue)
    if not traffic.shape.downloads and not traffic.shape.uploads:
        # Without a transfer that could be faster, only the queue counts.
        return _answer(replace(replayed, advice="cannot tell" if filtered.purged else "no difference"))
    plan = trial.plan(capture.name, traffic.shape, up_bps, down_bps, queue, repetitions)
    options = Options(store_location(results), jobs=jobs, artefacts=artefacts)
    run_plans([plan], options)
    with Store.open(options.results, artefacts) as store:
        values = by_point(store.values(plan.id))
    sides = {number: dict(point.parameters)["filter"] for number, point in enumerate(plan.points)}
    effects = trial.effects(values, sides)
    return _answer(replace(replayed, campaign=plan.id, effects=effects, advice=trial.advice(effects)))


def _rate(option: str, text: str) -> float | None:
    """A rate in bit/s; None without one."""
    with rejecting(option):
        rate = units.parse(text, "rate") if text else None
    if rate is not None and not 1e3 <= rate <= 1e11:
        fail(f"{option} is a rate from 1 kbit/s to 100 Gbit/s, not '{text}'", exits.BAD_INPUT)
    return rate


def _answer(advice: Advice) -> Answer[documents.AckFilter]:
    from experiments.uplink import answer

    return Answer(answer.document(advice), lambda: console().print(answer.shown(advice)))
