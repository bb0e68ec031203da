"""What carries an artefact: it runs as chosen, and then with one chosen parameter at a time at its default.

    ./backchannel bench choices asym-fig12 ton-table2 [--repetitions 3] [--results DIR]

The parameters are those of experiments/PAPER/chosen.yaml that have a default; fields of one entry change together. With
all of them at their defaults an artefact runs by `./backchannel reproduce --defaults`.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis import choices
from analysis.scorecard import Score, results_table, score_of
from analysis.store import Store
from analysis.targets import Target, all_targets
from experiments.catalogue import FOLDER, Reproduction, select_reproductions
from experiments.commands.shared import console
from experiments.defaults import default_values
from experiments.engine.options import Options
from experiments.engine.scheduling import run_campaigns
from experiments.language.campaign import expand
from experiments.language.problems import CampaignError
from experiments.terminal import TerminalReporter
from testbed.local_folders import ScratchFolder


def main() -> int:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artefacts", nargs="+", help="such as asym-fig12, or a paper")
    parser.add_argument("--repetitions", type=int, default=3, help="runs of each point (3)")
    parser.add_argument("--results", type=Path, help="folder of the results (a temporary one)")
    options = parser.parse_args()
    try:
        selected = select_reproductions(options.artefacts, backend="sim", defaults=True)
    except (CampaignError, ValueError) as error:
        parser.error(str(error))
    targets = {target.id: target for target in all_targets(FOLDER)}
    with ScratchFolder() as scratch:
        for entry in selected:
            _artefact(entry, targets[entry.artefact], options.results or scratch / "results", options.repetitions)
    return 0


def _artefact(reproduction: Reproduction, target: Target, results: Path, repetitions: int) -> None:
    """Prints a line for the artefact as chosen, and for each of its choices."""
    print(f"{reproduction.artefact}, {repetitions} runs a point", flush=True)
    print(
        f"  as chosen: {_verdict(_score(reproduction, reproduction.source.values, target, results, repetitions))}",
        flush=True,
    )
    for choice in choices.choices(reproduction.chosen):
        if reproduction.artefact in choice.artefacts and choice.has_default:
            changed = default_values(reproduction.source.values, reproduction.artefact, [choice])
            fields = ", ".join(choice.fields)
            print(
                f"  default of {fields}: {_verdict(_score(reproduction, changed, target, results, repetitions))}",
                flush=True,
            )


def _score(
    reproduction: Reproduction, values: dict[str, Any], target: Target, results: Path, repetitions: int
) -> Score | str:
    try:
        plan = expand(replace(reproduction.source, values=values), ["backend=sim", f"repetitions={repetitions}"])
    except CampaignError as error:
        return str(error)
    run_campaigns([plan], Options(results, 1, scheduler="none"), TerminalReporter(console(stderr=True)))
    store = Store.open(results)
    try:
        table = results_table(store, plan.id, plan.text)
    finally:
        store.close()
    return score_of(target, "sim", plan.id, len(plan.runs), len(plan.runs), table)


def _verdict(score: Score | str) -> str:
    if isinstance(score, str):
        return f"cannot run: {score}"
    stated = [value for value in score.values if value.origin == "stated"]
    failed = [
        f"{entry.measure} {_measured(entry.measured)} for {entry.published:g}" for entry in stated if not entry.within
    ]
    orders = [ordering for ordering in score.orderings if not ordering.holds]
    verdict = (
        f"{'passes' if score.passes else 'FAILS'}, {len(stated) - len(failed)} of {len(stated)} values, "
        f"{len(score.orderings) - len(orders)} of {len(score.orderings)} orderings"
    )
    return verdict + (f" ({'; '.join(failed[:4])})" if failed else "")


def _measured(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
