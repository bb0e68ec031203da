"""Client and server over a modem, in virtual time."""

import sys
from pathlib import Path

HERE = Path(__file__).parent


def test_a_download_over_a_modem_ends_in_time(line):
    """Three runs, with the same packets whenever the programs are the same."""
    server = [sys.executable, HERE / "server.py", "{server}", "{port}"]
    client = [sys.executable, HERE / "client.py", "{server}", "{port}"]
    for run in line("dialup-28.8").run(server, client, seeds=3, metrics={"size": {"json": "bytes", "unit": "byte"}}):
        assert run.metrics["output.size"] == 20_000
        assert run.metrics["completion_time"] < 10
