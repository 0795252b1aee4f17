"""Queues and topology wishes of Kueue and KAI, and our own word that wins over them."""

from typing import Any

import pytest

from hived.values.errors import UserError
from hived_extender.jobs.kinds import kai, kueue, own, volcano
from hived_extender.jobs.kinds.description import Description, Within
from tests.extender.jobs.kinds.descriptions import TRAIN, describe, podgroups

RACK = "example.com/rack"
GANG_OF_FOUR = {"gang": TRAIN, "minimum": 4}


@pytest.mark.parametrize(
    ("labels", "annotations", "said"),
    [
        ({}, {kueue.REQUIRED: RACK}, {"within": Within(RACK, is_required=True)}),
        ({}, {kueue.PREFERRED: RACK}, {"within": Within(RACK, is_required=False)}),
        ({kueue.GROUP_NAME: "train"}, {kueue.TOTAL: "4"}, GANG_OF_FOUR),
        (
            {kueue.GROUP_NAME: "train"},
            {kueue.TOTAL: "4", kueue.REQUIRED: RACK},
            {"within": Within(RACK, is_required=True), **GANG_OF_FOUR},
        ),
    ],
)
def test_kueue_says(labels: dict[str, str], annotations: dict[str, str], said: dict[str, Any]) -> None:
    assert describe(labels, annotations) == Description(kueue.KUEUE.name, **said)


@pytest.mark.parametrize(
    ("labels", "annotations", "said"),
    [
        ({kai.QUEUE: "research"}, {}, {"queue": "research"}),
        ({}, {kai.REQUIRED: RACK}, {"within": Within(RACK, is_required=True)}),
        ({}, {kai.PREFERRED: RACK}, {"within": Within(RACK, is_required=False)}),
        ({}, {kai.REQUIRED: RACK, kai.PREFERRED: "node"}, {"within": Within(RACK, is_required=True)}),
    ],
)
def test_kai_says(labels: dict[str, str], annotations: dict[str, str], said: dict[str, Any]) -> None:
    assert describe(labels, annotations) == Description(kai.KAI.name, **said)


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("RACK", Within("RACK", is_required=True)),
        ('{"required": "RACK"}', Within("RACK", is_required=True)),
        ('{"preferred": "RACK"}', Within("RACK", is_required=False)),
        ('{"preferred": ""}', Within("", is_required=False)),
    ],
)
def test_our_own_word_says(text: str, wish: Within) -> None:
    assert describe({}, {own.WITHIN_CELL: text}) == Description(own.HIVED.name, within=wish)


@pytest.mark.parametrize(
    "text", ["{", "{}", '{"required": ""}', '{"required": 1}', '{"required": "a", "preferred": "b"}']
)
def test_a_bad_word_of_ours_is_told(text: str) -> None:
    with pytest.raises(UserError) as error:
        describe({}, {own.WITHIN_CELL: text})
    assert 'expected a cell type such as RACK, which is required, {"required": "RACK"} or' in str(error.value)


def test_our_own_word_wins_over_wishes_that_disagree() -> None:
    annotations = {kueue.REQUIRED: "a", kai.REQUIRED: "b", own.WITHIN_CELL: "RACK"}
    said = describe({}, annotations)
    assert said is not None
    assert said.within == Within("RACK", is_required=True)


def test_our_own_word_wins_over_that_of_an_object() -> None:
    spec = {"minMember": 2, "networkTopology": {"highestTierAllowed": 2}}
    annotations = {volcano.GROUP_NAMES[0]: "train", own.WITHIN_CELL: '{"preferred": "RACK"}'}
    said = describe({}, annotations, podgroups(volcano.PODGROUPS.group, spec))
    assert said is not None
    assert (said.minimum, said.within) == (2, Within("RACK", is_required=False))


def test_wishes_that_disagree_are_told() -> None:
    with pytest.raises(UserError, match=r"the topology wish is a \(required\) by Kueue and b \(preferred\) by KAI"):
        describe({}, {kueue.REQUIRED: "a", kai.PREFERRED: "b"})


def test_tasks_of_any_gang_can_be_said() -> None:
    labels = {kueue.GROUP_NAME: "train"}
    annotations = {kueue.TOTAL: "4", own.TASK: "server", own.TASK_MINIMUMS: '{"server": 1, "worker": 3}'}
    said = describe(labels, annotations)
    assert said == Description(
        "Kueue and HiveD", gang=TRAIN, minimum=4, task="server", task_minimums={"server": 1, "worker": 3}
    )


@pytest.mark.parametrize("text", ["worker", "[]", '{"worker": -1}', '{"worker": "3"}', '{"": 1}', '{"worker": 1e400}'])
def test_bad_minimums_of_tasks_are_told(text: str) -> None:
    with pytest.raises(UserError, match=f"{own.TASK_MINIMUMS} is .* expected a JSON object with whole"):
        describe({kueue.GROUP_NAME: "train"}, {own.TASK_MINIMUMS: text})
