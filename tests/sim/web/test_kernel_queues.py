"""Figures of queues that the kernel keeps: which a page shows, and what is in them."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from analysis.captures import RunData
from analysis.figures.registry import Asked, draw
from analysis.runs import Unmeasured
from testbed import kernel_links
from testbed.scenario import DirectionSpec, Named, Options
from tests.conftest import two_hosts, typed

HEAD = '{"t_ns":2000000000,"link":"line","direction":"forward",'
ROWS = (
    '"packets":4,"bytes":6000,"max":4}',
    '"event":"marked","count":3}',
    '"class":"classic","delay_s":0.015,"probability":0.01,"arrived_packets":7}',
    '"class":"l4s","delay_s":0.0005,"probability":0.2,"arrived_packets":9}',
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "telemetry").mkdir()
    (tmp_path / "telemetry/links.jsonl").write_text("".join(f"{HEAD}{row}\n" for row in ROWS))
    return tmp_path


@pytest.mark.parametrize(("kind", "values"), [("queue-delay", [15.0, 0.5]), ("mark-probability", [1.0, 20.0])])
def test_a_figure_has_a_line_for_each_class(kind: str, values: list[float], folder: Path) -> None:
    run = RunData(typed(two_hosts()), [], 0, pl.DataFrame(), pl.DataFrame(), {}, folder=folder)
    figure = draw(run, kind, ["line/forward"], Asked(0.0, 10.0, 0.1))
    assert [line.name for line in figure.series] == ["classic", "l4s"]
    assert [line.points["y"].to_list() for line in figure.series] == [[value] for value in values]
    with pytest.raises(Unmeasured, match="this queue reports no"):
        draw(run, kind, ["line/reverse"], Asked(0.0, 10.0, 0.1))


@pytest.mark.parametrize(
    ("policy", "options", "figures"),
    [
        ("dualpi2", {}, ("queue-delay", "mark-probability")),
        ("codel", {"shaper": "tbf"}, ("queue-delay",)),
        ("droptail", {"shaper": "cake"}, ("queue-delay",)),
        ("fq_pie", {}, ()),
    ],
)
def test_a_page_shows_what_the_discipline_reports(policy: str, options: Options, figures: tuple[str, ...]) -> None:
    assert kernel_links.sampled(options, DirectionSpec(queue=Named(name=policy))) == figures
