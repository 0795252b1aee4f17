"""The status of a PodGroup, kind by kind: cases of a gang in, the patch out."""

from typing import Any

import pytest

from hived_extender.jobs.kinds import coscheduling, native, volcano
from hived_extender.machine.gangs.plans import GangState
from hived_extender.machine.writes.statuses import status_patch

NOW, BEFORE = "2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"
CURRENT, FORMER, VOLCANO, NATIVE = (
    each.name
    for each in (coscheduling.PODGROUPS, coscheduling.OLD_PODGROUPS, volcano.PODGROUPS, native.PODGROUPS)
)  # fmt: skip


def gang(pods: int = 3, scheduled: int = 0, running: int = 0, succeeded: int = 0, failed: int = 0) -> GangState:
    return GangState(
        pod_count=pods, scheduled=scheduled, running=running, succeeded=succeeded, failed=failed, obstacle=""
    )


def group(minimum: int = 3, **status: Any) -> dict[str, Any]:
    return {"spec": {"minMember": minimum}, "status": status}


def after(kind: str, state: GangState, found: dict[str, Any], now: str = NOW) -> dict[str, Any]:
    """The status once the patch is merged; patched again it says the same."""
    merged = {**found["status"], **status_patch(kind, state, found, now)}
    assert status_patch(kind, state, {**found, "status": merged}, "later") == {}
    return merged


PHASES = [
    # the gang, then the phases of scheduler-plugins, of its former version, of Volcano
    (gang(pods=2), "Pending", "Pending", "Inqueue"),
    (gang(), "Scheduling", "PreScheduling", "Inqueue"),
    (gang(scheduled=2), "Scheduling", "Scheduling", "Unknown"),
    (gang(scheduled=3), "Scheduling", "Scheduled", "Running"),
    (gang(scheduled=3, running=2), "Scheduling", "Scheduled", "Running"),
    (gang(scheduled=3, running=3), "Running", "Running", "Running"),
    (gang(pods=5, scheduled=3, running=3), "Running", "Running", "Running"),
    (gang(scheduled=2, running=2, succeeded=1), "Running", "Running", "Running"),
    (gang(scheduled=2, running=2, failed=1), "Failed", "Failed", "Unknown"),
    (gang(pods=4, scheduled=3, running=3, failed=1), "Failed", "Failed", "Running"),
    (gang(succeeded=3), "Finished", "Finished", "Completed"),
    (gang(pods=4, scheduled=1, running=1, succeeded=3), "Finished", "Finished", "Running"),
    (gang(succeeded=2, failed=1), "Failed", "Failed", "Completed"),
    (gang(pods=2, succeeded=2), "Pending", "Pending", "Completed"),
    (gang(pods=0), "Pending", "Pending", "Inqueue"),
]


@pytest.mark.parametrize(("state", "current", "former", "volcanos"), PHASES)
def test_the_phase_of_each_kind(state: GangState, current: str, former: str, volcanos: str) -> None:
    assert after(CURRENT, state, group())["phase"] == current
    assert after(FORMER, state, group())["phase"] == former
    assert after(VOLCANO, state, group())["phase"] == volcanos


@pytest.mark.parametrize("kind", [CURRENT, FORMER, VOLCANO])
def test_pods_are_counted(kind: str) -> None:
    status = after(kind, gang(pods=6, scheduled=3, running=3, succeeded=2, failed=1), group(running=9))
    assert {key: status[key] for key in ("running", "succeeded", "failed")} == {
        "running": 3, "succeeded": 2, "failed": 1,
    }  # fmt: skip
    assert status.get("scheduled") == (5 if kind == FORMER else None)


@pytest.mark.parametrize("kind", [CURRENT, FORMER])
def test_when_the_first_pod_was_scheduled_is_told_once(kind: str) -> None:
    assert "scheduleStartTime" not in after(kind, gang(), group())
    assert after(kind, gang(scheduled=1), group())["scheduleStartTime"] == NOW
    assert after(kind, gang(scheduled=3), group(scheduleStartTime=BEFORE))["scheduleStartTime"] == BEFORE


def test_only_what_is_new_is_written() -> None:
    found = group(phase="Scheduling", running=0)
    assert status_patch(CURRENT, gang(), found, NOW) == {}
    assert status_patch(CURRENT, gang(scheduled=3, running=3), found, NOW) == {
        "phase": "Running", "running": 3, "scheduleStartTime": NOW,
    }  # fmt: skip


@pytest.mark.parametrize(("kind", "phase"), [(CURRENT, "Finished"), (CURRENT, "Failed"), (VOLCANO, "Completed")])
def test_what_has_ended_stays_so_when_its_pods_are_deleted(kind: str, phase: str) -> None:
    assert status_patch(kind, GangState(), group(phase=phase, succeeded=3), NOW) == {}
    assert after(kind, gang(scheduled=3, running=3), group(phase=phase))["phase"] == "Running"


def test_volcano_is_told_what_is_missing_and_then_that_nothing_is() -> None:
    obstacle = "rejected by podgroup/ns/g: 2 of 3 pods created"
    other = {"type": "Other", "status": "True"}
    status = after(VOLCANO, GangState(pod_count=2, obstacle=obstacle), group(conditions=[other]), BEFORE)
    kept, waits = status["conditions"]
    assert kept == other
    identity = waits.pop("transitionID")
    assert waits == {
        "type": "Unschedulable", "status": "True", "reason": "NotEnoughTasks", "lastTransitionTime": BEFORE,
        "message": "3/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 3 minAvailable; " + obstacle,
    }  # fmt: skip
    waits["transitionID"] = identity
    still = after(VOLCANO, gang(), {**group(), "status": status})["conditions"][1]
    assert (still["reason"], still["lastTransitionTime"]) == ("NotEnoughResources", BEFORE)
    assert still["transitionID"] != identity
    lacks = "3/3 tasks in gang unschedulable: pod group is not ready, 3 Pending, 3 minAvailable; "
    assert still["message"].startswith(f"{lacks}0 of 3 pods have a node")
    kept, ready = after(VOLCANO, gang(scheduled=3), {**group(), "status": status})["conditions"]
    assert kept == other
    assert (ready["type"], ready["status"], ready["lastTransitionTime"]) == ("Scheduled", "True", NOW)
    assert ready["reason"] == "tasks in gang are ready to be scheduled"


def native_group(version: str, *conditions: dict[str, Any]) -> dict[str, Any]:
    """A PodGroup of two pods, as a version of Kubernetes' own API has it."""
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    return {"apiVersion": f"scheduling.k8s.io/{version}", "spec": spec, "status": {"conditions": [*conditions]}}


VERSIONS = {
    "v1alpha2": "PodGroupScheduled", "v1alpha3": "PodGroupInitiallyScheduled", "v1beta1": "PodGroupInitiallyScheduled",
}  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_own_group_is_told_by_a_condition_that_does_not_go_back(version: str) -> None:
    found = native_group(version)
    (waits,) = after(NATIVE, gang(pods=2), found, BEFORE)["conditions"]
    assert (waits["type"], waits["status"], waits["reason"]) == (VERSIONS[version], "False", "Unschedulable")
    found["status"] = {"conditions": [waits, {"type": "DisruptionTarget", "status": "False"}]}
    disruption, ready = after(NATIVE, gang(pods=2, scheduled=2), found)["conditions"]
    assert disruption["type"] == "DisruptionTarget"
    assert (ready["status"], ready["reason"], ready["lastTransitionTime"]) == ("True", "Scheduled", NOW)
    found["status"] = {"conditions": [ready]}
    assert status_patch(NATIVE, gang(pods=1), found, NOW) == {}


@pytest.mark.parametrize(
    ("status", "state", "wanted"),
    [
        ("True", gang(pods=2), ("True", "Scheduled", BEFORE)),
        ("False", gang(pods=2), ("False", "Unschedulable", NOW)),
        ("False", gang(pods=2, scheduled=2), ("True", "Scheduled", NOW)),
    ],
)
def test_a_condition_by_the_former_name_is_taken_over(
    status: str, state: GangState, wanted: tuple[str, str, str]
) -> None:
    reason = "Scheduled" if status == "True" else "Unschedulable"
    former = {
        "type": "PodGroupScheduled",
        "status": status,
        "reason": reason,
        "message": "",
        "lastTransitionTime": BEFORE,
    }
    other = {"type": "DisruptionTarget", "status": "False"}
    kept, told = after(NATIVE, state, native_group("v1beta1", former, other))["conditions"]
    assert kept == other
    assert told["type"] == "PodGroupInitiallyScheduled"
    assert (told["status"], told["reason"], told["lastTransitionTime"]) == wanted


def test_a_condition_by_the_former_name_beside_kube_schedulers_own_is_dropped() -> None:
    own = {"type": "PodGroupInitiallyScheduled", "status": "True", "reason": "Scheduled", "lastTransitionTime": BEFORE}
    found = native_group("v1beta1", {"type": "PodGroupScheduled", "status": "False"}, own)
    assert after(NATIVE, gang(pods=2), found)["conditions"] == [own]


def test_a_kind_without_a_status_is_left_alone() -> None:
    assert status_patch(native.WORKLOADS.name, gang(scheduled=3), {"spec": {}}, NOW) == {}


@pytest.mark.parametrize("spec", [None, {}, {"minMember": None}, {"minMember": "3"}, {"minMember": -1}])
def test_a_group_without_a_sound_minimum_needs_one_pod(spec: Any) -> None:
    found = {"spec": spec, "status": None}
    assert status_patch(CURRENT, gang(pods=1, scheduled=1, running=1), found, NOW)["phase"] == "Running"
