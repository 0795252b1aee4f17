"""Gangs by YuniKorn's task groups."""

from typing import Any

import pytest

from hived.values.errors import UserError
from hived_extender.jobs.kinds.description import Description, GangKey
from hived_extender.jobs.kinds.yunikorn import APPLICATION, OLD_APPLICATION, TASK_GROUP, TASK_GROUPS, YUNIKORN
from tests.extender.jobs.kinds.descriptions import TRAIN, describe

ONE = '[{"name": "worker", "minMember": 3, "minResource": {"cpu": "1"}}]'
TWO = '[{"name": "ps", "minMember": 1}, {"name": "worker", "minMember": 3}]'
MINIMUMS = {"minimum": 4, "task_minimums": {"ps": 1, "worker": 3}}


@pytest.mark.parametrize(
    ("labels", "annotations", "said"),
    [
        ({APPLICATION: "train"}, {TASK_GROUP: "ps", TASK_GROUPS: TWO}, {"task": "ps", **MINIMUMS}),
        ({OLD_APPLICATION: "train"}, {TASK_GROUP: "ps", TASK_GROUPS: TWO}, {"task": "ps", **MINIMUMS}),
        ({}, {APPLICATION: "train", TASK_GROUPS: TWO}, MINIMUMS),
        ({APPLICATION: "train"}, {TASK_GROUP: "ps"}, {"task": "ps"}),
        (
            {},
            {TASK_GROUP: "worker", TASK_GROUPS: ONE},
            {"gang": GangKey("team", "worker"), "task": "worker", "minimum": 3, "task_minimums": {"worker": 3}},
        ),
    ],
)
def test_task_groups_say(labels: dict[str, str], annotations: dict[str, str], said: dict[str, Any]) -> None:
    assert describe(labels, annotations) == Description(YUNIKORN.name, **({"gang": TRAIN} | said))


@pytest.mark.parametrize(
    ("labels", "annotations", "message"),
    [
        *(
            ({APPLICATION: "train"}, {TASK_GROUPS: bad}, "expected a JSON list of task groups, each once, such as [{")
            for bad in (
                "worker",
                "[]",
                '{"name": "worker"}',
                '[{"name": "worker"}]',
                '[{"name": "", "minMember": 1}]',
                '[{"name": "worker", "minMember": -1}]',
                '[{"name": "worker", "minMember": 1}, {"name": "worker", "minMember": 1}]',
            )
        ),
        ({}, {TASK_GROUP: "ps", TASK_GROUPS: TWO}, f"says nothing of which application: set label {APPLICATION}"),
        ({APPLICATION: "train"}, {TASK_GROUP: "chief", TASK_GROUPS: TWO}, "is 'chief': expected a name of annotation"),
        ({APPLICATION: "a", OLD_APPLICATION: "b"}, {TASK_GROUP: "ps"}, "says a and label applicationId says b"),
    ],
)
def test_bad_task_groups_are_told(labels: dict[str, str], annotations: dict[str, str], message: str) -> None:
    with pytest.raises(UserError) as error:
        describe(labels, annotations)
    assert message in str(error.value)
