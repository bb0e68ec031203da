"""How many cells at once, found on machines that are made up: each cell takes its share of the CPUs."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, strategies as st

from experiments.engine.governor import RULES, Governor, most_cells


class MadeUp:
    """A machine on which every cell takes `share` of all CPUs, beside what others take."""

    def __init__(self, share: float, others: float = 0.0, most: int = 500, fixed: int | None = None) -> None:
        self.share, self.others = share, others
        self.governor = Governor(2, most, fixed)
        self.now_s = 0.0

    def busy(self, cells: int) -> float:
        return min(1.0, self.others + self.share * cells)

    def strain(self, cells: int) -> float:
        # Packets are late when the CPUs are nearly all taken.
        load = self.others + self.share * cells
        return 0.1 + load**8 * 1.1

    def work(self, seconds: int, run_s: int = 20) -> list[int]:
        """Cells at each second; runs end at a steady pace."""
        seen = []
        for second in range(seconds):
            self.now_s += 1
            cells = self.governor.allowed
            seen.append(cells)
            self.governor.on_reading(self.now_s, self.busy(cells), cells)
            for number in range(cells):
                if (second + number) % run_s == 0:
                    self.governor.on_run(self.now_s, self.strain(cells), cells, run_s)
        return seen


def test_cheap_cells_are_many_and_soon_and_dear_ones_few() -> None:
    machine = MadeUp(share=0.01)
    seen = machine.work(60)
    assert 60 <= seen[-1] <= 90
    assert next(second for second, cells in enumerate(seen) if cells >= 50) <= 25
    seen = MadeUp(share=0.15).work(200)
    assert 3 <= seen[-1] <= 6
    assert max(seen) <= 7


def test_a_machine_that_becomes_busy_gets_fewer_and_then_more_again() -> None:
    machine = MadeUp(share=0.02)
    alone = machine.work(80)[-1]
    machine.others = 0.6
    beside = machine.work(120)[-1]
    machine.others = 0.0
    again = machine.work(120)[-1]
    assert beside < alone / 2
    assert again > beside * 1.5


def test_three_invalid_runs_in_a_row_lower_and_rest() -> None:
    governor = Governor(2, 100)
    for second in range(20):
        governor.on_reading(second, 0.1, governor.allowed)
    before = governor.allowed
    governor.on_run(20.0, 1.5, before, 5.0)
    governor.on_run(20.0, 1.5, before, 5.0)
    assert governor.allowed == before
    governor.on_run(20.0, 1.5, before, 5.0)
    # Three of three: the smoothed share of invalid runs is 0.39, and a fifth of the cells goes.
    lowered = int(before * 0.807)
    assert governor.allowed == lowered
    for second in range(21, 21 + int(RULES.rest_s) - 2):
        governor.on_reading(second, 0.1, governor.allowed)
        assert governor.allowed == lowered
    governor.on_reading(60.0, 0.1, governor.allowed)
    assert governor.allowed > lowered


def work_in_long_runs(seconds: int, most_in_time: Callable[[int], int]) -> tuple[list[int], list[tuple[int, bool]]]:
    """Runs of 100 s on a machine whose CPUs are nearly idle, in time while at most `most_in_time(second)` run at once.

    Returns the number of cells at each second, and of each run when it ended and whether it was late.
    """
    governor = Governor(2, 500)
    running: list[list[int]] = []  # when each run began, and the most cells beside it
    seen, ended = [], []
    for second in range(seconds):
        for run in [run for run in running if second - run[0] >= 100]:
            running.remove(run)
            late = run[1] > most_in_time(second)
            ended.append((second, late))
            governor.on_run(second, 2.0 if late else 0.1, run[1], 100.0)
        while len(running) < governor.allowed:
            running.append([second, 0])
        for run in running:
            run[1] = max(run[1], len(running))
        seen.append(len(running))
        governor.on_reading(second, 0.01 * len(running), len(running))
    return seen, ended


def test_long_runs_on_an_idle_machine_settle_where_they_are_valid() -> None:
    _, ended = work_in_long_runs(3000, lambda _: 12)
    assert sum(1 for second, late in ended if second < 600 and not late) > 0
    later = [late for second, late in ended if second >= 1000]
    assert len(later) > 100
    assert sum(later) < 0.5 * len(later)


def test_cells_come_back_when_so_many_are_in_time_again() -> None:
    seen, ended = work_in_long_runs(5000, lambda second: 12 if second < 2000 else 500)
    assert max(seen[1000:2000]) < 20
    assert seen[-1] > 60
    assert not any(late for second, late in ended if second > 2200)


def test_a_run_of_fourteen_may_be_invalid_and_one_of_three_is_too_many() -> None:
    """A stall of the host spoils a run now and then."""
    for every, least, most in ((14, 60, 60), (3, 1, 9)):
        governor = Governor(2, 60)
        for second in range(300):
            governor.on_reading(second, 0.01 * governor.allowed, governor.allowed)
            governor.on_run(second, 0.1 if second % every else 2.0, governor.allowed, 1.0)
        assert least <= governor.allowed <= most


def test_a_machine_that_is_given_less_than_it_asks_for_gets_fewer_cells() -> None:
    governor = Governor(2, 100)
    for second in range(30):
        governor.on_reading(second, 0.4, governor.allowed)
    before = governor.allowed
    assert before > 10
    for second in range(30, 90):
        governor.on_reading(second, 0.4, governor.allowed, stolen=0.03)
    beside = governor.allowed
    assert beside < before - 5
    for second in range(90, 150):
        governor.on_reading(second, 0.4, governor.allowed)
    assert governor.allowed > beside


def test_what_gives_way_to_cells_was_asked_for_too() -> None:
    alone, kept = Governor(2, 100), Governor(2, 100)
    for second in range(60):
        alone.on_reading(second, 0.3, alone.allowed, stolen=0.02)
        kept.on_reading(second, 0.3, kept.allowed, stolen=0.02, niced=0.68)
    assert alone.allowed < 15, "a sixteenth of what was asked for takes cells away"
    assert kept.allowed > 20, "a fiftieth does not"


def test_no_run_begins_while_the_host_takes_a_third_but_one_is_tried_each_minute() -> None:
    governor = Governor(2, 100)
    seen = []
    for second in range(200):
        governor.on_reading(second, 0.03, governor.allowed, stolen=0.05 if second < 150 else 0.0)
        seen.append(governor.allowed)
    held = [second for second, cells in enumerate(seen) if cells == 0]
    assert held[0] < 10
    assert held[-1] < 170
    begun = [second for second in range(1, 150) if seen[second] and not seen[second - 1]]
    assert begun
    assert all(all(seen[second : second + 50]) for second in begun if second < 100)
    assert max(later - earlier for earlier, later in zip(held, held[1:], strict=False)) <= RULES.hold_s + 1


def test_runs_that_end_while_the_host_takes_the_cpus_say_nothing_of_cells() -> None:
    governor = Governor(2, 40)
    for second in range(60):
        governor.on_reading(second, 0.01 * governor.allowed, governor.allowed)
    before = governor.allowed
    for second in range(60, 65):
        governor.on_reading(second, 0.3, governor.allowed, stolen=0.4)
        governor.on_run(second, 9.0, before, 1.0)
    for second in range(65, 125):
        governor.on_reading(second, 0.01 * governor.allowed, governor.allowed)
    assert governor.allowed == before, "as many as before, though no run has been valid since"


def test_a_tick_of_stolen_time_holds_nothing_and_cells_that_are_not_used_prove_nothing() -> None:
    ticking, unused = Governor(2, 100), Governor(2, 100)
    for second in range(100):
        ticking.on_reading(second, 0.01, ticking.allowed, stolen=0.005)
        assert ticking.allowed >= 3
        unused.on_reading(second, 0.01, 1)
    assert unused.allowed == 3


def test_a_number_that_was_asked_for_is_kept_until_runs_are_invalid() -> None:
    machine = MadeUp(share=0.01, fixed=5)
    assert set(machine.work(50)) == {5}
    for _ in range(3):
        machine.governor.on_run(machine.now_s, 2.0, 5, 1.0)
    assert machine.governor.allowed == 4


@given(share=st.floats(0.001, 1.0), others=st.floats(0.0, 1.0), most=st.integers(1, 60))
def test_never_none_and_never_more_than_allowed(share: float, others: float, most: int) -> None:
    seen = MadeUp(share, others, most).work(60)
    assert all(1 <= cells <= most for cells in seen)


def test_memory_bounds_the_cells() -> None:
    assert most_cells(24 * 10**9) == 120
    assert most_cells(10**8) == 1
