"""Stores and bundles that are damaged at random, and what readers make of them.

A reader may give what it gave before, or end with a sentence. A traceback is a defect, and so is another number with
status 0.
"""

from __future__ import annotations

import os
import random
import shutil
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import analysis
from analysis.exports import crate
from analysis.store import Store
from tests.support import bundles
from tests.support.called import called
from tests.support.campaign_texts import asymmetric_path
from web.app import create_app

#: Two parameter combinations with three short runs each.
CAMPAIGN = f"""
name: damaged
backend: sim
{asymmetric_path()}stack: newreno
workload:
  - {{name: data, from: server, to: client, size: 60 kB}}
duration: 4 s
sweep:
  network.reverse.queue.policy: [droptail, acks-first]
repetitions: 3
seed: 7
"""
#: Commands whose outputs are compared, without the results folder; OUT is an empty folder.
OF_ROWS: tuple[tuple[str, ...], ...] = (
    ("results", "damaged", "--json"), ("results", "damaged", "--page", "1"), ("runs", "damaged", "--json"),
    ("compare", "damaged", "--metric", "all", "--out", "OUT/c.csv"),
    ("export", "wide", "damaged", "--out", "OUT/wide.csv"), ("export", "values", "damaged", "--out", "OUT/values.csv"),
)  # fmt: skip
OF_FILES: tuple[tuple[str, ...], ...] = (
    ("export", "segments", "RUN", "--out", "OUT/segments.csv"), ("plot", "sequence", "RUN", "--out", "OUT/s.svg"),
    ("export", "xplot", "RUN", "--out", "OUT/x.xpl"), ("export", "bundle", "damaged", "--out", "OUT/b.zip"),
    ("copy", "damaged", "OUT/copy"),
)  # fmt: skip
PAGES = ("/", "/campaigns/CAMPAIGN", "/runs/RUN", "/api/campaigns/CAMPAIGN", "/api/runs/RUN")


@dataclass(frozen=True)
class Answer:
    """What a reader gave."""

    #: 0 if it claims to be right.
    status: int
    output: bytes
    #: Of an exception that nothing handled; "" without one.
    traceback: str = ""


@dataclass(frozen=True)
class Finding:
    """A defect that a damage brought to light."""

    #: Number of the damage, from which it can be made again.
    number: int
    #: What was read.
    what: str
    #: A traceback, or what differs.
    why: str


def commanded(words: Sequence[str], results: Path, out: Path, run_id: str) -> Answer:
    """Runs a command in this process: its status, and its output with the files that it wrote."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    given = [word.replace("OUT", str(out)).replace("RUN", run_id) for word in words]
    try:
        # Figures of a bundle are drawn from rows, take most of its time, and are in no output that is compared.
        with mock.patch.object(crate, "FIGURES", ()):
            status, said, errors = called(*given, "--results", results)
    except BaseException:  # noqa: BLE001 (a panic of polars is no Exception)
        return Answer(70, b"", traceback.format_exc())
    if "Traceback" in errors:
        return Answer(status, b"", errors)
    files = sorted(path for path in out.rglob("*") if path.is_file() and path.suffix not in (".zip", ".sqlite"))
    # A copy may have been damaged on its way: whoever reads it finds its rows right.
    files = [path for path in files if "copy" not in path.parts]
    return Answer(status, b"".join([said.encode(), *(path.read_bytes() for path in files)]))


def visited(results: Path, campaign_id: str, run_id: str) -> dict[str, Answer]:
    """What the site shows: pages with status 200, without what differs at each visit."""
    answers = {}
    try:
        client = create_app(results).test_client()
        client.application.config["PROPAGATE_EXCEPTIONS"] = True
    except Exception as error:  # noqa: BLE001 (decided by the caller)
        known = isinstance(error, analysis.store.StoreError)
        return {"site": Answer(1, b"", "" if known else traceback.format_exc())}
    for page in PAGES:
        address = page.replace("CAMPAIGN", campaign_id).replace("RUN", run_id)
        try:
            answer = client.get(address)
        except Exception:  # noqa: BLE001
            answers[page] = Answer(70, b"", traceback.format_exc())
            continue
        answers[page] = Answer(0 if answer.status_code == 200 else answer.status_code, b"")
        answer.close()
    return answers


class Damaged:
    """A store that is damaged again and again.

    Args:
        results: of CAMPAIGN; it stays as it is.
        place: a folder for copies.
    """

    def __init__(self, results: Path, place: Path) -> None:
        self.results, self.place = results, place
        #: Damages that some reader refused to go on with.
        self.refused = 0
        with Store.open(results) as store:
            (campaign,) = store.campaigns()
            self.campaign_id, self.run_id = campaign.id, store.run_ids("")[0]
        self.rows = {words: self._answer(words, results) for words in OF_ROWS}
        self.files = {words: self._answer(words, results) for words in OF_FILES}
        wrong = {words: answer for words, answer in (self.rows | self.files).items() if answer.status}
        assert not wrong, wrong

    def _answer(self, words: Sequence[str], results: Path) -> Answer:
        return commanded(words, results, self.place / "out", self.run_id)

    def copied(self) -> Path:
        """A copy of the store, to be damaged."""
        copy = self.place / "results"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.results, copy, copy_function=os.link)
        for path in copy.glob("results.sqlite*"):
            path.unlink()
            shutil.copy(self.results / path.name, path)
        return copy

    def database(self, number: int, site: bool = True) -> list[Finding]:
        """Damages the database's file, and reads it by commands and the site."""
        choices, copy = random.Random(number), self.copied()  # noqa: S311 (repeatable)
        spoil(copy / "results.sqlite", choices)
        return self.findings(number, copy, self.rows, site)

    def artefact(self, number: int, site: bool = True) -> list[Finding]:
        """Flips a bit of a file of the run, and reads it."""
        choices, copy = random.Random(number), self.copied()  # noqa: S311 (repeatable)
        folder = next((copy / "runs").glob(f"*/{self.run_id}"))
        path = choices.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
        flip(path, choices.randrange(path.stat().st_size), choices.randrange(8))
        return self.findings(number, copy, self.files, site, str(path.relative_to(folder)))

    def bundle(self, number: int, bundle: Path) -> list[Finding]:
        """Changes a bundle, and imports it."""
        choices, path = random.Random(number), self.place / "changed.zip"  # noqa: S311 (repeatable)
        if choices.random() < 0.3:
            shutil.copy(bundle, path)
            spoil(path, choices)
        else:
            bundles.rewritten(bundle, path, bundles.edited(lambda document: bundles.mutate(document, choices)))
        target = self.place / "imported"
        shutil.rmtree(target, ignore_errors=True)
        answer = commanded(("import", str(path)), target, self.place / "out", self.run_id)
        if answer.traceback:
            return [Finding(number, "import", answer.traceback)]
        self.refused += answer.status != 0
        with Store.open(target) as store:
            if answer.status:
                left = [*store.campaign_ids(), *store.run_ids(""), *(target / "incoming").iterdir()]
                return [Finding(number, "import", f"left behind: {left}")] if left else []
            with Store.open(self.results) as right:
                expected = {(row.run_id, row.name, row.subject): row.value for row in right.values(self.campaign_id)}
            (campaign,) = store.campaigns()
            for row in store.values(campaign.id):
                run = store.run(row.run_id)
                marked = run is not None and run.documents.manifest.values_from_bundle
                if not marked and expected.get((row.run_id, row.name, row.subject)) != row.value:
                    return [Finding(number, "import", f"{row} is not what was measured")]
        return []

    def findings(
        self, number: int, copy: Path, expected: dict[tuple[str, ...], Answer], site: bool, where: str = ""
    ) -> list[Finding]:
        """What readers make of a damaged copy.

        Args:
            number: of the damage.
            copy: of the store.
            expected: answers over the intact store: `rows` or `files`.
            site: whether the site is read, too.
            where: what was damaged.
        """
        findings, answers = [], {words: self._answer(words, copy) for words in expected}
        self.refused += any(answer.status for answer in answers.values())
        for words, answer in answers.items():
            right = expected[words].output.replace(str(self.results).encode(), str(copy).encode())
            if answer.traceback:
                findings.append(Finding(number, f"{' '.join(words)} {where}", answer.traceback))
            elif answer.status == 0 and answer.output != right:
                findings.append(Finding(number, f"{' '.join(words)} {where}", "status 0 and another output"))
        if site:
            for page, answer in visited(copy, self.campaign_id, self.run_id).items():
                if answer.traceback or answer.status == 500:
                    findings.append(Finding(number, f"{page} {where}", answer.traceback or "status 500"))
        return findings


def flip(path: Path, at: int, bit: int) -> None:
    """Flips a bit of a file that other names may share."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.unlink()
    path.write_bytes(data)


def spoil(path: Path, choices: random.Random) -> None:
    """Changes a file at a random place: a bit, some bytes, or a block that is lost."""
    data = bytearray(path.read_bytes())
    at = choices.randrange(len(data))
    kind = choices.randrange(4)
    if kind == 0:
        data[at] ^= 1 << choices.randrange(8)
    elif kind < 3:
        for _ in range(choices.randint(1, 16)):
            data[choices.randrange(len(data))] = choices.randrange(256)
    else:
        end = at // 512 * 512 + 512
        data[at // 512 * 512 : end] = bytes(len(data[at // 512 * 512 : end]))
    path.write_bytes(data)


def made(folder: Path, run: Callable[[Path, Path], None]) -> tuple[Path, Path]:
    """Makes the results of CAMPAIGN and their bundle in a folder.

    Args:
        folder: an empty one.
        run: runs a campaign file into a results folder.
    """
    file, results, bundle = folder / "damaged.yaml", folder / "made", folder / "damaged.zip"
    file.write_text(CAMPAIGN)
    run(file, results)
    with Store.open(results) as store, store.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    answer = commanded(("export", "bundle", "damaged", "--out", str(bundle)), results, folder / "out", "")
    assert answer.status == 0, answer
    return results, bundle
