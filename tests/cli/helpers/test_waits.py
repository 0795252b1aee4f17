"""When a job starts, in a few words."""

from datetime import UTC, datetime

import pytest

from hived_cli.helpers.waits import brief_when
from hived_extender.api.waiting import When

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SOON, LATE, OVER = "2026-01-01T00:06:44Z", "2026-01-01T02:00:00Z", "2025-12-31T23:59:59Z"


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (When(kind="bounded", by=SOON), "within 6m44s (bounded)"),
        (When(kind="bounded", by=OVER), "any moment (bounded)"),
        (When(kind="estimated", likely=SOON, by=LATE), "about 6m44s, within 120m (estimated)"),
        (When(kind="estimated", likely=OVER, by=SOON), "any moment, within 6m44s (estimated)"),
        (When(kind="estimated", likely=OVER, by=OVER), "any moment (estimated)"),
        (When(kind="unknown", because="nothing is known"), "unknown"),
        (None, "-"),
    ],
)
def test_a_moment_has_its_kind_and_one_that_is_over_is_no_promise(when: When | None, expected: str) -> None:
    assert brief_when(when, NOW) == expected
