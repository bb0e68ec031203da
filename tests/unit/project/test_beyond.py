"""docs/beyond.md holds what its data, experiments/beyond/results.json, say."""

from __future__ import annotations

import re

from benchmarks.beyond import DATA, FOLDER, PAGE, STUDIES, Data, Point, Study, page, tables, tables_of
from experiments.language.campaign import load

KEPT = Data.model_validate_json(DATA.read_text(encoding="utf-8"))
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_page_has_the_tables_of_the_data() -> None:
    assert page(TEXT, KEPT) == TEXT


def test_the_page_has_every_study_once() -> None:
    assert re.findall(r"<!-- (\S+): written by", TEXT) == [study.campaign for study in STUDIES]


def test_every_interval_of_the_prose_stands_in_a_table() -> None:
    made = "".join(tables_of(study, KEPT) for study in STUDIES)
    prose = re.sub(r"^\|.*$", "", TEXT, flags=re.MULTILINE)
    for stated in re.findall(r"[+-]?\d+(?:\.\d+)? ± \d+(?:\.\d+)?", prose):
        assert stated in made, stated


def test_every_point_has_its_repetitions() -> None:
    for study in STUDIES:
        repetitions = load(FOLDER / f"{study.campaign}.yaml").repetitions
        assert repetitions >= 5, study.campaign
        assert {len(point.values) for point in KEPT.points[study.campaign]} == {repetitions}, study.campaign


def test_columns_are_compared_with_one_of_them() -> None:
    study = Study(campaign="two", columns="kernel", measures={"download": "download"}, baselines=(),
                  column_baseline="6.12", perturbations=0)  # fmt: skip

    def point(row: str, column: str, level: float) -> Point:
        values = tuple(level + 0.1 * (number % 3) for number in range(20))
        return Point(measure="download", row=row, column=column, values=values, perturbed=())

    result = tables(study, [
        point("droptail", "6.12", 10), point("droptail", "6.1", 12), point("AQ", "6.12", 10), point("AQ", "6.1", 10.01)
    ])  # fmt: skip
    assert "| less 6.12, Mbit/s | 6.1, download |" in result
    assert re.search(r"^\| droptail \| \+2\.0\d* ", result, re.MULTILINE), result
    assert "| AQ | same |" in result


def test_linux_is_compared_with_the_simulator_where_both_have_a_point_and_repetitions_do_not_pair() -> None:
    study = Study(campaign="linux", columns="line", measures={"download": "download"}, baselines=(), simulated="sim",
                  perturbations=0)  # fmt: skip

    def point(row: str, level: float, count: int, spread: float = 0.1) -> Point:
        values = tuple(level + spread * (number % 3 - 1) for number in range(count))
        return Point(measure="download", row=row, column="50/1", values=values, perturbed=())

    linux = [point("droptail", 10, 6), point("CAKE", 12, 6), point("only Linux's", 5, 6), point("noisy", 30, 6, 9)]
    simulated = [point("droptail", 10, 20), point("CAKE", 10, 20), point("only ours", 5, 20), point("noisy", 30, 20, 9)]
    lines = tables(study, linux, simulated).partition("less simulation (sim), Mbit/s")[2].splitlines()
    assert lines[0] == " | 50/1, download |"
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| droptail", "| CAKE", "| noisy"]
    assert "same" in lines[2]
    assert "cannot tell" in lines[4]
    # Welch's interval of 6 and 20 values: pairs would have no spread at all, and so an exact difference.
    assert re.search(r"\+2\.0\d* ± 0\.\d+ \|", lines[3]), lines[3]


def test_a_difference_that_a_perturbation_turns_round_is_marked() -> None:
    def point(row: str, level: float, perturbed: tuple[float, ...]) -> Point:
        values = tuple(level + 0.1 * (number % 3) * (1 if row == "AQ" else 2) for number in range(20))
        return Point(measure="download_share", row=row, column="cable", values=values, perturbed=perturbed)

    upload = [
        Point(measure="upload_share", row=row, column="cable", values=(5.0, 5.1, 5.2), perturbed=(5.0, 5.0))
        for row in ("droptail", "fq-drr", "AQ")
    ]
    result = tables(STUDIES[0], [
        point("droptail", 10, (10, 10)), point("fq-drr", 10, (10, 10)), point("AQ", 20, (20, 9)), *upload
    ])  # fmt: skip
    lines = [line for line in result.splitlines() if line.startswith("| AQ")]
    assert re.match(r"\| AQ \| \+9\.9\d* ± 0\.\d+ \(1 of 2\) \| same \|", lines[1]), lines[1]
