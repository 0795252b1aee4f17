"""A pod's start, last checkpoint, declared limit and permission to move, from untrusted texts (rule 24.8)."""

import math
from datetime import UTC, datetime

import pytest

from hived.values.errors import UserError
from hived.values.specs import WorkTimes
from hived_extender.jobs.progress import (
    CHECKPOINTED_AT,
    EXPECTED_DURATION,
    KUEUE_LIMIT,
    MAY_MOVE,
    SLURM_LIMITS,
    UNKNOWN,
    Progress,
    declared_limit,
    read_duration,
    read_progress,
    read_seconds,
    read_slurm_limit,
    read_time,
    write_time,
)
from hived_extender.jobs.wire import Pod, PodMetadata, PodSpec, PodStatus

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


# ---- limits that pods declare, in our words and in others', as anybody may have written them


HOUR = 3600.0


def pod(deadline: int | None = None, labels: dict[str, str] | None = None, **annotations: str) -> Pod:
    keys = {"expected": EXPECTED_DURATION, "slurm": SLURM_LIMITS[0], "slurm_job": SLURM_LIMITS[1]}
    meta = PodMetadata(annotations={keys[name]: text for name, text in annotations.items()}, labels=labels)
    return Pod(meta, PodSpec(active_deadline_seconds=deadline))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90), ("90m", 1.5 * HOUR), ("1h30m", 1.5 * HOUR), ("1.5d", 36 * HOUR), ("2w", 336 * HOUR),
        ("1-12", 36 * HOUR), ("1-12:30", 36.5 * HOUR), ("1-00:00:30", 24 * HOUR + 30), ("2:00:00", 2 * HOUR),
        ("90:00", 1.5 * HOUR),
    ],
)  # fmt: skip
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert read_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "90", "soon", "-5m", "0s", "0:00", "1h ", "1h" * 30, "1e3s", "\u0661h", "1:2:3:4", "1-", "9" * 10**6]
)
def test_a_text_that_is_no_duration_is_refused_and_the_mistake_is_short(text: str) -> None:
    with pytest.raises(UserError, match="expected a length of time") as caught:
        read_duration(text)
    assert len(caught.value.message) < 200


@pytest.mark.parametrize(
    ("text", "seconds"), [("5", 300.0), ("5:30", 330.0), ("1-0", 24 * HOUR), ("UNLIMITED", math.inf), ("0", math.inf)]
)
def test_a_limit_of_slurm_is_minutes_where_it_is_a_number(text: str, seconds: float) -> None:
    assert read_slurm_limit(text) == seconds


def test_the_least_limit_counts() -> None:
    assert declared_limit(pod(7200)) == (7200, ())
    assert declared_limit(pod(7200, expected="1h")) == (HOUR, ())
    assert declared_limit(pod(None, {KUEUE_LIMIT: "600"}, slurm="30")) == (600, ())
    assert declared_limit(pod(None, slurm_job="30")) == (1800, ())


def test_no_limit_is_none() -> None:
    for each in (pod(), pod(0), pod(slurm="INFINITE"), pod(expected="100000w"), Pod(PodMetadata())):
        assert declared_limit(each) == (None, ())


def test_a_limit_that_cannot_be_read_is_ignored_and_said() -> None:
    limit, mistakes = declared_limit(pod(60, {KUEUE_LIMIT: "1h"}, expected="tomorrow"))
    assert limit == 60
    assert [each.split(" is ignored: ")[0] for each in mistakes] == [
        f"annotation {EXPECTED_DURATION}", f"label {KUEUE_LIMIT}"
    ]  # fmt: skip
    with pytest.raises(UserError, match="whole number above 0"):
        read_seconds("0")
