"""The admission check as a table: facts and answers go in, states come out, under a clock that the test turns."""

from typing import Any

import pytest

from hived.values.errors import UserError
from hived.values.specs import GroupSpec, MemberSpec, PodSpec
from hived_extender.kube.clocks import FIRST_RETRY_S
from hived_extender.machine.stimuli import HoldState
from hived_extender.queues.kueue.checks import EVICTION_S, MESSAGE_S, Checks, Said, Write, with_states
from hived_extender.queues.kueue.gangs import Gang, NoCells
from hived_extender.queues.kueue.workloads import Workload, check_of, workload_of
from tests.extender.queues.kueue.workload_objects import AT, CHECK, admission_check, check_state, condition, workload

RESERVED = condition("QuotaReserved")
UPDATES = ({"name": "main", "annotations": {"a": "b"}},)
KEY = "Workload/ns/job-train/uid-job-train"


def key_of(name: str) -> str:
    return f"Workload/ns/{name}/uid-{name}"


def read(one: Workload) -> Gang | NoCells:
    """Names of jobs say what they are: `odd` cannot be read, `cpu` takes no cells, `spare` is opportunistic."""
    name = one.job.name
    if "odd" in name:
        raise UserError("pod set main: odd")
    if "cpu" in name:
        return NoCells("no devices")
    priority = -1 if "spare" in name else 5 if "urgent" in name else 0
    vc = "b" if name.endswith("-b") else "a"
    return Gang(PodSpec(vc, priority, 4, GroupSpec(one.key, (MemberSpec(2, 4),)), leaf_cell_type="A100"), (), UPDATES)


def started(*items: dict[str, Any]) -> Checks:
    """A machine that knows our check and these Workloads."""
    checks = Checks(read)
    checks.checks_are([check_of(admission_check()), check_of(admission_check("other", "other/controller"))])
    for item in items:
        checks.workload_seen(workload_of(item))
    return checks


def again(checks: Checks, item: dict[str, Any], version: int, **status: Any) -> None:
    """The watch tells of a Workload that has changed."""
    item["metadata"]["resourceVersion"] = str(version)
    item["status"] |= status
    checks.workload_seen(workload_of(item))


def asked(checks: Checks) -> list[str]:
    return [hold.key for hold in checks.to_ask()]


def written(checks: Checks, now: float = 0.0) -> list[tuple[str, str, str]]:
    """(name, state, message) of what is written now, and carried out."""
    found = []
    for write in checks.take_writes(now):
        found.append((write.workload.job.name, write.said.state, write.said.message))
        checks.wrote(write, now, refused=False)
    return found


def test_cells_are_asked_for_once_quota_is_reserved() -> None:
    item = workload(conditions=())
    checks = started(item)
    assert asked(checks) == []
    again(checks, item, 6, conditions=[RESERVED])
    (hold,) = checks.to_ask()
    assert (hold.key, hold.job.kind, hold.job.name) == (KEY, "Workload", "job-train")


def test_the_answer_to_a_write_brings_no_workload_back_that_was_deleted_meanwhile() -> None:
    item = workload()
    checks = started(item)
    (key,) = asked(checks)
    checks.workload_gone(key)
    checks.workload_written(workload_of(item))
    assert asked(checks) == []


def test_workloads_without_a_check_of_ours_are_left_alone() -> None:
    checks = started(workload(checks=(check_state("other"),)))
    assert (asked(checks), written(checks)) == ([], [])


def test_a_check_that_becomes_ours_later_counts() -> None:
    checks = Checks(read)
    checks.workload_seen(workload_of(workload()))
    assert asked(checks) == []
    checks.checks_are([check_of(admission_check())])
    assert asked(checks) == [KEY]


def test_held_cells_make_the_check_ready_with_words_for_the_pods() -> None:
    """Rule 32.12."""
    checks = started(workload())
    checks.held(asked(checks)[0])
    (write,) = checks.take_writes(0.0)
    assert write.said == Said(
        "Ready", "cells are held: 2 pods x 4 A100 in virtual cluster a at priority 0", updates=UPDATES
    )
    assert asked(checks) == []


def test_no_room_keeps_the_check_pending_and_says_why_and_where_it_stands() -> None:
    """Rule 32.12."""
    first, second = workload("job-one"), workload("job-two")
    checks = started(second, first)
    for key in asked(checks):
        checks.refused(key, "all nodes are in use", never=False)
    assert written(checks, MESSAGE_S) == [
        ("job-two", "Pending", "waits for cells, 2 of 2 that Kueue has given quota: all nodes are in use"),
        ("job-one", "Pending", "waits for cells, 1 of 2 that Kueue has given quota: all nodes are in use"),
    ]
    assert asked(checks) == [key_of("job-one"), key_of("job-two")]


def test_what_can_never_run_is_rejected() -> None:
    """Rule 32.12."""
    checks = started(workload())
    checks.refused(asked(checks)[0], "needs 3 nodes; it can never run", never=True)
    assert written(checks) == [("job-train", "Rejected", "needs 3 nodes; it can never run")]
    assert asked(checks) == []


def test_a_workload_that_is_not_understood_is_told_so_and_asks_once_it_is() -> None:
    item = workload()
    item["spec"]["podSets"][0]["count"] = "two"
    checks = started(item)
    assert asked(checks) == []
    ((_, state, message),) = written(checks, MESSAGE_S)
    assert (state, message[:35]) == ("Pending", "this Workload is not understood: Wo")
    item["spec"]["podSets"][0]["count"] = 2
    again(checks, item, 6)
    assert asked(checks) == [KEY]


def test_a_mistake_is_rejected_without_a_question() -> None:
    checks = started(workload("job-odd"))
    assert (asked(checks), written(checks)) == ([], [("job-odd", "Rejected", "pod set main: odd")])


def test_what_needs_no_cells_is_ready_at_once() -> None:
    checks = started(workload("job-cpu"))
    assert (asked(checks), written(checks)) == ([], [("job-cpu", "Ready", "no devices")])


@pytest.mark.parametrize(
    "end",
    [
        {"conditions": [RESERVED, condition("Evicted")]},
        {"conditions": [RESERVED, condition("Finished")]},
        {"conditions": [condition("QuotaReserved", is_true=False)]},
    ],
)
def test_cells_are_given_back_and_nothing_is_written_when_kueue_takes_the_quota_back(end: dict[str, Any]) -> None:
    item = workload()
    checks = started(item)
    checks.held(asked(checks)[0])
    again(checks, item, 6, **end)
    assert checks.take_dropped() == [KEY]
    assert checks.take_dropped() == []
    assert (asked(checks), written(checks, 100.0)) == ([], [])


def test_cells_of_a_deactivated_workload_are_given_back() -> None:
    item = workload()
    checks = started(item)
    checks.held(asked(checks)[0])
    item["spec"]["active"] = False
    again(checks, item, 6)
    assert checks.take_dropped() == [KEY]


def test_cells_of_a_deleted_workload_are_given_back() -> None:
    checks = started(workload())
    checks.held(asked(checks)[0])
    checks.workload_gone(KEY)
    assert checks.take_dropped() == [KEY]


def test_an_evicted_workload_that_gets_quota_again_asks_again() -> None:
    item = workload()
    checks = started(item)
    checks.held(asked(checks)[0])
    again(checks, item, 6, conditions=[RESERVED, condition("Evicted")])
    again(checks, item, 7, conditions=[RESERVED, condition("Evicted", is_true=False)])
    assert asked(checks) == [KEY]


def test_nothing_is_dropped_that_was_never_held() -> None:
    checks = started(workload())
    checks.workload_gone(KEY)
    assert checks.take_dropped() == []


def test_lost_cells_send_the_workload_back_to_kueue() -> None:
    """Rule 32.12."""
    checks = started(workload(checks=(check_state(state="Ready"),)))
    checks.held(asked(checks)[0])
    checks.progressed({KEY: HoldState(2, 1, 1, 1, is_lost=True)})
    (write,) = checks.take_writes(0.0)
    assert (write.said.state, write.said.requeue_s) == ("Retry", 30)
    assert checks.take_dropped() == [KEY]


def test_every_loss_doubles_the_time_until_kueue_tries_again() -> None:
    """Rule 32.13."""
    checks = started(workload(checks=(check_state(retryCount=2),)))
    checks.held(asked(checks)[0])
    checks.progressed({KEY: HoldState(2, 2, 0, 0, is_lost=True)})
    (write,) = checks.take_writes(0.0)
    assert write.said.requeue_s == 120


def test_a_gang_whose_pods_all_have_cells_has_lost_nothing() -> None:
    checks = started(workload())
    checks.held(asked(checks)[0])
    checks.progressed({KEY: HoldState(2, 0, 2, 2, is_lost=True)})
    assert [state for _, state, _ in written(checks)] == ["Ready"]


@pytest.mark.parametrize("state", ["Retry", "Rejected"])
def test_nothing_is_written_over_a_state_that_kueue_has_to_see_first(state: str) -> None:
    checks = started(workload(checks=(check_state(state=state),)))
    checks.held(asked(checks)[0])
    assert written(checks, 100.0) == []


def test_a_ready_check_is_not_worded_anew() -> None:
    """Kueue has taken over the words for the pods by then, and refuses others."""
    checks = started(workload(checks=(check_state(state="Ready", message="cells are held"),)))
    checks.held(asked(checks)[0])
    assert written(checks, 100.0) == []


def test_a_waiting_message_is_written_anew_only_now_and_then() -> None:
    item = workload()
    checks = started(item)
    checks.refused(asked(checks)[0], "one", never=False)
    assert written(checks, MESSAGE_S) == [("job-train", "Pending", "waits for cells: one")]
    again(checks, item, 6, admissionChecks=[check_state(message="waits for cells: one")])
    checks.refused(asked(checks)[0], "two", never=False)
    assert written(checks, MESSAGE_S + 1) == []
    assert written(checks, 2 * MESSAGE_S) == [("job-train", "Pending", "waits for cells: two")]


def test_a_refused_write_is_tried_again_later_and_later() -> None:
    checks = started(workload("job-cpu"))
    (write,) = checks.take_writes(0.0)
    assert checks.take_writes(0.0) == []  # one at a time
    checks.wrote(write, 0.0, refused=True)
    assert checks.take_writes(FIRST_RETRY_S / 2) == []
    (write,) = checks.take_writes(FIRST_RETRY_S)
    checks.wrote(write, FIRST_RETRY_S, refused=True)
    assert checks.take_writes(2 * FIRST_RETRY_S) == []
    assert len(checks.take_writes(3 * FIRST_RETRY_S)) == 1


def test_an_older_version_that_the_watch_tells_late_changes_nothing() -> None:
    item = workload()
    checks = started(item)
    again(checks, item, 7, conditions=[RESERVED, condition("Evicted")])
    again(checks, item, 6, conditions=[RESERVED])
    assert asked(checks) == []


def test_cells_are_asked_for_by_priority_then_by_kueues_order() -> None:
    late = workload("job-late", conditions=(condition("QuotaReserved", at="2026-11-23T11:00:00Z"),))
    wanted = workload("job-wanted", priority=10, conditions=(condition("QuotaReserved", at="2026-11-23T12:00:00Z"),))
    checks = started(late, workload("job-early"), workload("job-spare"), workload("job-urgent"), wanted)
    names = [key.split("/")[2] for key in asked(checks)]
    assert names == ["job-urgent", "job-wanted", "job-early", "job-late", "job-spare"]


def test_places_are_counted_in_each_virtual_cluster() -> None:
    checks = started(workload("job-one"), workload("job-two-b"))
    for key in asked(checks):
        checks.refused(key, "full", never=False)
    assert {message for _, _, message in written(checks, MESSAGE_S)} == {"waits for cells: full"}


def test_opportunistic_pods_leave_for_the_first_guaranteed_gang_of_a_virtual_cluster_alone() -> None:
    checks = started(workload("job-one"), workload("job-two"))
    first, second = asked(checks)
    assert (checks.may_evict(first, 0.0), checks.may_evict(second, 0.0)) == (True, False)
    checks.evicts(first, 0.0, 2)
    assert not checks.may_evict(first, EVICTION_S / 2)
    assert checks.may_evict(first, EVICTION_S)
    assert ("job-one", "Pending") in {
        (name, state) for name, state, message in written(checks, 99.0) if "leave" in message
    }


def test_nobody_leaves_for_opportunistic_work() -> None:
    checks = started(workload("job-spare"))
    assert not checks.may_evict(asked(checks)[0], 0.0)


def test_another_term_asks_for_all_cells_again() -> None:
    item = workload(checks=(check_state(state="Ready"),))
    checks = started(item)
    checks.held(asked(checks)[0])
    checks.forget_holds()
    assert asked(checks) == [KEY]
    assert checks.take_dropped() == []


def test_a_started_job_whose_cells_another_leader_cannot_get_again_goes_back_to_kueue() -> None:
    checks = started(workload(checks=(check_state(state="Ready"),)))
    checks.refused(asked(checks)[0], "all nodes are in use", never=False)
    assert written(checks) == [("job-train", "Retry", "all nodes are in use")]


def test_a_job_whose_pods_all_run_is_not_asked_for_again() -> None:
    conditions = RESERVED, condition("Admitted"), condition("PodsReady")
    checks = started(workload(checks=(check_state(state="Ready"),), conditions=conditions))
    assert (asked(checks), written(checks)) == ([], [])


def test_another_configuration_reads_waiting_workloads_anew() -> None:
    needs: list[Gang | NoCells] = [read(workload_of(workload())), NoCells("no devices")]
    checks = Checks(lambda one: needs.pop(0))
    checks.checks_are([check_of(admission_check())])
    checks.workload_seen(workload_of(workload()))
    assert asked(checks) == [KEY]
    checks.read_anew()
    assert written(checks) == [("job-train", "Ready", "no devices")]


def test_only_our_checks_are_written() -> None:
    others = check_state("other", "Ready", "fine", podSetUpdates=[{"name": "main"}])
    one = workload_of(workload(checks=(others, check_state())))
    write = Write(one, (CHECK,), Said("Ready", "held", UPDATES))
    assert with_states(one.written, write, "2026-11-23T12:00:00Z") == [
        others,
        {
            "name": CHECK,
            "state": "Ready",
            "message": "held",
            "lastTransitionTime": "2026-11-23T12:00:00Z",
            "podSetUpdates": list(UPDATES),
        },
    ]


def test_the_time_of_a_state_moves_with_the_state_alone() -> None:
    one = workload_of(workload())
    (found,) = with_states(one.written, Write(one, (CHECK,), Said("Pending", "waits")), "2026-11-23T12:00:00Z")
    assert (found["lastTransitionTime"], found["message"]) == (AT, "waits")


def test_kueues_count_of_retries_stays() -> None:
    one = workload_of(workload(checks=(check_state(retryCount=4),)))
    said = Said("Retry", "lost", requeue_s=60)
    (found,) = with_states(one.written, Write(one, (CHECK,), said), "2026-11-23T12:00:00Z")
    assert (found["retryCount"], found["requeueAfterSeconds"]) == (4, 60)
