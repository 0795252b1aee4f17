"""Whoever waits is told why, and every change that is said to help does: it is carried out, and the job starts."""

import pytest

from tests.extender.waiting.office import Office
from tests.extender.waiting.situations import SITUATIONS, Situation

EACH = pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.title)


def office_in(situation: Situation) -> Office:
    """The office after all steps."""
    office = Office()
    for step in situation.steps:
        step(office)
    return office


def test_there_are_forty_situations_of_every_kind() -> None:
    assert len({situation.title for situation in SITUATIONS}) >= 40
    causes = {situation.cause for situation in SITUATIONS}
    assert causes == {"in-use", "in-pieces", "bad", "lent", "kubernetes", "incomplete", "invalid", "never"}
    kinds = {change.partition("=")[0] for situation in SITUATIONS for change in situation.helps}
    assert kinds == {"pods", "leafType", "vc", "priority", "opportunistic", "heal", "move", "ends", "cells"}


@EACH
def test_the_owner_of_a_waiting_job_is_told_why(situation: Situation) -> None:
    found = office_in(situation).certificate("late")
    assert found.sentence == situation.sentence
    assert (found.cause, tuple(found.also), found.never) == (situation.cause, situation.also, situation.never)
    assert tuple(holder.group for holder in found.holders) == situation.holders
    assert tuple(node.node for node in found.bad_nodes) == situation.bad
    assert tuple(one.change for one in found.unblock) == situation.helps


@pytest.mark.parametrize(
    ("situation", "change"),
    [
        pytest.param(situation, change, id=f"{situation.title}: {change}")
        for situation in SITUATIONS
        for change in situation.helps
    ],
)
def test_a_change_that_is_said_to_help_lets_the_job_start(situation: Situation, change: str) -> None:
    office = office_in(situation)
    assert not office.has_started("late")
    assert office.carry_out(change, "late").has_started("late")


@EACH
def test_the_job_waits_on_where_nothing_changes(situation: Situation) -> None:
    office = office_in(situation)
    office.go_on()
    assert not office.has_started("late")
