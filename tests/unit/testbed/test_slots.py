"""Places that the processes of a machine share."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from testbed.errors import TestbedError
from testbed.slots import Slots
from tests.support.waiting import HANGS_S

HOLDS = """
import sys, threading
from pathlib import Path
from testbed.slots import Slots
from tests.support.waiting import HANGS_S
assert Slots("building", 1, threading.Event(), Path(sys.argv[1])).take()
print("held", flush=True)
threading.Event().wait(60)
"""


def test_another_process_has_the_place_until_it_dies(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", HOLDS, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        slots = Slots("building", 1, threading.Event(), tmp_path)
        assert not slots.take()
    finally:
        other.kill()
        other.communicate()
    with slots:
        assert not Slots("building", 1, threading.Event(), tmp_path).take()
    assert Slots("building", 1, threading.Event(), tmp_path).take()


def test_as_many_as_there_are_places(tmp_path: Path) -> None:
    holders = [Slots("building", 2, threading.Event(), tmp_path) for _ in range(3)]
    assert [holder.take() for holder in holders] == [True, True, False]
    assert holders[0].take(), "it has one"
    assert not holders[2].take()
    holders[0].release()
    assert holders[2].take()
    assert Slots("awake", 1, threading.Event(), tmp_path).take(), "another name has places of its own"


def test_who_is_told_to_stop_waits_no_longer(tmp_path: Path) -> None:
    first = Slots("building", 1, threading.Event(), tmp_path)
    assert first.take()
    stop = threading.Event()
    entered = threading.Event()

    def wait() -> None:
        with Slots("building", 1, stop, tmp_path):
            entered.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert not entered.is_set()
    stop.set()
    waiting.join(HANGS_S)
    assert entered.is_set()


def test_a_folder_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TestbedError, match="which holds this machine's locks, cannot be used"):
        Slots("building", 1, threading.Event(), tmp_path / "file").take()
