"""Properties of all dialects together (rules 23.1, 23.5)."""

import random
import time
from typing import Any

import pytest

from hived.values.errors import UserError
from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.jobs.kinds import coscheduling, kai, koordinator, kueue, table, volcano, yunikorn
from hived_extender.jobs.kinds.description import Description
from hived_extender.jobs.wire import PodSpec, SchedulingGroup, WorkloadRef
from tests.extender.jobs.kinds.descriptions import TRAIN, Cluster, describe, make_pod, podgroup_ref, podgroups
from tests.property.examples import examples

ORDINARY = {"app": "web", "job-name": "train", "batch.kubernetes.io/job-completion-index": "0"}
LABELS = {koordinator.GROUP_NAME: "train", koordinator.MIN_AVAILABLE: "3"}
ANNOTATIONS = {koordinator.GANG_NAME: "train", koordinator.MINIMUM: "3"}


def test_a_pod_without_marks_is_described_by_none() -> None:
    assert describe(ORDINARY, {SCHEDULING_SPEC: "{}"}) is None


@pytest.mark.parametrize(
    ("labels", "annotations", "spec", "is_marked"),
    [
        (ORDINARY, {SCHEDULING_SPEC: "{}"}, PodSpec(), False),
        (None, None, None, False),
        *(({key: "x"}, {}, None, True) for dialect in table.DIALECTS for key in sorted(dialect.keys)),
        *(({}, {key: "x"}, None, True) for dialect in table.DIALECTS for key in sorted(dialect.keys)),
        ({}, {}, PodSpec(scheduling_group=SchedulingGroup("train")), True),
        ({}, {}, PodSpec(workload_ref=WorkloadRef("train", "worker")), True),
    ],
)
def test_a_mark_is_seen(labels: Any, annotations: Any, spec: Any, is_marked: bool) -> None:
    assert table.is_marked(make_pod(labels, annotations, spec)) is is_marked


def test_a_pod_without_marks_costs_next_to_nothing() -> None:
    pod, nothing = make_pod(ORDINARY, {SCHEDULING_SPEC: "{}"}, PodSpec()), Cluster()
    rounds = []
    for _ in range(5):
        began = time.thread_time()
        for _ in range(1000):
            table.describe(pod, nothing)
        rounds.append((time.thread_time() - began) / 1000)
    assert min(rounds) < 2e-6


def test_two_dialects_that_agree_are_one_description() -> None:
    assert describe(LABELS, ANNOTATIONS) == Description(
        "coscheduling labels and Koordinator", gang=TRAIN, minimum=3, waiting_s=600.0
    )


@pytest.mark.parametrize(
    ("labels", "annotations", "message"),
    [
        (
            LABELS,
            ANNOTATIONS | {koordinator.MINIMUM: "4"},
            "the minimum is 3 by coscheduling labels and 4 by Koordinator",
        ),
        (
            LABELS | {coscheduling.LABEL: "other"},
            {},
            "the gang's name is team/train by coscheduling labels and team/other by PodGroup (scheduling.x-k8s.io)",
        ),
        (
            LABELS | {coscheduling.MATCH_POLICY: "only-waiting"},
            ANNOTATIONS | {koordinator.MATCH_POLICY: "once-satisfied"},
            "the match policy is only-waiting by coscheduling labels and once-satisfied by Koordinator",
        ),
        (
            LABELS | {coscheduling.GROUPS: '["a/b"]'},
            ANNOTATIONS | {koordinator.GROUPS: '["a/b", "c/d"]'},
            "the group of gangs is a/b by coscheduling labels and a/b, c/d by Koordinator",
        ),
        (
            {},
            {kueue.REQUIRED: "a", kai.PREFERRED: "b"},
            "the topology wish is a (required) by Kueue and b (preferred) by KAI",
        ),
        (
            {yunikorn.APPLICATION: "train"},
            {yunikorn.TASK_GROUP: "ps", volcano.GROUP_NAMES[0]: "train", volcano.TASK: "worker", volcano.MINIMUM: "1"},
            "the task is worker by Volcano and ps by YuniKorn",
        ),
    ],
)
def test_two_dialects_that_disagree_are_told(labels: Any, annotations: Any, message: str) -> None:
    with pytest.raises(UserError) as error:
        describe(labels, annotations)
    assert f"its gang dialects disagree: {message}; remove one of them or make them agree" in str(error.value)


def test_a_podgroup_and_labels_have_to_agree() -> None:
    with pytest.raises(UserError, match="the minimum is 3 by coscheduling labels and 4 by PodGroup"):
        describe(LABELS, {}, podgroups(coscheduling.OLD_PODGROUPS.group, {"minMember": 4}))


def test_a_missing_podgroup_leaves_what_another_says() -> None:
    labels = {coscheduling.LABEL: "train", koordinator.PODGROUP_LABEL: "train"}
    said = describe(labels, {}, podgroups(coscheduling.OLD_PODGROUPS.group, {"minMember": 3}))
    assert said is not None
    assert (said.minimum, said.missing, said.source) == (3, None, podgroup_ref(coscheduling.OLD_PODGROUPS.group))


@pytest.mark.parametrize(
    ("labels", "annotations", "spec", "refs"),
    [
        (ORDINARY, {}, None, set()),
        (
            {coscheduling.LABEL: "train"},
            {},
            None,
            {podgroup_ref("scheduling.x-k8s.io"), podgroup_ref("scheduling.sigs.k8s.io")},
        ),
        (LABELS, {}, None, {podgroup_ref("scheduling.sigs.k8s.io")}),
        (
            LABELS | {koordinator.MIN_AVAILABLE: "none"},
            {volcano.GROUP_NAMES[0]: "train"},
            PodSpec(scheduling_group=SchedulingGroup("other")),
            {
                podgroup_ref("scheduling.sigs.k8s.io"),
                podgroup_ref("scheduling.volcano.sh"),
                podgroup_ref("scheduling.k8s.io", "other"),
            },
        ),
    ],
)
def test_the_objects_that_a_pod_names_are_known_even_if_it_is_no_good(
    labels: Any, annotations: Any, spec: Any, refs: set[Any]
) -> None:
    assert table.objects_of(make_pod(labels, annotations, spec)) == refs


def test_whatever_users_write_is_a_description_or_an_error_of_theirs() -> None:
    chance = random.Random(5)
    keys = sorted(key for dialect in table.DIALECTS for key in dialect.keys)
    values = [
        "train",
        "3",
        "",
        "0",
        "[]",
        "{}",
        "null",
        '["a/b"]',
        "only-waiting",
        "5m",
        "\x00",
        "é",
        "[" * 1000,
        "9" * 5000,
    ]
    things: list[Any] = [None, 1, -1, True, 1.5, "x", [], {}, [1], {"minCount": 2}, {"mode": "hard"}, [{"name": 7}]]
    fields = [
        "minMember",
        "minTaskMember",
        "queue",
        "networkTopology",
        "schedulingPolicy",
        "podGroups",
        "scheduleTimeoutSeconds",
    ]
    outcomes = {True: 0, False: 0}
    count = examples(3000)
    for _ in range(count):
        labels, annotations = ({key: chance.choice(values) for key in chance.sample(keys, 1)} for _ in range(2))
        spec = chance.choice([{field: chance.choice(things) for field in chance.sample(fields, 3)}, *things])
        metadata = chance.choice([{"labels": labels, "annotations": annotations}, *things])
        cluster = Cluster({kind.ref("team", "train"): {"spec": spec, "metadata": metadata} for kind in table.OBJECTS})
        wanted = PodSpec(scheduling_group=chance.choice([None, SchedulingGroup("train")]))
        try:
            describe(labels, annotations, cluster, wanted)
            outcomes[True] += 1
        except UserError:
            outcomes[False] += 1
    assert min(outcomes.values()) > count / 10
