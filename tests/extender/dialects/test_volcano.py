"""Gangs by Volcano's annotations and PodGroups."""

from typing import Any

import pytest

from hived.errors import UserError
from hived_extender.dialects.description import Description, Within
from hived_extender.dialects.volcano import GROUP_NAMES, KIND, MINIMUM, NAME, QUEUE, TASK
from tests.extender.dialects.sayings import TRAIN, Cluster, describe, podgroup_ref, podgroups

NAMED = {GROUP_NAMES[0]: "train"}
SOURCE = podgroup_ref(KIND.group)


@pytest.mark.parametrize(
    ("annotations", "spec", "said"),
    [
        (NAMED, {"minMember": 3}, {"minimum": 3}),
        ({GROUP_NAMES[1]: "train"}, {"minMember": 3}, {"minimum": 3}),
        (NAMED | {GROUP_NAMES[1]: "train", TASK: "ps"}, {"minMember": 3}, {"minimum": 3, "task": "ps"}),
        (NAMED | {MINIMUM: "2"}, {"minMember": 3}, {"minimum": 3}),
        (NAMED | {MINIMUM: "2"}, {}, {"minimum": 2}),
        (NAMED, {"minMember": 0}, {}),
        (NAMED, {"minTaskMember": {"ps": 1, "worker": 2, "late": 0}}, {"task_minimums": {"ps": 1, "worker": 2}}),
        (NAMED, {"queue": "default"}, {}),
        (NAMED | {QUEUE: "research"}, {"queue": "default"}, {"queue": "research"}),
        (NAMED | {QUEUE: "other"}, {"queue": "research"}, {"queue": "research"}),
        (NAMED, {"priorityClassName": "high"}, {"priority_class": "high"}),
        (NAMED, {"networkTopology": {"mode": "hard", "highestTierAllowed": 2}}, {"within": ("volcano-tier-2", True)}),
        (NAMED, {"networkTopology": {"highestTierName": "rack"}}, {"within": ("rack", True)}),
        (NAMED, {"networkTopology": {"mode": "hard"}}, {"within": ("volcano-tier-1", True)}),
        (NAMED, {"networkTopology": {"mode": "soft"}}, {"within": ("", False)}),
        (NAMED, {"networkTopology": {"mode": "soft", "highestTierAllowed": 3}}, {"within": ("volcano-tier-3", False)}),
    ],
)
def test_annotations_and_the_podgroup_say(annotations: dict[str, str], spec: Any, said: dict[str, Any]) -> None:
    if "within" in said:
        said = said | {"within": Within(*said["within"])}
    expected = Description(NAME, gang=TRAIN, source=SOURCE, **said)
    assert describe({}, annotations, podgroups(KIND.group, spec)) == expected


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        (NAMED, {"source": SOURCE, "missing": True}),
        (NAMED | {MINIMUM: "2"}, {"minimum": 2}),
        (NAMED | {MINIMUM: "2", QUEUE: "research"}, {"minimum": 2, "queue": "research"}),
    ],
)
def test_without_the_podgroup_annotations_say(annotations: dict[str, str], said: dict[str, Any]) -> None:
    assert describe({}, annotations, Cluster()) == Description(NAME, gang=TRAIN, **said)


def test_a_queue_makes_no_gang() -> None:
    assert describe({}, {QUEUE: "research"}) == Description(NAME, queue="research")


@pytest.mark.parametrize(
    ("annotations", "spec", "message"),
    [
        (
            {GROUP_NAMES[0]: "a", GROUP_NAMES[1]: "b"},
            {},
            f"{GROUP_NAMES[0]} says a and annotation {GROUP_NAMES[1]} says b",
        ),
        ({MINIMUM: "2"}, {}, "something of a gang (Volcano), but not which"),
        (NAMED | {MINIMUM: "none"}, {}, f"annotation {MINIMUM} is 'none': expected a whole number from 1"),
        (NAMED, {"minMember": -1}, f"{SOURCE}: spec.minMember is '-1': expected a whole number from 0"),
        (NAMED, {"minTaskMember": {"ps": "all"}}, "spec.minTaskMember.ps is 'all': expected a whole number from 0"),
        (NAMED, {"minTaskMember": 3}, "spec.minTaskMember is '3': expected an object"),
        (NAMED, {"networkTopology": {"mode": "firm"}}, "spec.networkTopology.mode is 'firm': expected hard or soft"),
    ],
)
def test_bad_words_are_told(annotations: dict[str, str], spec: Any, message: str) -> None:
    with pytest.raises(UserError) as error:
        describe({}, annotations, podgroups(KIND.group, spec))
    assert message in str(error.value)
