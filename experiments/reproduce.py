"""The papers' artefacts as campaigns: which files there are, and running what is missing of them.

One file an artefact, `experiments/PAPER/*.yaml` with the field `artefact`. Targets play no part here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments import registry
from experiments.campaign import Plan, expand
from experiments.engine import Options, Outcome, run_campaign
from experiments.problems import CampaignError
from experiments.show import Reporter
from experiments.source import Source, read

#: Where the campaign files of the papers are.
FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Reproduction:
    """A campaign file that reproduces an artefact."""

    artefact: str
    paper: str
    file: Path
    source: Source

    def plan(self, backend: str | None) -> Plan:
        """Its runs, on its own backend or another.

        Raises:
            CampaignError: the file is wrong, or cannot run on that backend.
        """
        return expand(self.source, [] if backend is None else [f"backend={backend}"])


def reproductions(folder: Path = FOLDER) -> list[Reproduction]:
    """Every campaign file that names an artefact, by paper and file name.

    Raises:
        CampaignError: a file cannot be read.
    """
    found = []
    for path in sorted(folder.glob("*/*.yaml")):
        if path.name == "targets.yaml":
            continue
        source = read(path)
        artefact = source.values.get("artefact")
        if artefact is not None:
            found.append(Reproduction(str(artefact), path.parent.name, path, source))
    return found


def chosen(what: str, folder: Path = FOLDER) -> list[Reproduction]:
    """Those of a paper, of an artefact, or all for "".

    Raises:
        ValueError: there is no such paper or artefact.
        CampaignError: a file cannot be read.
    """
    everything = reproductions(folder)
    found = [one for one in everything if what in ("", one.paper, one.artefact)]
    if not found:
        names = dict.fromkeys([one.paper for one in everything] + [one.artefact for one in everything])
        raise ValueError(registry.unknown("paper or artefact with a campaign file", what, names))
    return found


@dataclass
class Done:
    """How one reproduction went."""

    reproduction: Reproduction
    outcome: Outcome | None
    #: Why it was not run; empty if it was.
    refused: str = ""


def reproduce(
    chosen_ones: Sequence[Reproduction], backend: str | None, options: Options, reporter: Reporter
) -> list[Done]:
    """Runs what the results folder lacks, one artefact after another; a campaign that the backend does not carry is
    told and passed over. Ends early when interrupted.

    Raises:
        As `run_campaign`.
    """
    done = []
    for one in chosen_ones:
        try:
            plan = one.plan(backend)
        except CampaignError as error:
            done.append(Done(one, None, str(error)))
            continue
        outcome = run_campaign(plan, options, reporter)
        done.append(Done(one, outcome))
        if outcome.interrupted:
            break
    return done
