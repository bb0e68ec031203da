"""Names of sessions."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from pathlib import Path

import pytest

from experiments.sessions import control
from experiments.sessions.state import SessionControl
from tests.support.site import FakeSession


def test_a_session_has_a_name_that_no_other_has_or_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "folder", lambda: tmp_path)
    own = str(os.getpid())
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / f"{own}.sock"))
    left.close()
    assert control.free_name() == own
    # A process of another namespace may have the same number.
    with closing(control.ControlServer(own, SessionControl, FakeSession(own))):
        assert control.free_name() == f"{own}-2"
