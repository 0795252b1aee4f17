"""The end of a job whose pods end or go is decided from the objects that are there."""

import pytest

from hived_jobs.policies import Action, Event, Phase, Policy, Reaction, Rules, TaskPod, decide, outcome

TASKS = {"ps-0": "ps", "worker-0": "worker", "worker-1": "worker"}


def pods(**changes: TaskPod | None) -> dict[str, TaskPod]:
    """All pods running, but for the changes (`worker_0` stands for worker-0)."""
    seen = {name: TaskPod(name, f"uid-{name}", "Running") for name in TASKS}
    for key, pod in changes.items():
        name = key.replace("_", "-")
        if pod is None:
            del seen[name]
        else:
            seen[name] = pod
    return seen


def failed(name: str, exit_code: int = 1) -> TaskPod:
    return TaskPod(name, f"uid-{name}", "Failed", exit_code)


def succeeded(name: str) -> TaskPod:
    return TaskPod(name, f"uid-{name}", "Succeeded")


LEAVING = TaskPod("worker-0", "uid", "Running", is_leaving=True)
DONE = {"worker_0": succeeded("worker-0"), "worker_1": succeeded("worker-1")}
ALL, WORKERS = tuple(TASKS), ("worker-0", "worker-1")


@pytest.mark.parametrize(
    ("policies", "seen", "expected"),
    [
        ([], pods(), None),
        ([Policy(Action.RESTART_JOB, (Event.POD_EVICTED,))], pods(), None),
        ([Policy(Action.RESTART_JOB, (Event.POD_EVICTED,))], pods(worker_0=None), (Action.RESTART_JOB, ALL)),
        ([Policy(Action.RESTART_JOB, (Event.POD_EVICTED,))], pods(worker_0=LEAVING), (Action.RESTART_JOB, ALL)),
        ([Policy(Action.RESTART_TASK, (Event.POD_EVICTED,))], pods(worker_1=None), (Action.RESTART_TASK, WORKERS)),
        ([Policy(Action.RESTART_JOB, (Event.POD_EVICTED,), "ps")], pods(worker_0=LEAVING), None),
        ([Policy(Action.RESTART_POD, (Event.ANY,))], pods(ps_0=failed("ps-0")), (Action.RESTART_POD, ("ps-0",))),
        ([Policy(Action.ABORT_JOB, (Event.TASK_FAILED,))], pods(ps_0=failed("ps-0")), (Action.ABORT_JOB, ALL)),
        ([Policy(Action.ABORT_JOB, exit_codes=(3, 3))], pods(ps_0=failed("ps-0", 4)), None),
        ([Policy(Action.ABORT_JOB, exit_codes=(3, 9))], pods(ps_0=failed("ps-0", 4)), (Action.ABORT_JOB, ALL)),
        ([Policy(Action.COMPLETE_JOB, (Event.TASK_COMPLETED,), "worker")], pods(**DONE), (Action.COMPLETE_JOB, ALL)),
        ([Policy(Action.COMPLETE_JOB, (Event.TASK_COMPLETED,), "ps")], pods(**DONE), None),
        (
            [Policy(Action.COMPLETE_JOB, (Event.TASK_COMPLETED,), "worker")],
            pods(worker_0=succeeded("worker-0")),
            None,
        ),
        (
            [Policy(Action.ABORT_JOB, (Event.POD_FAILED,)), Policy(Action.RESTART_TASK, (Event.POD_FAILED,), "ps")],
            pods(ps_0=failed("ps-0")),
            (Action.RESTART_TASK, ("ps-0",)),
        ),
    ],
)
def test_the_first_policy_that_fits_counts_those_of_a_task_first(policies, seen, expected):
    reaction = decide(Rules(tuple(policies)), TASKS, seen)
    assert (reaction and (reaction.action, reaction.names)) == expected
    assert reaction is None or reaction.counts


def test_pods_that_are_gone_are_made_again_though_no_policy_says_so():
    seen = pods(ps_0=None, worker_1=None)
    assert decide(Rules(), TASKS, seen) == Reaction(Action.RESTART_POD, ("ps-0", "worker-1"), "", counts=False)


def test_a_reason_names_what_happened():
    rules = Rules((Policy(Action.ABORT_JOB, (Event.POD_FAILED,)),))
    reaction = decide(rules, TASKS, pods(ps_0=failed("ps-0", 9)))
    assert reaction is not None
    assert reaction.reason == "PodFailed: ps-0 has failed with exit code 9"


@pytest.mark.parametrize(
    ("seen", "phase"),
    [
        (pods(**DONE), None),
        (pods(**DONE, ps_0=None), None),
        (pods(**DONE, ps_0=succeeded("ps-0")), Phase.COMPLETED),
        (pods(**DONE, ps_0=failed("ps-0")), Phase.FAILED),
    ],
)
def test_a_job_has_ended_when_all_its_pods_have(seen, phase):
    assert outcome(TASKS, seen) is phase
