"""Gangs by Volcano's annotations and PodGroups."""

from typing import Any

import pytest

from hived.values.errors import UserError
from hived_extender.jobs.kinds import table
from hived_extender.jobs.kinds.description import Description, Within
from hived_extender.jobs.kinds.koordinator import GROUP_NAME, MIN_AVAILABLE
from hived_extender.jobs.kinds.volcano import (
    GROUP_NAMES,
    HIGHEST_TIER,
    MINIMUM,
    PODGROUPS,
    QUEUE,
    TASK,
    TOPOLOGY_MODE,
    VOLCANO,
)
from hived_extender.jobs.wire import Owner
from tests.extender.jobs.kinds.descriptions import TRAIN, UID, Cluster, describe, make_pod, podgroup_ref, podgroups

NAMED = {GROUP_NAMES[0]: "train"}
SOURCE = podgroup_ref(PODGROUPS.group)


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
        (NAMED | {TOPOLOGY_MODE: "hard"}, {}, {"within": ("volcano-tier-1", True)}),
        (NAMED | {TOPOLOGY_MODE: "soft", HIGHEST_TIER: "2"}, {}, {"within": ("volcano-tier-2", False)}),
        (
            NAMED | {HIGHEST_TIER: "2"},
            {"networkTopology": {"highestTierAllowed": 3}},
            {"within": ("volcano-tier-3", True)},
        ),
    ],
)
def test_annotations_and_the_podgroup_say(annotations: dict[str, str], spec: Any, said: dict[str, Any]) -> None:
    if "within" in said:
        said = said | {"within": Within(*said["within"])}
    expected = Description(VOLCANO.name, gang=TRAIN, source=SOURCE, **said)
    assert describe({}, annotations, podgroups(PODGROUPS.group, spec)) == expected


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        (NAMED, {"source": SOURCE, "missing": True}),
        (NAMED | {MINIMUM: "2"}, {"minimum": 2}),
        (NAMED | {MINIMUM: "2", QUEUE: "research"}, {"minimum": 2, "queue": "research"}),
    ],
)
def test_without_the_podgroup_annotations_say(annotations: dict[str, str], said: dict[str, Any]) -> None:
    assert describe({}, annotations, Cluster()) == Description(VOLCANO.name, gang=TRAIN, **said)


@pytest.mark.parametrize(
    ("annotations", "wish"),
    [
        ({TOPOLOGY_MODE: "hard", HIGHEST_TIER: "2"}, Within("volcano-tier-2", is_required=True)),
        ({TOPOLOGY_MODE: "soft"}, Within("", is_required=False)),
    ],
)
def test_pods_without_a_gang_say_where(annotations: dict[str, str], wish: Within) -> None:
    assert describe({}, annotations) == Description(VOLCANO.name, within=wish)


def test_a_queue_makes_no_gang() -> None:
    assert describe({}, {QUEUE: "research"}) == Description(VOLCANO.name, queue="research")


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
        (NAMED, {"minMember": -1}, f"{SOURCE}: spec.minMember is -1: expected a whole number from 0"),
        (NAMED, {"minTaskMember": {"ps": "all"}}, "spec.minTaskMember.ps is 'all': expected a whole number from 0"),
        (NAMED, {"minTaskMember": 3}, "spec.minTaskMember is 3: expected an object"),
        (NAMED | {TOPOLOGY_MODE: "firm"}, {}, f"annotation {TOPOLOGY_MODE} is 'firm': expected hard or soft"),
        (NAMED | {HIGHEST_TIER: "rack"}, {}, f"annotation {HIGHEST_TIER} is 'rack': expected a whole number from 1"),
        (NAMED, {"networkTopology": {"mode": "firm"}}, "spec.networkTopology.mode is 'firm': expected hard or soft"),
    ],
)
def test_bad_words_are_told(annotations: dict[str, str], spec: Any, message: str) -> None:
    with pytest.raises(UserError) as error:
        describe({}, annotations, podgroups(PODGROUPS.group, spec))
    assert message in str(error.value)


# PodGroups that Volcano's controller makes for pods of others

OWNER = Owner("Job", "train", "99999999-8888-7777-6666-555555555555", True)
MADE_FOR = {None: {GROUP_NAMES[0]: f"podgroup-{UID}"}, OWNER: {GROUP_NAMES[0]: f"podgroup-{OWNER.uid}"}}
COSCHEDULING = {GROUP_NAME: "train", MIN_AVAILABLE: "3"}


def made(owner: Owner | None, spec: Any) -> Cluster:
    return podgroups(PODGROUPS.group, spec, name=MADE_FOR[owner][GROUP_NAMES[0]])


@pytest.mark.parametrize("owner", MADE_FOR)
@pytest.mark.parametrize("minimum", [1, 3])
def test_a_podgroup_that_the_controller_made_gives_way_to_a_gang_of_another_dialect(
    owner: Owner | None, minimum: int
) -> None:
    written = MADE_FOR[owner] | {QUEUE: "research"}
    for objects in (made(owner, {"minMember": minimum, "queue": "research"}), Cluster()):
        said = describe(COSCHEDULING, written, objects, owner=owner)
        assert said is not None
        assert (said.gang, said.minimum, said.queue, said.source, said.missing) == (TRAIN, 3, "research", None, None)


@pytest.mark.parametrize("owner", MADE_FOR)
@pytest.mark.parametrize("spec", [{"minMember": 1}, {}])
def test_a_podgroup_that_the_controller_made_for_one_pod_is_no_gang(owner: Owner | None, spec: Any) -> None:
    assert describe({}, MADE_FOR[owner], made(owner, spec), owner=owner) is None
    queued = spec | {"queue": "research"}
    assert describe({}, MADE_FOR[owner], made(owner, queued), owner=owner) == Description(
        VOLCANO.name, queue="research"
    )


def test_a_podgroup_that_the_controller_made_for_several_pods_is_a_gang() -> None:
    said = describe({}, MADE_FOR[OWNER], made(OWNER, {"minMember": 3}), owner=OWNER)
    assert said is not None
    assert (said.minimum, said.source) == (3, podgroup_ref(PODGROUPS.group, MADE_FOR[OWNER][GROUP_NAMES[0]]))
    before = describe({}, MADE_FOR[OWNER], Cluster(), owner=OWNER)
    assert before is not None
    assert before.missing


@pytest.mark.parametrize("written", [MADE_FOR[OWNER], MADE_FOR[OWNER] | {MINIMUM: "2"}, NAMED])
def test_a_podgroup_that_the_author_asked_for_does_not_give_way(written: dict[str, str]) -> None:
    owner = OWNER if MINIMUM in written else None
    with pytest.raises(UserError, match="dialects disagree"):
        describe(COSCHEDULING, written, podgroups(PODGROUPS.group, {"minMember": 2}), owner=owner)


@pytest.mark.parametrize(
    ("labels", "annotations", "expected"),
    [
        ({}, {}, False),
        ({}, MADE_FOR[None], False),
        ({}, NAMED, True),
        ({}, MADE_FOR[None] | {MINIMUM: "1"}, True),
        ({}, MADE_FOR[None] | {QUEUE: "research"}, True),
        (COSCHEDULING, MADE_FOR[None], True),
    ],
)
def test_what_the_controller_writes_onto_every_pod_makes_it_none_of_ours(
    labels: dict[str, str], annotations: dict[str, str], expected: bool
) -> None:
    assert table.is_marked_by_author(make_pod(labels, annotations)) is expected
