"""Whoever waits is told why, and every change that is said to help does: it is carried out, and the job starts."""

from functools import cache

import msgspec
import pytest

from hived_extender.api.waiting import RECLAIMING, Certificate
from tests.extender.waiting.office import Office
from tests.extender.waiting.situations import SITUATIONS, Situation

EACH = pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.title)

GRADED = (
    "VC full by jobs of the same priority", "holder has a higher priority", "free GPUs, but in pieces",
    "16-GPU pod, largest cell 8", "gang 4x8, VC is promised 2 nodes", "pinned cell full", "opportunistic, no room",
    "wrong pinned cell", "wrong leafCellType", "nodeSelector against type", "nodeSelector matches nothing", "bad node",
    "gang incomplete", "own lower-priority job in the way", "no VC", "after the gang is complete",
)  # fmt: skip
"""Situations whose messages were graded by hand before anybody was told causes."""


class Answer(msgspec.Struct, frozen=True):
    """A situation as it was met: `told` has the messages of the pods' conditions; `starts` if it goes on by itself."""

    certificate: Certificate
    told: tuple[str, ...]
    starts: bool


def office_in(situation: Situation) -> Office:
    """The office after all steps."""
    office = Office()
    for step in situation.steps:
        step(office)
    return office


@cache
def answer(number: int) -> Answer:
    """The answer in a situation, by its number."""
    office = office_in(SITUATIONS[number])
    found, told = office.certificate("late"), tuple(office.told("late"))
    assert not office.has_started("late")
    office.go_on()
    return Answer(found, told, office.has_started("late"))


def answer_in(situation: Situation) -> Answer:
    """The same, looked up by whichever test asks next."""
    return answer(SITUATIONS.index(situation))


def test_there_are_forty_situations_of_every_kind() -> None:
    titles = [situation.title for situation in SITUATIONS]
    assert len(set(titles)) == len(titles) >= 40
    assert set(GRADED) <= set(titles)
    causes = {situation.cause for situation in SITUATIONS}
    assert causes == {
        "in-use",
        "in-pieces",
        "bad",
        "kubernetes",
        "incomplete",
        "order",
        "invalid",
        "never",
        *RECLAIMING,
    }
    kinds = {change.partition("=")[0] for situation in SITUATIONS for change in situation.helps.split()}
    assert kinds == {"pods", "leafType", "vc", "priority", "opportunistic", "heal", "move", "ends", "cells"}


@pytest.mark.sample(20)
@EACH
def test_the_owner_of_a_waiting_job_is_told_why(situation: Situation) -> None:
    found = answer_in(situation).certificate
    assert found.sentence == situation.sentence
    is_never = situation.cause == "never"
    assert (found.cause, found.also, found.never) == (situation.cause, situation.also.split(), is_never)
    assert [holder.group for holder in found.holders] == situation.holders.split()
    assert [node.node for node in found.bad_nodes] == situation.bad.split()
    assert [one.change for one in found.unblock] == situation.helps.split()


@pytest.mark.parametrize(
    "situation",
    [
        each
        for each in SITUATIONS
        if each.cause not in {*RECLAIMING, "order"} and not each.is_masked and not each.is_gated
    ],
    ids=lambda situation: situation.title,
)
def test_all_pods_of_the_job_say_the_same(situation: Situation) -> None:
    told = answer_in(situation).told
    assert told
    assert {message.rpartition("]: ")[2] for message in told} == {situation.sentence}


@pytest.mark.sample(25)
@pytest.mark.parametrize(
    ("situation", "change"),
    [
        pytest.param(situation, change, id=f"{situation.title}: {change}")
        for situation in SITUATIONS
        for change in situation.helps.split()
    ],
)
def test_a_change_that_is_said_to_help_lets_the_job_start(situation: Situation, change: str) -> None:
    office = office_in(situation)
    assert not office.has_started("late")
    assert office.carry_out(change, "late").has_started("late")


@EACH
def test_only_a_job_that_has_room_starts_where_nothing_changes(situation: Situation) -> None:
    assert answer_in(situation).starts == (situation.cause == "order")


def test_pods_name_no_jobs_of_other_namespaces() -> None:
    (situation,) = (each for each in SITUATIONS if each.is_masked)
    (message,) = answer_in(situation).told
    assert "another tenant's job" in message
    assert "elsewhere" not in message
