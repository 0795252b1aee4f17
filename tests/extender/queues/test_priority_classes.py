"""PriorityClasses that preempt nobody, which come and go after the jobs that name them."""

from typing import Any

import msgspec

from hived_extender.jobs.wire import Pod
from hived_extender.queues.watched import CLASSES, WatchedClasses
from tests.extender.queues.small import Desk, unit


def item(name: str, policy: str = "Never", **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "preemptionPolicy": policy, **fields}


def of_class(name: str = "") -> list[Pod]:
    return [msgspec.convert({"metadata": {"name": "p"}, "spec": {"priorityClassName": name, "containers": []}}, Pod)]


def test_classes_that_come_and_go_later_have_all_jobs_looked_at_again() -> None:
    woken: list[None] = []
    classes = WatchedClasses(lambda: woken.append(None))
    assert classes.preempts(of_class("mild"))
    classes.seen(CLASSES, item("mild"))
    assert (classes.take_changed(), classes.take_changed(), classes.preempts(of_class("mild"))) == (True, False, False)
    classes.seen(CLASSES, item("mild"))
    assert not classes.take_changed()
    classes.gone(CLASSES, item("mild"))
    assert (classes.take_changed(), classes.preempts(of_class("mild")), len(woken)) == (True, True, 2)


def test_a_class_that_is_made_anew_has_its_new_policy() -> None:
    classes = WatchedClasses(lambda: None)
    classes.listed(CLASSES, [item("mild"), item("all", globalDefault=True)])
    assert not classes.preempts(of_class())
    classes.seen(CLASSES, item("mild", "PreemptLowerPriority"))
    classes.seen(CLASSES, item("all"))
    assert classes.preempts(of_class("mild"))
    assert classes.preempts(of_class())
    assert not classes.preempts(of_class("all"))


def test_a_job_that_waits_goes_by_the_class_of_now() -> None:
    desk = Desk()
    high = unit("high", priority=900, preempts=False, at=1.0)
    desk.come(unit("low", priority=1))
    assert (desk.come(high), desk.leaving) == ([], [])
    desk.queues.changed(unit("high", priority=900, at=1.0))
    desk.turn()
    assert desk.leaving == ["low"]
