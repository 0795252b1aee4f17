"""Limits that pods declare, in our words and in others', as anybody may have written them."""

import math

import pytest

from hived.values.errors import UserError
from hived_extender.jobs.progress import (
    EXPECTED_DURATION,
    KUEUE_LIMIT,
    SLURM_LIMITS,
    declared_limit,
    read_duration,
    read_seconds,
    read_slurm_limit,
)
from hived_extender.jobs.wire import Pod, PodMetadata, PodSpec

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
