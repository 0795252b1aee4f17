"""Gangs by labels alone."""

from typing import Any

import pytest

from hived.values.errors import UserError
from hived_extender.jobs.kinds.coscheduling import GROUPS, LABELLED, MATCH_POLICY
from hived_extender.jobs.kinds.description import Description, GangKey, MatchPolicy
from hived_extender.jobs.kinds.koordinator import GROUP_NAME as GANG
from hived_extender.jobs.kinds.koordinator import MIN_AVAILABLE
from tests.extender.jobs.kinds.descriptions import TRAIN, describe


@pytest.mark.parametrize(
    ("labels", "annotations", "said"),
    [
        ({GANG: "train", MIN_AVAILABLE: "3"}, {}, {}),
        ({GANG: "train", MIN_AVAILABLE: "3"}, {GROUPS: '["team/train"]'}, {"groups": (TRAIN,)}),
        (
            {GANG: "train", MIN_AVAILABLE: "3", GROUPS: '["team/servers", "team/servers"]'},
            {},
            {"groups": (GangKey("team", "servers"), TRAIN)},
        ),
        (
            {GANG: "train", MIN_AVAILABLE: "3", MATCH_POLICY: "waiting-running-succeed"},
            {MATCH_POLICY: "waiting-running-succeed"},
            {"match_policy": MatchPolicy.WAITING_RUNNING_SUCCEED},
        ),
    ],
)
def test_labels_say(labels: dict[str, str], annotations: dict[str, str], said: dict[str, Any]) -> None:
    expected: dict[str, Any] = {"dialect": LABELLED.name, "gang": TRAIN, "minimum": 3} | said
    assert describe(labels, annotations) == Description(**expected)


@pytest.mark.parametrize(
    ("labels", "annotations", "message"),
    [
        *(
            (
                {GANG: "train", MIN_AVAILABLE: bad},
                {},
                f"label {MIN_AVAILABLE} is '{bad}': expected a whole number from 1 to",
            )
            for bad in ("many", "0", "-1", "1.5", "99999999999", "²")
        ),
        ({GANG: "a gang", MIN_AVAILABLE: "3"}, {}, f"label {GANG} is 'a gang': expected a name of letters"),
        ({MIN_AVAILABLE: "3"}, {}, "something of a gang (coscheduling labels), but not which: set label"),
        (
            {GANG: "train", MIN_AVAILABLE: "3"},
            {GROUPS: "train"},
            f"annotation {GROUPS} is 'train': expected a JSON list",
        ),
        ({GANG: "train", MIN_AVAILABLE: "3"}, {GROUPS: '["train"]'}, "expected a JSON list of gangs with their namesp"),
        (
            {GANG: "train", MIN_AVAILABLE: "3"},
            {GROUPS: "[" * 10_000},
            "expected a JSON list of gangs with their namesp",
        ),
        (
            {GANG: "train", MIN_AVAILABLE: "3", MATCH_POLICY: "all"},
            {},
            "is 'all': expected only-waiting, waiting-and-running, waiting-running-succeed or once-satisfied",
        ),
        (
            {GANG: "train", MIN_AVAILABLE: "3", MATCH_POLICY: "only-waiting"},
            {MATCH_POLICY: "once-satisfied"},
            f"label {MATCH_POLICY} says only-waiting and annotation {MATCH_POLICY} says once-satisfied",
        ),
    ],
)
def test_bad_labels_are_told(labels: dict[str, str], annotations: dict[str, str], message: str) -> None:
    with pytest.raises(UserError) as error:
        describe(labels, annotations)
    assert message in str(error.value)
