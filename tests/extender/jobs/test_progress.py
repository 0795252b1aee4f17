"""A pod's start, its last checkpoint and leave to move it: read from what anybody may have written."""

from datetime import UTC, datetime

import pytest

from hived.values.errors import UserError
from hived.values.specs import WorkTimes
from hived_extender.jobs.progress import (
    CHECKPOINTED_AT,
    EXPECTED_DURATION,
    MAY_MOVE,
    UNKNOWN,
    Progress,
    read_progress,
    read_time,
    write_time,
)
from hived_extender.jobs.wire import Pod, PodMetadata, PodStatus

NOON = "2026-11-23T12:00:00Z"
NOON_S = datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()


def read(started: str | None = None, now_s: float = NOON_S, **annotations: str) -> Progress:
    keys = {"checkpointed": CHECKPOINTED_AT, "may_move": MAY_MOVE}
    meta = PodMetadata(annotations={keys[name]: text for name, text in annotations.items()})
    return read_progress(Pod(meta, status=PodStatus(started=started)), now_s)


def test_a_pod_that_says_nothing_has_unknown_times_and_may_not_be_moved() -> None:
    assert read() is UNKNOWN
    assert read_progress(Pod(PodMetadata()), NOON_S) is UNKNOWN
    assert not UNKNOWN.may_move


def test_the_start_is_what_kubernetes_says_and_the_checkpoint_what_the_owner_says() -> None:
    found = read(NOON, NOON_S + 90, checkpointed="2026-11-23T12:01:00Z")
    assert found == Progress(WorkTimes(NOON_S, NOON_S + 60))


@pytest.mark.parametrize(
    "text", [NOON, "2026-11-23T12:00:00.000Z", "2026-11-23T13:00:00+01:00", "2026-11-23t12:00:00z"]
)
def test_any_form_of_a_time_is_read(text: str) -> None:
    assert read_time(text) == NOON_S


@pytest.mark.parametrize(
    "text",
    [
        "", "now", "1763899200", "2026-11-23", "2026-11-23T12:00:00", "12:00:00Z", "2026-13-01T00:00:00Z",
        "1066-10-14T09:00:00Z", "2026-11-23T25:00:00Z", NOON + " " * 100, "9" * 10**6, "\udc80T",
        "٢٠٢٦-11-23T12:00:00Z",
    ],
)  # fmt: skip
def test_a_text_that_is_no_time_is_ignored_and_the_mistake_is_short(text: str) -> None:
    with pytest.raises(UserError, match="expected a time such as"):
        read_time(text)
    found = read(NOON, checkpointed=text)
    assert found.times == WorkTimes(NOON_S)
    (mistake,) = found.mistakes
    assert mistake.startswith(f"annotation {CHECKPOINTED_AT} is ignored: expected a time such as")
    assert len(mistake) < 300


def test_a_checkpoint_cannot_be_in_the_future_but_for_clocks_that_differ() -> None:
    assert read(checkpointed=NOON, now_s=NOON_S - 30).times.saved_s == NOON_S
    found = read(checkpointed=NOON, now_s=NOON_S - 3600)
    assert found.times == WorkTimes()
    assert "2026-11-23T12:00:00Z has not come yet, it is 2026-11-23T11:00:00Z" in found.mistakes[0]


@pytest.mark.parametrize(
    "text", ["soon", "", "9999-12-31T23:59:59Z", "2026-11-24T12:00:01Z", "9999-12-31T23:59:59-23:59"]
)
def test_a_start_that_is_no_time_or_far_ahead_is_unknown(text: str) -> None:
    assert read(text, may_move="true").times == WorkTimes()


def test_a_start_by_a_clock_that_is_hours_ahead_counts_at_once_as_after_a_restart() -> None:
    assert read(NOON, now_s=NOON_S - 3 * 3600).times == WorkTimes(NOON_S)


def test_a_pod_does_not_start_before_it_is_created() -> None:
    meta = PodMetadata(created=NOON)
    early = Pod(meta, status=PodStatus(started="2020-01-01T00:00:00Z"))
    assert read_progress(early, NOON_S + 5).times == WorkTimes(NOON_S)


@pytest.mark.parametrize(("text", "may_move", "count"), [("true", True, 0), ("false", False, 0), ("True", False, 1)])
def test_only_true_allows_a_pod_to_be_moved(text: str, may_move: bool, count: int) -> None:
    found = read(may_move=text)
    assert (found.may_move, len(found.mistakes)) == (may_move, count)


def test_a_time_that_is_written_is_read_again() -> None:
    assert write_time(NOON_S + 0.7) == NOON
    assert read_time(write_time(0)) == 0


def test_a_declared_limit_is_part_of_the_progress_and_a_wrong_one_a_mistake() -> None:
    meta = PodMetadata(annotations={EXPECTED_DURATION: "90m", CHECKPOINTED_AT: "now"})
    found = read_progress(Pod(meta), NOON_S)
    assert (found.limit_s, len(found.mistakes)) == (5400.0, 1)
    assert read_progress(Pod(PodMetadata(annotations={EXPECTED_DURATION: "x"})), NOON_S).mistakes
