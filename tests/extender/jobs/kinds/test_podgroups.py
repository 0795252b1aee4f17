"""Gangs by PodGroups of scheduler-plugins, of either group."""

from typing import Any

import pytest

from hived.values.errors import UserError
from hived_extender.jobs.kinds import coscheduling, koordinator
from hived_extender.jobs.kinds.description import Description, GangKey, MatchPolicy
from tests.extender.jobs.kinds.descriptions import TRAIN, Cluster, describe, podgroup_ref, podgroups

WAYS = [
    ({coscheduling.LABEL: "train"}, coscheduling.POD_GROUP),
    ({koordinator.PODGROUP_LABEL: "train"}, coscheduling.OLD_POD_GROUP),
    ({koordinator.GROUP_NAME: "train"}, coscheduling.OLD_POD_GROUP),
]


@pytest.mark.parametrize(("labels", "dialect"), WAYS)
@pytest.mark.parametrize(
    ("spec", "metadata", "said"),
    [
        ({"minMember": 3, "minResources": {"cpu": "1"}}, {}, {"minimum": 3}),
        ({"minMember": 3, "scheduleTimeoutSeconds": 30}, {}, {"minimum": 3, "waiting_s": 30}),
        ({"minMember": 3, "scheduleTimeoutSeconds": 0}, {}, {"minimum": 3}),
        ({}, {}, {}),
        (None, {}, {}),
        (
            {"minMember": 3},
            {
                "labels": {coscheduling.MATCH_POLICY: "only-waiting"},
                "annotations": {koordinator.TOTAL: "5", koordinator.MODE: "NonStrict", koordinator.GROUPS: '["a/b"]'},
            },
            {
                "minimum": 3,
                "total": 5,
                "is_strict": False,
                "match_policy": MatchPolicy.ONLY_WAITING,
                "groups": (GangKey("a", "b"), TRAIN),
            },
        ),
    ],
)
def test_a_podgroup_says(labels: dict[str, str], dialect: Any, spec: Any, metadata: Any, said: dict[str, Any]) -> None:
    expected = {"gang": TRAIN, "waiting_s": 60.0, "source": podgroup_ref(dialect.objects.group)} | said
    assert describe(labels, {}, podgroups(dialect.objects.group, spec, metadata)) == Description(
        dialect.name, **expected
    )


@pytest.mark.parametrize(("labels", "dialect"), WAYS)
@pytest.mark.parametrize(
    ("spec", "metadata", "message"),
    [
        ({"minMember": 0}, {}, "spec.minMember is 0: expected a whole number from 1 to"),
        ({"minMember": True}, {}, "spec.minMember is true: expected a whole number from 1 to"),
        ({"minMember": 2, "scheduleTimeoutSeconds": -1}, {}, "scheduleTimeoutSeconds is -1: expected a whole"),
        ("three", {}, "spec is 'three': expected an object with keys and values"),
        (
            {"minMember": 2},
            {"annotations": {koordinator.MODE: "Lax"}},
            f"metadata.annotations.{koordinator.MODE} is 'Lax': expected Strict or NonStrict",
        ),
    ],
)
def test_a_bad_podgroup_is_told(labels: dict[str, str], dialect: Any, spec: Any, metadata: Any, message: str) -> None:
    with pytest.raises(UserError) as error:
        describe(labels, {}, podgroups(dialect.objects.group, spec, metadata))
    assert f"podgroups.{dialect.objects.group} team/train: " in str(error.value)
    assert message in str(error.value)


@pytest.mark.parametrize(("labels", "dialect"), WAYS)
def test_a_podgroup_that_is_not_there_is_missing(labels: dict[str, str], dialect: Any) -> None:
    said = describe(labels, {}, podgroups("example.com", {"minMember": 2}))
    assert said is not None
    assert (said.source, said.missing, said.minimum) == (podgroup_ref(dialect.objects.group), True, None)


@pytest.mark.parametrize(("labels", "dialect"), WAYS)
def test_nobody_waits_for_a_podgroup_if_the_pod_says_the_minimum(labels: dict[str, str], dialect: Any) -> None:
    said = describe(labels, {koordinator.MINIMUM: "2"}, Cluster())
    assert said is not None
    assert (said.gang, said.minimum, said.missing, said.source) == (TRAIN, 2, None, None)


def test_a_podgroup_and_labels_have_to_agree() -> None:
    labels = {koordinator.GROUP_NAME: "train", koordinator.MIN_AVAILABLE: "2"}
    with pytest.raises(UserError, match="the minimum is 2 by coscheduling labels and 3 by PodGroup"):
        describe(labels, {}, podgroups(coscheduling.OLD_PODGROUPS.group, {"minMember": 3}))


def test_of_two_podgroups_that_say_the_same_the_first_is_the_source() -> None:
    same = {"spec": {"minMember": 3}, "metadata": {}}
    both = Cluster(
        {podgroup_ref(group): same for group in (coscheduling.PODGROUPS.group, coscheduling.OLD_PODGROUPS.group)}
    )
    said = describe({coscheduling.LABEL: "train", koordinator.PODGROUP_LABEL: "train"}, {}, both)
    assert said is not None
    assert (said.source, said.minimum) == (podgroup_ref(coscheduling.PODGROUPS.group), 3)
