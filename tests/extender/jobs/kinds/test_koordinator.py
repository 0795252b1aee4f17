"""Gangs by Koordinator's annotations."""

import time
from typing import Any

import pytest

from hived.values.errors import UserError
from hived_extender.jobs.kinds.description import Description, GangKey, MatchPolicy
from hived_extender.jobs.kinds.koordinator import GROUP_NAME, KOORDINATOR, MIN_AVAILABLE, PODGROUP_LABEL, PREFIX
from tests.extender.jobs.kinds.descriptions import TRAIN, describe


def gang(**annotations: str) -> dict[str, str]:
    """The annotations of a gang of two."""
    words = {"name": "train", "min_available": "2"} | annotations
    return {PREFIX + key.replace("_", "-"): value for key, value in words.items()}


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        (gang(), {}),
        (gang(total_number="5"), {"total": 5}),
        (gang(total_number="1"), {"total": 2}),
        (gang(waiting_time="1h2m3.5s"), {"waiting_s": 3723.5}),
        (gang(waiting_time=""), {}),
        (gang(mode="Strict"), {"is_strict": True}),
        (gang(mode="NonStrict"), {"is_strict": False}),
        (gang(groups='["other/gang", "team/train"]'), {"groups": (GangKey("other", "gang"), TRAIN)}),
        *((gang(match_policy=policy.value), {"match_policy": policy}) for policy in MatchPolicy),
    ],
)
def test_annotations_say(annotations: dict[str, str], said: dict[str, Any]) -> None:
    expected: dict[str, Any] = {"dialect": KOORDINATOR.name, "gang": TRAIN, "minimum": 2, "waiting_s": 600.0} | said
    assert describe({}, annotations) == Description(**expected)


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        ({PODGROUP_LABEL: "first", GROUP_NAME: "first"}, "first"),
        ({PODGROUP_LABEL: "first"}, "first"),
        ({GROUP_NAME: "second"}, "second"),
        ({GROUP_NAME: "second", MIN_AVAILABLE: "2"}, "second"),
        ({}, "train"),
    ],
)
def test_the_name_is_that_of_labels_first(labels: dict[str, str], name: str) -> None:
    said = describe(labels, gang())
    assert said is not None
    assert (said.gang, said.minimum, said.missing) == (GangKey("team", name), 2, None)


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        (gang(min_available="two"), f"annotation {PREFIX}min-available is 'two': expected a whole number from 1 to"),
        (gang(min_available="0"), "expected a whole number from 1 to"),
        (gang(min_available=""), f"{PREFIX}name is there, but no minimum: set annotation {PREFIX}min-available"),
        (gang(name=""), f"(Koordinator), but not which: set label {GROUP_NAME}, annotation {PREFIX}name"),
        (gang(total_number="-3"), "expected a whole number from 1 to"),
        (gang(waiting_time="600"), "is '600': expected a duration above zero, such as 600s, 10m or 1h30m"),
        (gang(waiting_time="0s"), "expected a duration above zero"),
        (gang(waiting_time="9" * 400 + "h"), "9...': expected a duration above zero"),
        (gang(mode="strict"), "is 'strict': expected Strict or NonStrict"),
        (gang(groups='{"team/train": 1}'), "expected a JSON list of gangs with their namespaces"),
        (gang(groups=str(["a/b"] * 65).replace("'", '"')), "expected at most 64 gangs that start together"),
        (gang(match_policy="some"), "is 'some': expected only-waiting, waiting-and-running,"),
    ],
)
def test_bad_annotations_are_told(annotations: dict[str, str], message: str) -> None:
    with pytest.raises(UserError) as error:
        describe({}, annotations)
    assert message in str(error.value)


@pytest.mark.parametrize("text", ["9" * 20_000, "9." * 10_000, "1s" * 10_000 + "x"])
def test_a_long_waiting_time_is_read_at_once(text: str) -> None:
    began = time.thread_time()
    with pytest.raises(UserError, match="expected a duration above zero"):
        describe({}, gang(waiting_time=text))
    assert time.thread_time() - began < 2.0
