"""The rings of the past, under clocks that jump, restarts, broken files and too many series."""

import logging
from pathlib import Path

import pytest

from hived.values.errors import UserError
from hived_extender.api.past import History
from hived_extender.insight import history as module
from hived_extender.insight.history import RINGS, HistoryRings
from hived_extender.insight.store import CORRUPT, Store

DAY = 86_400
START = 1_790_000_000 // 3600 * 3600
USED = ("leaf_cells_used", "A")
STARTS = ("started_pods", "A")


def values(found: History, metric: str = "leaf_cells_used") -> dict[int, float | None]:
    """Value by moment, relative to START."""
    (series,) = [one for one in found.series if one.metric == metric]
    return dict(zip([at - START for at in found.times], series.values, strict=True))


def opened(path: Path | None) -> HistoryRings:
    return HistoryRings(Store(path))


def test_samples_of_a_minute_become_their_mean_and_events_their_sum() -> None:
    rings = opened(None)
    for second, used, starts in [(0, 2, 1), (15, 4, 0), (30, 6, 2), (45, 8, 0), (60, 1, 0)]:
        rings.record(START + second, {USED: used, STARTS: starts})
    found = rings.query(START, START + 60, 60)
    assert values(found) == {0: 5.0}
    assert values(found, "started_pods") == {0: 3.0}


def test_minutes_become_five_minutes_and_hours() -> None:
    rings = opened(None)
    for minute in range(120):
        rings.record(START + 60 * minute, {USED: minute // 5, STARTS: 1})
    rings.flush()
    found = rings.query(START, START + DAY, 300)
    assert values(found) == {300 * number: float(number) for number in range(24)}
    assert set(values(found, "started_pods").values()) == {5.0}
    hours = rings.query(START, START + DAY, 3600)
    assert values(hours) == {0: 5.5, 3600: 17.5}
    assert values(hours, "started_pods") == {0: 60.0, 3600: 60.0}


def test_a_metric_that_is_not_in_a_sample_is_0_and_a_minute_without_samples_is_not_there() -> None:
    rings = opened(None)
    rings.record(START, {USED: 3})
    rings.record(START + 60, {})
    rings.record(START + 180, {USED: 1})
    rings.flush()
    assert values(rings.query(START, START + DAY, 60)) == {0: 3.0, 60: 0.0, 180: 1.0}


def test_a_series_that_began_later_is_unknown_before() -> None:
    rings = opened(None)
    rings.record(START, {USED: 3})
    rings.record(START + 60, {USED: 3, STARTS: 1})
    rings.flush()
    assert values(rings.query(START, START + DAY, 60), "started_pods") == {0: None, 60: 1.0}


def test_rows_survive_a_restart_and_a_minute_on_both_sides_is_joined(tmp_path: Path) -> None:
    rings = opened(tmp_path / "past.db")
    for second in (0, 60, 75):
        rings.record(START + second, {USED: 4, STARTS: 2})
    rings.flush()
    again = opened(tmp_path / "past.db")
    again.record(START + 90, {("leaf_cells_used", "B"): 7, USED: 2, STARTS: 1})
    again.flush()
    found = again.query(START, START + DAY, 60, vc="A")
    assert values(found) == {0: 4.0, 60: 3.0}
    assert values(found, "started_pods") == {0: 2.0, 60: 5.0}
    assert values(again.query(START, START + DAY, 3600), "started_pods") == {0: 7.0}
    assert found.is_kept
    assert not opened(None).query(START, START + DAY).is_kept


def test_the_oldest_rows_give_way_and_the_file_does_not_grow(tmp_path: Path) -> None:
    path = tmp_path / "past.db"
    rings = opened(path)
    rows = RINGS[0][1]
    for minute in range(rows + 100):
        rings.record(START + 60 * minute, {USED: minute})
    rings.flush()
    found = values(rings.query(START, START + 10 * DAY, 60))
    assert (len(found), min(found), max(found)) == (rows, 6000, 60 * (rows + 99))
    assert Store(path).read("SELECT count(*) FROM samples WHERE step = 60") == [(rows,)]


def test_a_clock_that_jumps_ahead_and_back_spoils_only_the_rows_it_jumps_to(tmp_path: Path) -> None:
    rings = opened(tmp_path / "past.db")
    for at in (START, START + 60, START + 401 * DAY, START + 120, START + 180, 0.0, START + 240):
        rings.record(at, {USED: 1})
    rings.record(float("nan"), {USED: 1})
    rings.record(-5.0, {USED: 1})
    rings.flush()
    for each in (rings, opened(tmp_path / "past.db")):
        assert list(values(each.query(START, START + 3600, 60))) == [0, 60, 120, 180, 240]


def test_a_clock_that_goes_back_joins_the_minutes_that_come_twice() -> None:
    rings = opened(None)
    for at, used in [(0, 2), (60, 4), (0, 6), (60, 8)]:
        rings.record(START + at, {USED: used, STARTS: 1})
    rings.flush()
    assert values(rings.query(START, START + 3600, 60)) == {0: 4.0, 60: 6.0}
    assert values(rings.query(START, START + 3600, 3600), "started_pods") == {0: 4.0}


def test_another_leader_of_the_same_file_is_followed(tmp_path: Path) -> None:
    first, second = opened(tmp_path / "past.db"), opened(tmp_path / "past.db")
    first.record(START, {USED: 1})
    first.flush()
    second.load()
    second.record(START + 60, {("leaf_cells_used", "B"): 5, USED: 2})
    second.flush()
    first.load()
    first.record(START + 120, {USED: 3})
    first.flush()
    for rings in (first, opened(tmp_path / "past.db")):
        assert values(rings.query(START, START + DAY, 60, vc="A")) == {0: 1.0, 60: 2.0, 120: 3.0}
        assert values(rings.query(START, START + DAY, 60, vc="B")) == {0: None, 60: 5.0, 120: 0.0}


def test_a_file_that_breaks_is_begun_anew_and_read_by_the_next_process(tmp_path: Path) -> None:
    path = tmp_path / "past.db"
    path.write_bytes(b"no database" * 1000)
    rings = opened(path)
    rings.record(START, {USED: 1})
    rings.flush()
    assert (tmp_path / f"past.db{CORRUPT}").exists()
    assert values(opened(path).query(START, START + DAY, 60)) == {0: 1.0}


def test_rows_and_names_that_nobody_can_read_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "past.db"
    rings = opened(path)
    rings.record(START, {USED: 1})
    rings.flush()
    store = Store(path)
    store.write(
        "INSERT INTO series VALUES (?, ?)",
        [(1, "no json"), (2, '["not_ours","A"]'), (99_999, '["leaf_cells"]'), (3, b"[]")],
    )
    store.write("INSERT INTO samples VALUES (?, ?, ?, ?)", [(60, 0, START - 60, b"?"), (7, 0, START, b"?")])
    store.write(
        "INSERT INTO samples VALUES (?, ?, ?, ?)", [(60, 1, "soon", b"?"), (60, 2, 2**62, b"?"), (60, 3, 60, 1.0)]
    )
    store.close()
    again = opened(path)
    again.record(START + 60, {STARTS: 1})
    again.flush()
    assert values(opened(path).query(START, START + DAY, 60)) == {0: 1.0, 60: 0.0}


def test_series_without_a_number_left_are_passed_over_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MOST_SERIES", 3)
    rings = opened(None)
    with caplog.at_level(logging.WARNING):
        for minute in range(2):
            rings.record(START + 60 * minute, {("leaf_cells_used", str(vc)): 1 for vc in range(6)})
        rings.flush()
    assert len(rings.query(START, START + DAY, 60).series) == 3
    assert caplog.text.count("no more series") == 1


def test_series_of_former_virtual_clusters_leave_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SERIES", 2)
    rings = opened(tmp_path / "past.db")
    rings.record(START, {USED: 0.0, STARTS: 1})
    rings.flush()
    again = opened(tmp_path / "past.db")
    again.record(START + 60, {("leaf_cells_used", "B"): 2})
    again.flush()
    found = {(one.metric, one.labels["vc"]) for one in again.query(START, START + DAY, 60).series}
    assert found == {("started_pods", "A"), ("leaf_cells_used", "B")}


@pytest.mark.parametrize(("span", "step"), [(3600, 60), (DAY, 300), (7 * DAY, 3600), (90 * DAY, 3600)])
def test_a_question_without_a_step_gets_one_that_a_picture_can_show(span: float, step: int) -> None:
    assert opened(None).query(START - span, START).step == step


def test_unknown_series_and_steps_are_refused() -> None:
    with pytest.raises(UserError, match="there is no series free_cell; there are leaf_cells, "):
        opened(None).query(START, START, metrics=["free_cells", "free_cell"])
    with pytest.raises(UserError, match="step is 61; there are series in steps of 60, 300, 3600 seconds"):
        opened(None).query(START, START, 61)
