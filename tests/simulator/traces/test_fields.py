"""Fields of rows are read strictly, and shapes follow from numbers."""

from zoneinfo import ZoneInfo

import pytest

from hived.values.errors import UserError
from hived_simulator.traces import fields
from hived_simulator.traces.fields import Unusable
from hived_simulator.traces.jobs import Pods


@pytest.mark.parametrize("text", ["", "nan", "inf", "-inf", "1_0", "abc", "0x10", "1,5", "\0", "9" * 400])
def test_what_is_no_finite_number_is_unusable(text: str) -> None:
    with pytest.raises(Unusable, match="duration"):
        fields.number(text, "duration")


@pytest.mark.parametrize(("text", "reason"), [("0", "never ran"), ("-1", "negative"), ("1e12", "hundred years")])
def test_a_duration_is_above_0_and_below_a_century(text: str, reason: str) -> None:
    with pytest.raises(Unusable, match=reason):
        fields.duration(text)


@pytest.mark.parametrize("text", ["-1", "1.5", "1e30", "8 GPUs"])
def test_a_count_is_whole_and_bounded(text: str) -> None:
    with pytest.raises(Unusable):
        fields.count(text, "GPUs")


def test_a_count_may_be_written_as_a_float() -> None:
    assert fields.count("8.0", "GPUs") == 8


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-02", 86400.0),
        ("1970-01-01 00:00:01", 1.0),
        ("1970-01-01T01:00:01.5+01:00", 1.5),
        ("1970-01-01T00:00:01Z", 1.0),
        ("1700000000", 1700000000.0),
        ("1700000000123", 1700000000.123),
        ("12.5", 12.5),
    ],
)
def test_a_moment_has_many_forms(text: str, seconds: float) -> None:
    assert fields.moment(text, "time", fields.zone("UTC")) == seconds


@pytest.mark.parametrize("text", ["", "soon", "2020-13-01", "0001-01-01 00:00:00+23:59", "None", "1e30", "2020"])
def test_what_is_no_time_is_unusable_or_a_number(text: str) -> None:
    if text == "2020":
        assert fields.moment(text, "time", fields.zone("UTC")) == 2020.0
        return
    with pytest.raises(Unusable, match="time"):
        fields.moment(text, "time", fields.zone("UTC"))


def test_an_hour_that_is_there_twice_is_the_first_one() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    before = fields.instant("2026-10-25 01:30:00", "time", berlin)
    assert fields.instant("2026-10-25 02:30:00", "time", berlin) - before == 3600
    assert fields.instant("2026-10-25 03:30:00", "time", berlin) - before == 3 * 3600


def test_an_unknown_zone_is_an_error() -> None:
    with pytest.raises(UserError, match="Europe/Berlin"):
        fields.zone("Mars/Olympus")
    with pytest.raises(UserError, match="time zone"):
        fields.zone("../../etc/passwd")


def test_a_gang_is_packed_into_whole_nodes() -> None:
    assert fields.packed(20, 8) == (Pods(1, 4), Pods(2, 8))
    assert fields.packed(16, 8) == (Pods(2, 8),)
    assert fields.packed(3, 8) == (Pods(1, 3),)
    assert fields.packed(0, 8) == ()


def test_a_gang_is_spread_as_evenly_as_whole_gpus_go() -> None:
    assert fields.spread(12, 5) == (Pods(3, 2), Pods(2, 3))
    assert fields.spread(16, 2) == (Pods(2, 8),)
    assert fields.spread(2, 5) == (Pods(2, 1),)
    assert fields.spread(8, 0) == (Pods(1, 8),)


def test_a_part_of_a_gpu_is_a_gpu() -> None:
    assert fields.rounded_up("50", "plan_gpu", 100.0) == 1
    assert fields.rounded_up("250", "plan_gpu", 100.0) == 3
    with pytest.raises(Unusable):
        fields.rounded_up("1e300", "plan_gpu", 100.0)
