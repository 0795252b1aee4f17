"""Times of transitions stay for as long as the value does."""

from hived_extender.kube.transitions import with_transition

CONDITION = {"type": "Ready", "status": "True", "reason": "New"}


def test_the_first_time_is_now() -> None:
    assert with_transition(CONDITION, None, "t1") == {**CONDITION, "lastTransitionTime": "t1"}


def test_the_time_stays_while_the_status_does() -> None:
    before = {**CONDITION, "reason": "Old", "lastTransitionTime": "t0"}
    assert with_transition(CONDITION, before, "t1")["lastTransitionTime"] == "t0"


def test_another_status_has_another_time() -> None:
    before = {**CONDITION, "status": "False", "lastTransitionTime": "t0"}
    assert with_transition(CONDITION, before, "t1")["lastTransitionTime"] == "t1"


def test_the_value_may_have_another_key() -> None:
    before = {"state": "Pending", "status": "x", "lastTransitionTime": "t0"}
    assert with_transition({"state": "Ready"}, before, "t1", key="state")["lastTransitionTime"] == "t1"
