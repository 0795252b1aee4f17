"""How moments and lengths of time are read and shortened."""

from datetime import UTC, datetime

import pytest

from hived_extender.api.inspection import as_minute, duration, parse_time, seconds_since


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"), (0, "0s"), (1.9, "1s"), (119, "119s"), (120, "2m"), (200, "3m20s"), (599, "9m59s"), (600, "10m"),
        (10_799, "179m"), (10_800, "3h"), (12_345, "3h25m"), (28_800, "8h"), (172_799, "47h"), (172_800, "2d"),
        (180_000, "2d2h"), (691_200, "8d"), (63_072_000, "2y"), (64_072_000, "2y11d"),
    ],
)  # fmt: skip
def test_a_duration_is_told_as_kubernetes_does(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize("text", ["", "yesterday", "2026-01-01T00:00:00"])
def test_a_text_without_a_time_and_its_zone_is_no_moment(text: str) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert (parse_time(text), seconds_since(text, now), as_minute(text)) == (None, None, text)


def test_a_moment_is_shown_to_the_minute_in_utc() -> None:
    assert as_minute("2026-11-20T12:34:56+02:00") == "2026-11-20 10:34 UTC"


def test_seconds_are_counted_from_a_moment_on() -> None:
    assert seconds_since("2026-01-01T00:00:00Z", datetime(2026, 1, 1, 1, tzinfo=UTC)) == 3600
