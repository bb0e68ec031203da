"""The targets in Python of `./backchannel bench fuzz`, each with its corpus and some inputs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from analysis.exports import crate_reader
from analysis.store import Store
from experiments import bundles
from testbed.node_binary import ROOT
from tests.fuzz import readers

CORPUS = ROOT / "tests/fuzz/corpus"


@pytest.mark.parametrize("target", sorted(readers.TARGETS))
def test_a_target_takes_its_corpus_and_some_inputs(target: str) -> None:
    choices = random.Random(5)  # noqa: S311 (repeatable)
    with readers.TARGETS[target](CORPUS) as run:
        for path in sorted((CORPUS / target).iterdir()):
            data = path.read_bytes()
            run(data)
            for _ in range(8):
                at = choices.randrange(len(data))
                run(data[:at] + choices.randbytes(choices.randrange(4)) + data[at + choices.randrange(4) :])


def test_the_bundle_of_the_corpus_is_a_right_one(tmp_path: Path) -> None:
    """Otherwise nothing behind the first check is ever reached."""
    with Store.open(tmp_path) as store:
        told = bundles.read(store, CORPUS / "bundle/tiny.crate.zip")
    assert (told.runs, told.landed, told.measured, told.corrected) == (1, 1, 1, 0)


def test_a_target_fails_where_its_reader_does(monkeypatch: pytest.MonkeyPatch) -> None:
    with readers.bundle(CORPUS) as run:
        monkeypatch.setattr(crate_reader, "_problems", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run((CORPUS / "bundle/tiny.crate.zip").read_bytes())
