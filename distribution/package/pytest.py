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

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from experiments.line import Line

#: Names a results folder.
OPTION = "--line-results"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option."""
    group = parser.getgroup("backchannel")
    group.addoption(OPTION, metavar="DIR", default=None, help="results folder of the fixture `line`; kept")


@pytest.fixture
def line(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Line]:
    """Makes a Line: `line(profile, **fields)`."""
    from experiments.line import Line, settings

    for variable, value in settings(request.config.rootpath, os.environ).items():
        monkeypatch.setenv(variable, value)
    chosen = request.config.getoption(OPTION)
    results = tmp_path / "results" if chosen is None else (request.config.invocation_params.dir / chosen).resolve()
    test = re.sub(r"[^a-z0-9]+", "-", request.node.nodeid.lower()).strip("-")

    def make(profile: str, **fields: Any) -> Line:
        return Line(profile, fields, f"{test}-{re.sub(r'[^a-z0-9]+', '-', profile)}", results)

    return make
