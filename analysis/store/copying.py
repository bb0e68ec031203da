"""Copies a campaign with its runs from one store into another, such as from a folder into a team's PostgreSQL store."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from analysis.errors import REPEAT
from analysis.results import MetricValue
from analysis.store import damage, notes
from analysis.store.commit import PendingRun
from analysis.store.database import StoreError, StorePlaceError
from analysis.store.rows import CampaignRow, NewCampaign, RunRow
from analysis.store.store import Store


@dataclass(frozen=True)
class Copied:
    """What a copy did."""

    #: Runs of the campaign that the source has.
    runs: int
    #: Those that were copied; the target had the others.
    copied: int


def copy_campaign(source: Store, target: Store, campaign: CampaignRow) -> Copied:
    """Copies a campaign with its runs and their notes. Valid runs and notes that the target has stay as they are, so
    that a copy can be repeated.

    Args:
        source: where the campaign is.
        target: where it goes.
        campaign: with its points, as `source.campaign` returns it.

    Raises:
        StorePlaceError: both are the same store.
        StoreError: the campaign runs in the target, or files cannot be read or stored. What was copied stays; the
            campaign appears at the end.
    """
    if target.folder.resolve() == source.folder.resolve():
        raise StorePlaceError(
            f"{target.where} has campaign {campaign.name} already: it is the store that you copy from"
        )
    there = target.campaign_head(campaign.id)
    if there is not None and there.state == "running":
        raise StoreError(f"campaign {campaign.name} is running in {target.where}: copy it when that has ended")
    members = [
        (point.number, member.repetition, member.run_id) for point in campaign.points for member in point.members
    ]
    planned = list(dict.fromkeys(run_id for _, _, run_id in members))
    already_there = target.valid_runs(planned)
    runs = copied = 0
    for run_id in planned:
        run = source.run(run_id)
        if run is None:
            continue
        runs += 1
        if run_id not in already_there:
            _copy_run(source, target, run)
            copied += 1
    target.begin_campaign(NewCampaign.of(campaign), [list(point.parameters) for point in campaign.points], members)
    notes.copy(source, target, campaign.id)
    target.end_campaign(campaign.id, complete=len(target.valid_runs(planned)) == len(planned))
    return Copied(runs, copied)


def _copy_run(source: Store, target: Store, run: RunRow) -> None:
    kept = source.folder_of_run(run.id)
    # The target would compute checksums of its own, which a damaged file matches.
    if reasons := damage.differing(kept, run.files):
        raise StoreError(f"run {run.id} is not copied: {'; '.join(reasons)}; {REPEAT}")
    folder = target.staging_folder(run.id)
    shutil.copytree(kept, folder, dirs_exist_ok=True)
    metrics = [MetricValue(row.name, row.subject, row.value, row.unit) for row in run.metrics]
    target.commit_run(PendingRun(run.id, run.backend, run.documents, metrics, run.problems, run.attempt, folder))
