"""Writes into Kueue's objects: each is of the version that was read."""

import pytest

from hived_extender.kube.client import KubeError
from hived_extender.queues.kueue.checks import Said, Write
from hived_extender.queues.kueue.controller import AT_WORK, is_passing, write_active, write_state
from hived_extender.queues.kueue.workloads import check_of, workload_of
from tests.extender.queues.kueue.kueue_by_hand import KueueByHand
from tests.extender.queues.kueue.workload_objects import CHECK, check_state

NOW_S = 1_800_000_000.0


HELD = Said("Ready", "held")


def write(kueue: KueueByHand, said: Said = HELD) -> Write:
    """A write that is due for a Workload as it is at this moment."""
    return Write(workload_of(kueue.get("job-train")), (CHECK,), said)


def test_a_state_leaves_the_states_of_others_as_they_are(api: KueueByHand) -> None:
    api.queue("job-train")
    api.reserve("job-train", "theirs", CHECK)
    found = workload_of(write_state(api.kube, api.collection, write(api), NOW_S))
    assert [(each["name"], each["state"]) for each in found.written] == [("theirs", "Pending"), (CHECK, "Ready")]
    assert api.check("job-train")["lastTransitionTime"] == "2027-01-15T08:00:00Z"


def test_a_state_is_not_written_over_an_eviction(api: KueueByHand) -> None:
    api.queue("job-train")
    api.reserve("job-train")
    due = write(api, said=Said("Retry", "late"))
    api.evict("job-train")
    with pytest.raises(KubeError) as refusal:
        write_state(api.kube, api.collection, due, NOW_S)
    assert is_passing(refusal.value)
    assert api.check("job-train") == {**check_state(), "message": "Reset"}


def test_a_workload_of_the_same_name_that_came_later_is_left_alone(api: KueueByHand) -> None:
    api.queue("job-train")
    api.reserve("job-train")
    due = write(api)
    api.delete("job-train")
    api.queue("job-train")
    with pytest.raises(KubeError) as refusal:
        write_state(api.kube, api.collection, due, NOW_S)
    assert is_passing(refusal.value)


def test_other_conditions_of_a_check_stay(api: KueueByHand) -> None:
    api.declare()
    path = f"{api.collection.rpartition('/')[0]}/admissionchecks"
    theirs = {
        "type": "SingleInstance",
        "status": "True",
        "reason": "Its",
        "message": "",
        "lastTransitionTime": "2026-11-23T10:00:00Z",
    }
    api.kube.patch(f"{path}/{CHECK}/status", {"status": {"conditions": [theirs]}})
    write_active(api.kube, path, check_of(api.kube.get(f"{path}/{CHECK}")), AT_WORK, NOW_S)
    assert api.is_active()
    assert api.kube.get(f"{path}/{CHECK}")["status"]["conditions"][0] == theirs
