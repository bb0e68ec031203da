"""pytest's plugin: a fixture that runs programs of the project under test over an emulated link, in virtual time.

    def test_a_download_over_a_modem_ends_in_time(line):
        modem = line("dialup-28.8")
        for run in modem.run([SERVER, "--port", "{port}"], [CLIENT, "{server}", "{port}"], seeds=3):
            assert run.metrics["completion_time"] < 60

The server is at the far end of the link, as a site on the Internet, and the client behind the access link. Both run on
Linux's TCP as ordinary programs of an ordinary user. Nothing is late on a busy machine, and the same programs, profile
and seed give the same packets. Words may contain {server}, {client}, {port} and {seed} (docs/programs.md).

`--line-results DIR` keeps every run, with captures and plots, in a results folder. `backchannel regressions BASE HEAD`
compares two such folders.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from analysis.handle import StoredRun

#: Names a results folder.
OPTION = "--line-results"
#: Of the flow in the campaign of a call.
FLOW = "exchange"


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

        Raises:
            AnalysisError: a program failed or the campaign is invalid; the message says which.
        """
        from analysis.handle import OpenResults

        self._calls += 1
        name = self._label if self._calls == 1 else f"{self._label}-{self._calls}"
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
            done = store.run_campaign(file, force=True)
            return [LineRun(store.run(run_id)) for run_id in done.run_ids]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option."""
    group = parser.getgroup("backchannel")
    group.addoption(OPTION, metavar="DIR", default=None, help="results folder of the fixture `line`; kept")


@pytest.fixture
def line(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Line]:
    """Makes a Line: `line(profile, **fields)`."""
    # Programs inside see the system's files and the project's.
    reads = [str(request.config.rootpath), *filter(None, [os.environ.get("BACKCHANNEL_VIRTUAL_KERNEL_READS")])]
    monkeypatch.setenv("BACKCHANNEL_VIRTUAL_KERNEL_READS", os.pathsep.join(reads))
    # A failure in virtual time repeats itself.
    monkeypatch.setenv("BACKCHANNEL_ATTEMPTS", "1")
    chosen = request.config.getoption(OPTION)
    results = tmp_path / "results" if chosen is None else (request.config.invocation_params.dir / chosen).resolve()
    test = re.sub(r"[^a-z0-9]+", "-", request.node.nodeid.lower()).strip("-")

    def make(profile: str, **fields: Any) -> Line:
        return Line(profile, fields, f"{test}-{re.sub(r'[^a-z0-9]+', '-', profile)}", results)

    return make
