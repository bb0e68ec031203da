"""Ten campaigns of different shape: each is answered by what it asks, and every view says the same of it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from flask.testing import FlaskClient

import analysis
from analysis.handle import OpenResults
from experiments.labels import point_label
from experiments.results_table import Asked, columns_of
from tests.support.called import called
from tests.support.ten_campaigns import NAMES, WIDE, ten, wide
from web.app import create_app

#: Campaign to what it asks: metric, subject and what is beside it.
ASKED = {
    "one-axis": ("throughput", "forward", "throughput of reverse"),
    "three-axes": ("throughput", "download", "throughput of upload"),
    "probe": ("latency_p99", "ping", "throughput of upload"),
    "call": ("call_quality", "voice", "throughput of upload"),
    "uploads": ("throughput", "upload", ""),
    "other-names": ("completion_time", "backup-to-the-office", "throughput of film"),
    "hundred": ("throughput", "down", "throughput of up"),
    "four-hundred": ("throughput", "down", "throughput of up"),
    "shell": ("aggregate_throughput", "", ""),
    "imports": ("aggregate_throughput", "", ""),
    "acq-fig7": ("utility", "bottleneck", ""),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ten(tmp_path_factory.mktemp("ten"))


@pytest.fixture
def store(folder: Path) -> Iterator[OpenResults]:
    with analysis.open(folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def site(folder: Path) -> FlaskClient:
    return create_app(folder).test_client()


def test_there_are_ten() -> None:
    assert set(ASKED) == {*NAMES, *WIDE}
    assert len(NAMES) == 10


@pytest.mark.parametrize("name", NAMES)
def test_a_campaigns_question_comes_first(name: str, store: OpenResults, site: FlaskClient, folder: Path) -> None:
    campaign = store[name]
    metric, subject, beside = ASKED[name]
    question = campaign.question
    assert question is not None
    assert question.quantity[:2] == (metric, subject)
    assert (" of ".join(question.beside[:2]) if question.beside else "") == beside
    assert question.is_stated == (name == "probe")
    title = analysis.metrics.METRICS[metric].title + (f" of {subject}" if subject else "")
    page = site.get(f"/campaigns/{campaign.row.id}").text
    (answer,) = re.findall(r'<p class="answer">(.*?)</p>', page, re.DOTALL)
    assert answer.startswith(f"{title} is ")
    for path in ("", "/explore"):
        chosen = re.search(
            r'<select name="metric".*?</select>', site.get(f"/campaigns/{campaign.row.id}{path}").text, re.S
        )
        assert chosen is not None
        assert f'<option value="{metric}/{subject}" selected' in chosen[0]
    status, out, err = called("results", name, "--results", folder)
    assert status == 0, err
    assert columns_of(campaign, Asked())[0] == (metric, subject)
    assert (analysis.metrics.METRICS[metric].column or metric) in out
    status, out, err = called("plot", "bars", name, "--results", folder, "--out", folder.parent / "bars.svg")
    assert status == 0, err


_ALIKE = pytest.mark.slow(reason="40 columns are where a table is cut, and wide tables are tried at each width")


@pytest.mark.parametrize(
    ("name", "width"),
    [
        pytest.param(name, width, marks=() if width == 40 or name in ("three-axes", "hundred") else _ALIKE)
        for name in NAMES for width in (40, 80, 200)
    ],
)  # fmt: skip
def test_results_fit_any_width_uncut(name: str, width: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    status, out, err = called("results", name, "--results", folder)
    assert status == 0, err
    lines = out.splitlines()
    assert max(map(len, lines)) <= width
    # Forty combinations are one page.
    assert len(lines) < 200
    if width == 200 and name in ("three-axes", "hundred", "four-hundred"):
        assert len(lines) < 60
        assert re.search(r"\bdroptail\b", out)


@pytest.mark.parametrize("name", NAMES)
def test_site_and_command_print_the_same_of_each_comparison(name: str, store: OpenResults, site: FlaskClient) -> None:
    """Each of the first values of a field against its baseline, for the question's metric and for another."""
    campaign = store[name]
    numbers = {tuple(sorted(dict(point.parameters).items())): point.number for point in campaign.row.points}
    if len(numbers) < 2:
        return
    field = next(field for field, values in campaign.axes.items() if len(values) > 1)
    rows = campaign.contrast(field).to_dicts()
    asked, others = ([row for row in rows if row["exploratory"] is wanted] for wanted in (False, True))
    assert asked
    for row in (*asked[:3], *others[:2], *others[-2:]):
        rest = {other: row[other] for other in campaign.axes if other != field}
        first, second = (numbers[tuple(sorted({**rest, field: row[key]}.items()))] for key in ("baseline", "value"))
        address = f"point={campaign.row.id}:{first}&point={campaign.row.id}:{second}"
        answer: Any = site.get(f"/api/compare?{address}").json
        cell = next(
            entry["cells"][1] for entry in answer["metrics"]
            if (entry["metric"], entry["flow"]) == (row["metric"], row["subject"])
        )  # fmt: skip
        assert (cell["difference_low"], cell["difference_high"]) == (row["low"], row["high"])
        assert (cell["difference_level"], cell["p_adjusted"]) == (row["level"], row["p_adjusted"])
        if row in asked:
            page = re.sub(r"\s+", " ", site.get(f"/compare?{address}").text.replace("\u00a0", " "))
            assert f'{row["shown"]}</span> <span class="word {row["verdict"].replace(" ", "-")}">' in page


@pytest.mark.parametrize("width", [80, 60, 40])
def test_compare_fits_any_width_and_counts_the_rest(
    width: int, monkeypatch: pytest.MonkeyPatch, store: OpenResults
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    field = ("--field", "network.reverse.queue.policy", "--results", store.store.where)
    status, out, _ = called("compare", "three-axes", *field)
    assert status == 0
    assert max(map(len, out.splitlines())) <= width
    rows = store["three-axes"].contrast("policy", metrics=["throughput"]).to_dicts()
    # Points have lines of their own, which columns do not fold.
    fields = [name for name in store["three-axes"].axes if not name.endswith("policy")]
    if width > 40:
        point = point_label({name: rows[0][name] for name in fields})
        assert point in map(str.strip, out.splitlines())
    counted = Counter(row["verdict"] for row in rows if row["exploratory"])
    said = " ".join(out.split())
    assert f"exploratory: {counted['same']} same, {counted['cannot tell']} cannot tell (--all prints them)" in said
    assert "cannot tell (--all" not in called("compare", "three-axes", *field, "--all")[1]


def test_the_question_is_uncorrected_over_metrics_and_the_rest_is_exploratory(store: OpenResults) -> None:
    question = store["probe"].question
    assert question is not None
    assert question.comparisons(question.quantity) == 1
    rows = store["probe"].contrast().to_dicts()
    (asked,) = (row for row in rows if not row["exploratory"])
    assert (asked["metric"], asked["level"]) == ("latency_p99", 0.95)
    assert {row["comparisons"] for row in rows if row["exploratory"]} == {len(question.others)}
    wide = store["three-axes"].question
    assert wide is not None
    assert wide.comparisons(wide.quantity) == 39


def test_three_runs_that_cannot_tell_say_how_many_would(store: OpenResults) -> None:
    rows = store["three-axes"].contrast("policy", metrics=["throughput"]).to_dicts()
    texts = [row["shown"] for row in rows if row["verdict"] == "cannot tell"]
    assert any(re.search(r"; 3 runs cannot tell, about \d+ would$", text) for text in texts)
    for row in rows:
        half = (row["high"] - row["low"]) / 2 if row["low"] is not None else 0.0
        # An interval that is farther than the means themselves is not printed.
        if row["verdict"] == "cannot tell" and half > max(row["mean_first"], row["mean_second"]):
            assert "±" not in row["shown"]


def test_no_interval_leaves_what_a_metric_can_be(store: OpenResults) -> None:
    are_within_bounds(store, NAMES)


def are_within_bounds(store: OpenResults, names: Iterable[str]) -> None:
    for name in names:
        for row in store[name].means().filter(pl.col("low").is_not_null()).to_dicts():
            most = 1 if row["unit"] == "fraction" else math.inf
            # A window may shrink.
            least = -math.inf if row["metric"].startswith("cwnd_growth") else min(0, *row["values"])
            assert least <= row["low"] <= row["mean"] <= row["high"] <= most, (name, row["metric"])


@pytest.mark.slow(reason="a hundred combinations are more than a page, as these are")
def test_four_hundred_combinations_are_shown_as_a_hundred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = wide(tmp_path)
    site = create_app(results).test_client()
    for name in WIDE:
        with analysis.open(results) as opened:
            test_a_campaigns_question_comes_first(name, opened, site, results)
            test_site_and_command_print_the_same_of_each_comparison(name, opened, site)
        for width in (40, 80, 200):
            test_results_fit_any_width_uncut(name, width, results, monkeypatch)
    monkeypatch.delenv("COLUMNS")
    with analysis.open(results) as opened:
        are_within_bounds(opened, WIDE)
