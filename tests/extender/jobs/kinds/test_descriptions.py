"""Descriptions of pods in the words of each dialect, and the mistakes that are told (rules 23)."""

import time
from typing import Any

import pytest

from hived.values.errors import UserError
from hived_extender.jobs.kinds import coscheduling, kai, koordinator, kueue, native, own, volcano, yunikorn
from hived_extender.jobs.kinds.coscheduling import GROUPS, LABEL, MATCH_POLICY, OLD_PODGROUPS, PODGROUPS
from hived_extender.jobs.kinds.description import Description, GangKey, MatchPolicy, ObjectRef, Within
from hived_extender.jobs.kinds.kind import Dialect
from hived_extender.jobs.kinds.koordinator import GROUP_NAME, MIN_AVAILABLE, PODGROUP_LABEL
from hived_extender.jobs.kinds.volcano import GROUP_NAMES, HIGHEST_TIER, MINIMUM, QUEUE, TASK, TOPOLOGY_MODE
from hived_extender.jobs.kinds.yunikorn import APPLICATION, OLD_APPLICATION, TASK_GROUP, TASK_GROUPS
from hived_extender.jobs.wire import PodSpec, SchedulingGroup, WorkloadRef
from tests.extender.jobs.kinds.descriptions import TRAIN, Cluster, describe, podgroup_ref, podgroups

Words = dict[str, str]
Said = dict[str, Any]


def told(message: str, labels: Words, annotations: Words, objects: Cluster | None = None, spec: Any = None) -> None:
    """The pod gets an error with this message."""
    with pytest.raises(UserError) as error:
        describe(labels, annotations, objects, spec)
    assert message in str(error.value)


# Labels, and PodGroups of scheduler-plugins

LABELLED = {GROUP_NAME: "train", MIN_AVAILABLE: "3"}


@pytest.mark.parametrize(
    ("labels", "annotations", "said"),
    [
        ({}, {}, {}),
        ({}, {GROUPS: '["team/train"]'}, {"groups": (TRAIN,)}),
        ({GROUPS: '["team/servers", "team/servers"]'}, {}, {"groups": (GangKey("team", "servers"), TRAIN)}),
        (
            {MATCH_POLICY: "waiting-running-succeed"},
            {MATCH_POLICY: "waiting-running-succeed"},
            {"match_policy": MatchPolicy.WAITING_RUNNING_SUCCEED},
        ),
    ],
)
def test_labels_say(labels: Words, annotations: Words, said: Said) -> None:
    expected = Description(coscheduling.LABELLED.name, gang=TRAIN, minimum=3, **said)
    assert describe(LABELLED | labels, annotations) == expected


@pytest.mark.parametrize(
    ("labels", "annotations", "message"),
    [
        *(
            ({MIN_AVAILABLE: bad}, {}, f"label {MIN_AVAILABLE} is '{bad}': expected a whole number from 1 to")
            for bad in ("many", "0", "-1", "1.5", "99999999999", "²")
        ),
        ({GROUP_NAME: "a gang"}, {}, f"label {GROUP_NAME} is 'a gang': expected a name of letters"),
        ({GROUP_NAME: ""}, {}, "settings of a gang (coscheduling labels), but names none: set label"),
        ({}, {GROUPS: "train"}, f"annotation {GROUPS} is 'train': expected a JSON list"),
        ({}, {GROUPS: '["train"]'}, "expected a JSON list of gangs with their namesp"),
        ({}, {GROUPS: "[" * 10_000}, "expected a JSON list of gangs with their namesp"),
        (
            {MATCH_POLICY: "all"},
            {},
            "is 'all': expected only-waiting, waiting-and-running, waiting-running-succeed or once-satisfied",
        ),
        (
            {MATCH_POLICY: "only-waiting"},
            {MATCH_POLICY: "once-satisfied"},
            f"label {MATCH_POLICY} says only-waiting and annotation {MATCH_POLICY} says once-satisfied",
        ),
    ],
)
def test_bad_labels_are_told(labels: Words, annotations: Words, message: str) -> None:
    told(message, LABELLED | labels, annotations)


WAYS = [
    ({LABEL: "train"}, coscheduling.POD_GROUP, PODGROUPS.group),
    ({PODGROUP_LABEL: "train"}, coscheduling.OLD_POD_GROUP, OLD_PODGROUPS.group),
    ({GROUP_NAME: "train"}, coscheduling.OLD_POD_GROUP, OLD_PODGROUPS.group),
]
in_either_way = pytest.mark.parametrize(("labels", "dialect", "group"), WAYS)


@in_either_way
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
                "labels": {MATCH_POLICY: "only-waiting"},
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
def test_a_podgroup_says(labels: Words, dialect: Dialect, group: str, spec: Any, metadata: Any, said: Said) -> None:
    expected = {"gang": TRAIN, "waiting_s": 60.0, "source": podgroup_ref(group)} | said
    assert describe(labels, {}, podgroups(group, spec, metadata)) == Description(dialect.name, **expected)


@in_either_way
def test_a_label_finds_a_podgroup_of_the_other_group_unless_its_own_has_one(
    labels: Words, dialect: Dialect, group: str
) -> None:
    (other,) = {PODGROUPS.group, OLD_PODGROUPS.group} - {group}
    expected = Description(dialect.name, gang=TRAIN, minimum=3, waiting_s=60.0, source=podgroup_ref(other))
    assert describe(labels, {}, podgroups(other, {"minMember": 3})) == expected
    both = Cluster({podgroup_ref(one): {"spec": {"minMember": count}} for one, count in ((other, 3), (group, 2))})
    assert (said := describe(labels, {}, both)) is not None
    assert (said.minimum, said.source) == (2, podgroup_ref(group))


def test_a_minimum_among_the_labels_needs_no_podgroup_of_the_other_group() -> None:
    said = describe(LABELLED, {}, podgroups(PODGROUPS.group, {"minMember": 7}))
    assert said is not None
    assert said.source is None


@in_either_way
@pytest.mark.parametrize(
    ("spec", "metadata", "message"),
    [
        ({"minMember": 0}, {}, "spec.minMember is 0: expected a whole number from 1 to"),
        ({"minMember": True}, {}, "spec.minMember is true: expected a whole number from 1 to"),
        ({"minMember": 2, "scheduleTimeoutSeconds": -1}, {}, "spec.scheduleTimeoutSeconds is -1: expected a whole"),
        ("three", {}, "spec is 'three': expected an object with keys and values"),
        (
            {"minMember": 2},
            {"annotations": {koordinator.MODE: "Lax"}},
            f"metadata.annotations.{koordinator.MODE} is 'Lax': expected Strict or NonStrict",
        ),
    ],
)
def test_a_bad_podgroup_is_told(
    labels: Words, dialect: Dialect, group: str, spec: Any, metadata: Any, message: str
) -> None:
    told(f"podgroups.{group} team/train: {message}", labels, {}, podgroups(group, spec, metadata))


@in_either_way
def test_a_missing_podgroup_is_waited_for_unless_the_pod_says_the_minimum(
    labels: Words, dialect: Dialect, group: str
) -> None:
    said = describe(labels, {}, podgroups("example.com", {"minMember": 2}))
    assert said is not None
    assert (said.source, said.missing, said.minimum) == (podgroup_ref(group), True, None)
    said = describe(labels, {koordinator.MINIMUM: "2"}, Cluster())
    assert said is not None
    assert (said.gang, said.minimum, said.missing, said.source) == (TRAIN, 2, None, None)


def test_of_two_podgroups_that_say_the_same_the_first_is_the_source() -> None:
    both = Cluster({podgroup_ref(group): {"spec": {"minMember": 3}} for _, _, group in WAYS})
    said = describe({LABEL: "train", PODGROUP_LABEL: "train"}, {}, both)
    assert said is not None
    assert (said.source, said.minimum) == (podgroup_ref(PODGROUPS.group), 3)


# Koordinator


def gang(**annotations: str) -> Words:
    """The annotations of a gang of two."""
    words = {"name": "train", "min_available": "2"} | annotations
    return {koordinator.PREFIX + key.replace("_", "-"): value for key, value in words.items()}


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
def test_koordinators_annotations_say(annotations: Words, said: Said) -> None:
    expected: Said = {"gang": TRAIN, "minimum": 2, "waiting_s": 600.0} | said
    assert describe({}, annotations) == Description(koordinator.KOORDINATOR.name, **expected)


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
def test_the_name_is_that_of_labels_first(labels: Words, name: str) -> None:
    said = describe(labels, gang())
    assert said is not None
    assert (said.gang, said.minimum, said.missing) == (GangKey("team", name), 2, None)


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        (
            gang(min_available="two"),
            f"annotation {koordinator.MINIMUM} is 'two': expected a whole number from 1 to",
        ),
        (gang(min_available="0"), "expected a whole number from 1 to"),
        (
            gang(min_available=""),
            f"{koordinator.GANG_NAME} is there, but no minimum: set annotation {koordinator.MINIMUM}",
        ),
        (gang(name=""), f"(Koordinator), but names none: set label {GROUP_NAME}, annotation {koordinator.GANG_NAME}"),
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
def test_bad_annotations_of_koordinator_are_told(annotations: Words, message: str) -> None:
    told(message, {}, annotations)


@pytest.mark.parametrize("text", ["9" * 20_000, "9." * 10_000, "1s" * 10_000 + "x"])
def test_a_long_waiting_time_is_read_at_once(text: str) -> None:
    began = time.thread_time()
    told("expected a duration above zero", {}, gang(waiting_time=text))
    assert time.thread_time() - began < 2.0


# Volcano

NAMED = {GROUP_NAMES[0]: "train"}
OF_VOLCANO = podgroup_ref(volcano.PODGROUPS.group)


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
def test_annotations_and_the_podgroup_of_volcano_say(annotations: Words, spec: Any, said: Said) -> None:
    within = Within(*said["within"]) if "within" in said else None
    expected = Description(volcano.VOLCANO.name, gang=TRAIN, source=OF_VOLCANO, **{**said, "within": within})
    assert describe({}, annotations, podgroups(volcano.PODGROUPS.group, spec)) == expected


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        (NAMED, {"gang": TRAIN, "source": OF_VOLCANO, "missing": True}),
        (NAMED | {MINIMUM: "2"}, {"gang": TRAIN, "minimum": 2}),
        (NAMED | {MINIMUM: "2", QUEUE: "research"}, {"gang": TRAIN, "minimum": 2, "queue": "research"}),
        ({TOPOLOGY_MODE: "hard", HIGHEST_TIER: "2"}, {"within": Within("volcano-tier-2", is_required=True)}),
        ({TOPOLOGY_MODE: "soft"}, {"within": Within("", is_required=False)}),
        ({QUEUE: "research"}, {"queue": "research"}),
    ],
)
def test_annotations_of_volcano_say_without_a_podgroup(annotations: Words, said: Said) -> None:
    assert describe({}, annotations) == Description(volcano.VOLCANO.name, **said)


@pytest.mark.parametrize(
    ("annotations", "spec", "message"),
    [
        (
            {GROUP_NAMES[0]: "a", GROUP_NAMES[1]: "b"},
            {},
            f"{GROUP_NAMES[0]} says a and annotation {GROUP_NAMES[1]} says b",
        ),
        ({MINIMUM: "2"}, {}, "settings of a gang (Volcano), but names none"),
        (NAMED | {MINIMUM: "none"}, {}, f"annotation {MINIMUM} is 'none': expected a whole number from 1"),
        (NAMED, {"minMember": -1}, f"{OF_VOLCANO}: spec.minMember is -1: expected a whole number from 0"),
        (NAMED, {"minTaskMember": {"ps": "all"}}, "spec.minTaskMember.ps is 'all': expected a whole number from 0"),
        (NAMED, {"minTaskMember": 3}, "spec.minTaskMember is 3: expected an object"),
        (NAMED | {TOPOLOGY_MODE: "firm"}, {}, f"annotation {TOPOLOGY_MODE} is 'firm': expected hard or soft"),
        (NAMED | {HIGHEST_TIER: "rack"}, {}, f"annotation {HIGHEST_TIER} is 'rack': expected a whole number from 1"),
        (NAMED, {"networkTopology": {"mode": "firm"}}, "spec.networkTopology.mode is 'firm': expected hard or soft"),
    ],
)
def test_bad_words_of_volcano_are_told(annotations: Words, spec: Any, message: str) -> None:
    told(message, {}, annotations, podgroups(volcano.PODGROUPS.group, spec))


# Kubernetes' own

IN_PODGROUP = PodSpec(scheduling_group=SchedulingGroup("train"))
PODGROUP = podgroup_ref(native.PODGROUPS.group)
WORKLOAD = ObjectRef(native.WORKLOADS.name, "team", "train")
POD_GROUPS = [{"name": "ps", "policy": {"basic": {}}}, {"name": "worker", "policy": {"gang": {"minCount": 4}}}]


def in_workload(group: str, replica: str | None = None) -> PodSpec:
    """A pod of a pod group of the Workload."""
    return PodSpec(workload_ref=WorkloadRef("train", group, replica))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"schedulingPolicy": {"gang": {"minCount": 4}}}, {"gang": TRAIN, "minimum": 4}),
        (
            {
                "schedulingPolicy": {"gang": {"minCount": 4}},
                "schedulingConstraints": {"topology": [{"key": "example.com/rack"}]},
                "priorityClassName": "high",
                "disruptionMode": "PodGroup",
            },
            {
                "gang": TRAIN,
                "minimum": 4,
                "within": Within("example.com/rack", is_required=True),
                "priority_class": "high",
            },
        ),
        ({"schedulingPolicy": {"basic": {}}}, {}),
        (
            {"schedulingPolicy": {"basic": {}}, "schedulingConstraints": {"topology": [{"key": "rack"}]}},
            {"gang": TRAIN, "within": Within("rack", is_required=True)},
        ),
        ({"schedulingPolicy": {"basic": {}}, "schedulingConstraints": {"topology": []}}, {}),
    ],
)
def test_kubernetes_podgroup_says(spec: Any, said: Said) -> None:
    expected = Description(native.POD_GROUP.name, source=PODGROUP, **said)
    assert describe(objects=podgroups(native.PODGROUPS.group, spec), spec=IN_PODGROUP) == expected


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (in_workload("worker"), {"gang": GangKey("team", "train/worker"), "minimum": 4}),
        (in_workload("worker", "2"), {"gang": GangKey("team", "train/worker/2"), "minimum": 4}),
        (in_workload("ps"), {}),
    ],
)
def test_a_workload_says(wanted: PodSpec, said: Said) -> None:
    cluster = Cluster({WORKLOAD: {"spec": {"podGroups": POD_GROUPS}}})
    assert describe(objects=cluster, spec=wanted) == Description(native.WORKLOAD.name, source=WORKLOAD, **said)


@pytest.mark.parametrize(
    ("wanted", "source", "gang_of"),
    [(IN_PODGROUP, PODGROUP, TRAIN), (in_workload("worker"), WORKLOAD, GangKey("team", "train/worker"))],
)
def test_an_object_that_is_not_there_is_missing(wanted: PodSpec, source: ObjectRef, gang_of: GangKey) -> None:
    said = describe(spec=wanted)
    assert said is not None
    assert (said.gang, said.source, said.missing) == (gang_of, source, True)


@pytest.mark.parametrize(
    ("wanted", "source", "spec", "message"),
    [
        (
            IN_PODGROUP,
            PODGROUP,
            {"schedulingPolicy": {"gang": {"minCount": 0}}},
            ": spec.schedulingPolicy.gang.minCount is 0: expected a whole number from 1",
        ),
        (
            IN_PODGROUP,
            PODGROUP,
            {"schedulingConstraints": {"topology": "rack"}},
            ": spec.schedulingConstraints.topology is 'rack': expected a list",
        ),
        (
            in_workload("chief"),
            WORKLOAD,
            {"podGroups": POD_GROUPS},
            " has no pod group 'chief', which the pod is of: it has ps, w",
        ),
        (in_workload("chief"), WORKLOAD, {}, " has no pod group 'chief', which the pod is of: it has none"),
        (
            in_workload("a"),
            WORKLOAD,
            {"podGroups": [{"name": "a", "policy": {"gang": {"minCount": -1}}}]},
            ": spec.podGroups[0].policy.gang.minCount is -1: expected a whole number from 1",
        ),
    ],
)
def test_bad_objects_of_kubernetes_are_told(wanted: PodSpec, source: ObjectRef, spec: Any, message: str) -> None:
    told(f"{source}{message}", {}, {}, Cluster({source: {"spec": spec}}), wanted)


# YuniKorn

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
def test_task_groups_say(labels: Words, annotations: Words, said: Said) -> None:
    assert describe(labels, annotations) == Description(yunikorn.YUNIKORN.name, **({"gang": TRAIN} | said))


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
def test_bad_task_groups_are_told(labels: Words, annotations: Words, message: str) -> None:
    told(message, labels, annotations)


# Kueue, KAI, and our own

RACK = "example.com/rack"
OF_KUEUE, TOTAL = {kueue.GROUP_NAME: "train"}, {kueue.TOTAL: "4"}
REQUIRED, PREFERRED = Within(RACK, is_required=True), Within(RACK, is_required=False)


@pytest.mark.parametrize(
    ("dialect", "labels", "annotations", "said"),
    [
        (kueue.KUEUE, {}, {kueue.REQUIRED: RACK}, {"within": REQUIRED}),
        (kueue.KUEUE, {}, {kueue.PREFERRED: RACK}, {"within": PREFERRED}),
        (kueue.KUEUE, OF_KUEUE, TOTAL, {"gang": TRAIN, "minimum": 4}),
        (
            kueue.KUEUE,
            OF_KUEUE,
            TOTAL | {kueue.REQUIRED: RACK},
            {"gang": TRAIN, "minimum": 4, "within": REQUIRED},
        ),
        (kai.KAI, {kai.QUEUE: "research"}, {}, {"queue": "research"}),
        (kai.KAI, {}, {kai.REQUIRED: RACK}, {"within": REQUIRED}),
        (kai.KAI, {}, {kai.PREFERRED: RACK}, {"within": PREFERRED}),
        (kai.KAI, {}, {kai.REQUIRED: RACK, kai.PREFERRED: "node"}, {"within": REQUIRED}),
        (own.HIVED, {}, {own.WITHIN_CELL: RACK}, {"within": REQUIRED}),
        (own.HIVED, {}, {own.WITHIN_CELL: f'{{"required": "{RACK}"}}'}, {"within": REQUIRED}),
        (own.HIVED, {}, {own.WITHIN_CELL: f'{{"preferred": "{RACK}"}}'}, {"within": PREFERRED}),
        (own.HIVED, {}, {own.WITHIN_CELL: '{"preferred": ""}'}, {"within": Within("", is_required=False)}),
    ],
)
def test_a_queue_a_group_and_a_wish_say(dialect: Dialect, labels: Words, annotations: Words, said: Said) -> None:
    assert describe(labels, annotations) == Description(dialect.name, **said)


@pytest.mark.parametrize(
    "text", ["{", "{}", '{"required": ""}', '{"required": 1}', '{"required": "a", "preferred": "b"}']
)
def test_a_bad_wish_of_ours_is_told(text: str) -> None:
    message = 'expected a cell type such as RACK, which is required, {"required": "RACK"} or'
    told(message, {}, {own.WITHIN_CELL: text})


def test_our_own_wish_overrides_those_of_others_and_of_an_object() -> None:
    """Rule 23.7."""
    said = describe({}, {kueue.REQUIRED: "a", kai.REQUIRED: "b", own.WITHIN_CELL: "RACK"})
    assert said is not None
    assert said.within == Within("RACK", is_required=True)
    spec = {"minMember": 2, "networkTopology": {"highestTierAllowed": 2}}
    annotations = NAMED | {own.WITHIN_CELL: '{"preferred": "RACK"}'}
    said = describe({}, annotations, podgroups(volcano.PODGROUPS.group, spec))
    assert said is not None
    assert (said.minimum, said.within) == (2, Within("RACK", is_required=False))


def test_tasks_of_any_gang_can_be_said() -> None:
    annotations = TOTAL | {own.TASK: "server", own.TASK_MINIMUMS: '{"server": 1, "worker": 3}'}
    assert describe(OF_KUEUE, annotations) == Description(
        "Kueue and HiveD", gang=TRAIN, minimum=4, task="server", task_minimums={"server": 1, "worker": 3}
    )


@pytest.mark.parametrize("text", ["worker", "[]", '{"worker": -1}', '{"worker": "3"}', '{"": 1}', '{"worker": 1e400}'])
def test_bad_minimums_of_tasks_are_told(text: str) -> None:
    with pytest.raises(UserError, match=f"{own.TASK_MINIMUMS} is .* expected a JSON object with whole"):
        describe(OF_KUEUE, {own.TASK_MINIMUMS: text})
