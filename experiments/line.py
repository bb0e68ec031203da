"""An emulated access link between a client and a server of somebody's project, in virtual time.

pytest's fixture `line` and the command `line` run programs by it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError
from analysis.handle import OpenResults, StoredRun
from experiments.language.quantities import LONGEST_NAME, NAME

#: Of the flow in the campaign of a call.
FLOW = "exchange"
#: Folders that programs in virtual time see, divided by colons, and attempts of a run.
READS, ATTEMPTS = "BACKCHANNEL_VIRTUAL_KERNEL_READS", "BACKCHANNEL_ATTEMPTS"


def campaign_name(label: str) -> str:
    """The name of a campaign with this label: the label, or its start with a digest where it is too long."""
    if len(label) <= LONGEST_NAME:
        return label
    return f"{label[: LONGEST_NAME - 9]}-{hashlib.sha256(label.encode()).hexdigest()[:8]}"


def settings(project: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables with which programs see the system's files and the project's, and a failure is tried once."""
    reads = os.pathsep.join([str(project), *filter(None, [environment.get(READS)])])
    # A failure in virtual time repeats itself.
    return {READS: reads, ATTEMPTS: "1"}


class LineRun:
    """A run of server and client.

    Attributes:
        stored: the run in its store, with segments, telemetry and plots (`backchannel.open`).
        metrics: values of the exchange by name, in SI units; what `metrics` read of an output is `output.NAME`.
    """

    def __init__(self, stored: StoredRun) -> None:
        self.stored = stored
        self.metrics = {row.name: row.value for row in stored.row.metrics if row.subject in (FLOW, "")}

    @property
    def captures(self) -> list[Path]:
        """Its capture files, one for each interface."""
        return self.stored.captures

    @property
    def qlogs(self) -> list[Path]:
        """Its qlog files, of QUIC flows."""
        return sorted((self.stored.folder / "qlog").glob("*.sqlog*"))

    @property
    def output(self) -> str:
        """What the client wrote to standard output."""
        return (self.stored.folder / "programs" / f"{FLOW}.client.out").read_text(errors="replace")


class Line:
    """An emulated access link.

    Args:
        profile: of the link; `backchannel list profiles` shows them.
        fields: of the network beside the profile, as in a campaign file: {"forward": {"loss": "1 %"}}.
        label: of its campaigns.
        results: folder of the results.
    """

    def __init__(self, profile: str, fields: Mapping[str, Any], label: str, results: Path) -> None:
        self._network = {"topology": "line", "profile": profile, **fields}
        self._label = label
        self._results = results
        self._calls = 0

    def run(
        self,
        server: Sequence[str | Path],
        client: Sequence[str | Path],
        *,
        seeds: int = 1,
        duration_s: float = 60.0,
        stack: str = "cubic",
        ready: str | Mapping[str, str] = "tcp",
        metrics: Mapping[str, Mapping[str, str]] | None = None,
        environment: Mapping[str, str] | None = None,
        overrides: Sequence[str] = (),
    ) -> list[LineRun]:
        """Runs both programs once for each seed.

        Args:
            server: program and arguments; it stays in the foreground.
            client: program and arguments; the run ends a second after it.
            seeds: number of runs; the seeds are the same in each session.
            duration_s: longest virtual time; a client that has not ended fails.
            stack: congestion control of Linux.
            ready: what shows that the server serves: "tcp", "udp" or "started", or {"line": TEXT} of its output.
            metrics: values to read from an output, as in campaign files: {"first_byte": {"json": "t", "unit": "s"}}.
            environment: variables of both programs.
            overrides: "field=value" texts of the campaign, as `--set` takes them.

        Raises:
            RunsFailed: a program failed; the message says which.
            AnalysisError: the campaign is invalid.
        """
        self._calls += 1
        name = campaign_name(self._label if self._calls == 1 else f"{self._label}-{self._calls}")
        # It names a file.
        if re.fullmatch(NAME, name) is None:
            raise AnalysisError(
                f"'{name}' is not a name for a campaign: use lower-case letters, digits and hyphens, and a letter first"
            )
        serving = {"ready": ready} if isinstance(ready, str) else {"ready": "line", **ready}
        command = {
            "client": [str(word) for word in client],
            "server": {"run": [str(word) for word in server], **serving},
            "metrics": dict(metrics or {}),
            "environment": dict(environment or {}),
        }
        campaign = {
            "name": name,
            "backend": "virtual-kernel",
            "network": self._network,
            "stack": stack,
            "workload": [{"name": FLOW, "kind": "command", "from": "left", "to": "right", "command": command}],
            "duration": f"{duration_s:g} s",
            "repetitions": seeds,
            "seed": 1,
        }
        self._results.mkdir(parents=True, exist_ok=True)
        # YAML contains JSON.
        file = self._results / f"{name}.yaml"
        file.write_text(json.dumps(campaign, indent=2))
        with OpenResults.open(self._results, create=True) as store:
            # Programs are not a part of a run's id.
            done = store.run_campaign(file, *overrides, force=True)
            return [LineRun(store.run(run_id)) for run_id in done.run_ids]
