"""Which verdicts depend on a choice, or on the exact numbers of a line: an artefact as its campaign file has it, then
with one chosen parameter at a time at its default and at each of its alternatives (experiments/PAPER/chosen.yaml), then
with every rate, delay and buffer a little off.

The fields of one choice change together. Runs are simulations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import analysis
from experiments.engine.scheduling import run_campaigns
from experiments.language.campaign import expand
from experiments.language.problems import CampaignError
from experiments.papers import choices
from experiments.papers.defaults import default_values, other_values
from experiments.papers.scorecard import Score, results_table, score_of
from experiments.papers.sensitivity import BY, perturbed_plan

if TYPE_CHECKING:
    from experiments.engine.options import Options
    from experiments.papers.reproduction import Reproduction
    from experiments.papers.targets import Target
    from experiments.terminal import TerminalReporter


#: Perturbed copies of each artefact. A share of runs that is a phase lock is rarely the same in all of them.
PERTURBATIONS = 3


@dataclass(frozen=True)
class Variant:
    """A campaign as chosen, with one choice changed, or with perturbed lines."""

    #: The changed fields with their values; None is the default. Empty: as chosen.
    changed: Mapping[str, Any]
    #: Of the campaign file.
    values: Mapping[str, Any]
    #: Number of the perturbation of every rate, delay and buffer; 0: none.
    perturbation: int = 0

    @property
    def is_as_chosen(self) -> bool:
        """Whether nothing is changed."""
        return not self.changed and not self.perturbation

    @property
    def label(self) -> str:
        """For people."""
        if self.perturbation:
            return f"every rate, delay and buffer up to {BY:.1%} off ({self.perturbation})"
        fields = (f"{field}: {'default' if value is None else value}" for field, value in self.changed.items())
        return ", ".join(fields) or "as chosen"


@dataclass(frozen=True)
class Outcome:
    """A variant and what it scored."""

    artefact: str
    variant: Variant
    #: None: the campaign is not valid with these values, or runs of it have no valid result.
    score: Score | None
    #: Why not.
    problem: str
    #: Whether the verdict differs from the one as chosen.
    flips: bool

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        score = self.score
        return {
            "artefact": self.artefact,
            "changed": dict(self.variant.changed),
            "perturbation": self.variant.perturbation,
            "passes": None if score is None else score.passes,
            "flips": self.flips,
            "within": None if score is None else score.within,
            "stated": None if score is None else len(score.stated),
            "orderings_hold": None if score is None else score.hold,
            "orderings": None if score is None else len(score.orderings),
            "problem": self.problem,
        }


def variants(reproduction: Reproduction) -> list[Variant]:
    """The campaign as chosen, then every choice of its artefact at its default and at its alternatives, then the
    perturbed copies.
    """
    values = reproduction.source.values
    found = [Variant({}, values)]
    for choice in choices.choices(reproduction.chosen):
        if reproduction.artefact not in choice.artefacts:
            continue
        if choice.has_default:
            default = None if choice.default == "language" else choice.default
            found.append(
                Variant(dict.fromkeys(choice.fields, default), default_values(values, reproduction.artefact, [choice]))
            )
        found += [Variant(other, other_values(values, choice, other)) for other in choice.alternatives]
    return [*found, *(Variant({}, values, number + 1) for number in range(PERTURBATIONS))]


def outcomes(
    reproduction: Reproduction, target: Target, options: Options, reporter: TerminalReporter, repetitions: int | None
) -> Iterator[Outcome]:
    """Runs and scores every variant of an artefact; the first is as chosen.

    Args:
        reproduction: the artefact's campaign.
        target: what was published.
        options: of the runs; a results folder that holds nothing else.
        reporter: shows progress.
        repetitions: runs of each point; None: as in the file.
    """
    chosen: bool | None = None
    for variant in variants(reproduction):
        try:
            score, problem = _score(reproduction, variant, target, options, reporter, repetitions), ""
        except CampaignError as error:
            score, problem = None, str(error)
        if score is not None and not score.is_complete:
            # What is missing would look like a value that misses.
            problem = f"{score.asked - score.valid} of {score.asked} runs have no valid result"
            score = None
        passes = None if score is None else score.passes
        if variant.is_as_chosen:
            chosen = passes
        yield Outcome(reproduction.artefact, variant, score, problem, passes is not None and passes != chosen)


def score_as_chosen(
    reproduction: Reproduction, target: Target, options: Options, reporter: TerminalReporter, repetitions: int
) -> Score:
    """Runs and scores an artefact as its campaign file has it, with another number of runs a point; arguments as of
    `outcomes`.
    """
    return _score(reproduction, Variant({}, reproduction.source.values), target, options, reporter, repetitions)


def _score(
    reproduction: Reproduction,
    variant: Variant,
    target: Target,
    options: Options,
    reporter: TerminalReporter,
    repetitions: int | None,
) -> Score:
    overrides = ["backend=sim", *([] if repetitions is None else [f"repetitions={repetitions}"])]
    plan = expand(replace(reproduction.source, values=dict(variant.values)), overrides)
    if variant.perturbation:
        plan = perturbed_plan(plan, variant.perturbation, BY)
    (outcome,) = run_campaigns([plan], options, reporter)
    if outcome.interrupted:
        # The engine has caught the signal, which is meant for all variants.
        raise KeyboardInterrupt
    with analysis.open(options.results) as opened:
        campaign = opened[plan.id]
        valid = len(opened.store.valid_runs(plan.run_ids))
        return score_of(target, "sim", plan.id, len(set(plan.run_ids)), valid, results_table(campaign))
