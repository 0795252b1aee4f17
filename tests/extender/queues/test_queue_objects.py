"""Words of users in Queue objects: policy, priority and depth (rule 29.7), and mistakes that change nothing."""

from typing import Any

import pytest

from hived.values.errors import UserError
from hived_extender.queues.policies import Policy, QueueRules, Rules
from hived_extender.queues.records import MAX_DEPTH, queue_name
from hived_extender.queues.watched import OTHER_NAMESPACE, QueueItem, QueueObjects, Said, said_by

BASE = Rules(QueueRules(borrows=False), {"root/a": QueueRules(weight=2.0)})


def item(spec: dict[str, Any], path: str = "root/a", **annotations: str) -> QueueItem:
    return QueueItem(path, f"u-{path}", "kube-queue", "q", spec, annotations)


def test_policy_and_priority_are_obeyed_and_the_rest_is_the_configurations() -> None:
    objects = QueueObjects()
    assert objects.read([item({"queuePolicy": "Block", "priority": 7})]) == []
    assert objects.obeyed(BASE).of("root/a") == QueueRules(policy=Policy.BLOCK, priority=7, weight=2.0)
    assert objects.obeyed(BASE).of("root/b") == BASE.default


@pytest.mark.parametrize("word", ["Round", "StrictConsistency", "priority"])
def test_former_names_of_policies_are_read(word: str) -> None:
    assert said_by(item({"queuePolicy": word})).policy is Policy.PRIORITY


def test_an_object_without_words_changes_nothing() -> None:
    objects = QueueObjects()
    objects.read([item({}), item({"queuePolicy": "", "priority": None}, "root/b")])
    assert objects.obeyed(BASE) is BASE


def test_a_depth_is_read_from_the_annotation() -> None:
    assert said_by(QueueItem("a", "u", "n", "q", {}, {MAX_DEPTH: "3"})) == Said(max_depth=3)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"queuePolicy": "Blok"}, "spec.queuePolicy: found 'Blok'; expected one of hived, Priority, Block and Round"),
        ({"queuePolicy": 3}, "spec.queuePolicy: found 3; expected one of hived, Priority, Block and Round"),
        ({"priority": "high"}, "spec.priority: found 'high'; expected a whole number"),
        ({"priority": True}, "spec.priority: found True; expected a whole number"),
    ],
)
def test_a_mistake_is_named_with_its_place(spec: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError) as refused:
        said_by(item(spec))
    assert refused.value.message == expected


@pytest.mark.parametrize("depth", ["-1", "many", "9" * 5000])
def test_a_depth_that_is_no_number_is_a_mistake(depth: str) -> None:
    with pytest.raises(UserError, match="expected a whole number of at least 0"):
        said_by(QueueItem("a", "u", "n", "q", {}, {MAX_DEPTH: depth}))


def test_a_mistake_leaves_the_words_before_it_in_force_and_is_told_once() -> None:
    objects = QueueObjects()
    objects.read([item({"queuePolicy": "Block"})])
    wrong = item({"queuePolicy": "Blok", "priority": 9})
    ((told, _),) = objects.read([wrong])
    assert told == wrong
    assert objects.read([wrong]) == []
    assert objects.said == {"root/a": Said(Policy.BLOCK)}


def test_the_object_of_another_namespace_changes_nothing_and_is_told_once() -> None:
    objects = QueueObjects()
    theirs = QueueItem("root/a", "u-theirs", "a-tenant", "a", {"queuePolicy": "Block", "priority": 9}, {})
    assert objects.read([theirs]) == [(theirs, OTHER_NAMESPACE)]
    assert objects.read([theirs]) == []
    assert objects.obeyed(BASE) is BASE
    objects.read([theirs, item({"priority": 3})])
    assert objects.said == {"root/a": Said(priority=3)}


def test_of_several_objects_for_one_queue_that_of_hived_counts() -> None:
    objects = QueueObjects()
    other = QueueItem("root/a", "u-other", "kube-queue", "a", {"priority": 9}, {})
    ours = QueueItem("root/a", "u-ours", "kube-queue", queue_name("root/a"), {"priority": 3}, {})
    objects.read([other, ours])
    assert objects.said == {"root/a": Said(priority=3)}


def test_an_object_that_is_gone_leaves_the_configuration_in_force() -> None:
    objects = QueueObjects()
    objects.read([item({"queuePolicy": "Block"})])
    objects.read([])
    assert objects.obeyed(BASE) is BASE
