"""The record of a pod, and the table of all records."""

import pytest
from msgspec.structs import replace

from hived_extender.machine.pods import NOT_WRITTEN, PodState, PodTable


@pytest.mark.parametrize("state", [PodState.HELD, PodState.WAITING, PodState.CLEARED])
def test_people_see_every_pod_without_a_node_waiting(state: PodState) -> None:
    pods = PodTable()
    pods.move(pods.add("u", "p", "ns"), state)
    assert pods.counts() == {"Waiting": 1, "Binding": 0, "Bound": 0}


@pytest.mark.parametrize("state", [PodState.CLEARED, PodState.BINDING, PodState.BOUND])
def test_a_decided_pod_is_not_held_by_a_late_view_of_it(state: PodState) -> None:
    pods = PodTable()
    record = pods.add("u", "p", "ns")
    pods.move(record, state)
    pods.hold(record, is_held=True)
    assert record.state is state


def test_a_binding_without_an_answer_may_be_written_until_the_pod_has_a_later_version() -> None:
    writing = replace(NOT_WRITTEN.begun(), tried_version="5").ended(is_unanswered=True)
    assert [writing.seen(version).is_open for version in ("5", "6")] == [True, False]
