"""Rules for the end or loss of a job's pods: events, actions, and the policies that join them. Pure.

The words are Volcano's, the only kind of job whose users write such policies; other kinds' controllers are described in
the same words, and in a few more.

Decisions follow from what is there, not from what happened, so a controller can stop and start at any
moment: every action removes its cause, or ends the job.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from hived_config.words import counted


class Event(Enum):
    """The events of policies. TASK_FAILED is a pod of the task that failed, as nothing here restarts containers.

    POD_SUCCEEDED is no word of Volcano's, and ANY does not mean it.
    """

    ANY = "*"
    POD_FAILED = "PodFailed"
    POD_EVICTED = "PodEvicted"
    TASK_COMPLETED = "TaskCompleted"
    TASK_FAILED = "TaskFailed"
    POD_SUCCEEDED = "PodSucceeded"


class Action(Enum):
    """The actions of policies. The last five end the job; unfinished pods are deleted, with CLEAN_UP all of them.

    CLEAN_UP and FAIL_JOB are no words of Volcano's.
    """

    RESTART_JOB = "RestartJob"
    RESTART_TASK = "RestartTask"
    RESTART_POD = "RestartPod"
    COMPLETE_JOB = "CompleteJob"
    CLEAN_UP = "CleanUp"
    ABORT_JOB = "AbortJob"
    TERMINATE_JOB = "TerminateJob"
    FAIL_JOB = "FailJob"


class Phase(Enum):
    """The phase of a job. PENDING: no pod of it has started. One that is SUSPENDED or ABORTED can be resumed."""

    CREATING = "Creating"
    SUSPENDED = "Suspended"
    PENDING = "Pending"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    COMPLETED = "Completed"
    FAILED = "Failed"
    ABORTED = "Aborted"
    TERMINATED = "Terminated"

    @property
    def is_resumable(self) -> bool:
        """True if `hived resume` starts it."""
        return self in (Phase.SUSPENDED, Phase.ABORTED)

    @property
    def is_final(self) -> bool:
        """True if nothing is done for its pods any more."""
        return self in (Phase.COMPLETED, Phase.FAILED, Phase.ABORTED, Phase.TERMINATED)


END_OF = {
    Action.COMPLETE_JOB: Phase.COMPLETED,
    Action.CLEAN_UP: Phase.COMPLETED,
    Action.ABORT_JOB: Phase.ABORTED,
    Action.TERMINATE_JOB: Phase.TERMINATED,
    Action.FAIL_JOB: Phase.FAILED,
}
"""The phase that an action ends the job in."""


@dataclass(frozen=True, slots=True)
class Policy:
    """An action for events of one task ("" for all), or for a pod that failed with an exit code from a range.

    Attributes
    ----------
    at_least : so many events are needed
    most : it is for no pod that it has started again so often; None for any
    is_free : pods that it starts again do not count as retries of the job
    """

    action: Action
    events: tuple[Event, ...] = ()
    task: str = ""
    exit_codes: tuple[int, int] | None = None
    at_least: int = 1
    most: int | None = None
    is_free: bool = False

    def fits(self, event: Event, task: str, exit_code: int, retries: int = 0) -> bool:
        """True if it is for this event of a pod that was started again so often."""
        if self.task not in ("", task) or (self.most is not None and retries >= self.most):
            return False
        if self.exit_codes is not None:
            return event is Event.POD_FAILED and self.exit_codes[0] <= exit_code <= self.exit_codes[1]
        return event in self.events or (Event.ANY in self.events and event is not Event.POD_SUCCEEDED)

    def __str__(self) -> str:
        code = self.exit_codes
        what = ", ".join(event.value for event in self.events)
        if code is not None:
            what = f"exit code {code[0]}" + (f"-{code[1]}" if code[1] > code[0] else "")
        count = f"{self.at_least} x " if self.at_least > 1 else ""
        most = "" if self.most is None else f" ({counted(self.most, 'time')})"
        return f"{count}{what}{' of ' + self.task if self.task else ''} -> {self.action.value}{most}"


@dataclass(frozen=True, slots=True)
class Rules:
    """The policies of a job; the first that fits counts, policies of a task before the job's.

    `max_retries` limits how often the job's policies start pods again; None for any number of times. A job whose
    policies alone say when it has failed `ends_well` once all of its pods have ended.
    """

    policies: tuple[Policy, ...] = ()
    max_retries: int | None = None
    ends_well: bool = False


NO_RULES = Rules()


@dataclass(frozen=True, slots=True)
class TaskPod:
    """A pod of the job as it is now."""

    name: str
    uid: str
    phase: str = "Pending"
    exit_code: int = 0
    is_leaving: bool = False

    @property
    def has_started(self) -> bool:
        """True once its containers run, or have run."""
        return self.phase not in ("Pending", "")

    @property
    def is_finished(self) -> bool:
        """True if all its containers have ended."""
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Reaction:
    """An action, the names of the pods that it is for, the reason, and the policy that asks for it.

    Without a policy pods that are gone are made again, as every controller does.
    """

    action: Action
    names: tuple[str, ...]
    reason: str = ""
    policy: Policy | None = None


NO_RETRIES: Mapping[str, int] = {}


def decide(
    rules: Rules, tasks: Mapping[str, str], seen: Mapping[str, TaskPod], retries: Mapping[str, int] = NO_RETRIES
) -> Reaction | None:
    """The reaction that a running job needs; None if none.

    `tasks` has the task of every pod, by name, that shall be there; `seen` the pods that are; `retries` how often a pod
    was started again by a policy that limits that.
    """
    policies = sorted(rules.policies, key=lambda policy: not policy.task)
    counts: Counter[Policy] = Counter()
    for event, name, task in _events(tasks, seen):
        exit_code = seen[name].exit_code if name in seen else 0
        policy = next((one for one in policies if one.fits(event, task, exit_code, retries.get(name, 0))), None)
        if policy is None:
            continue
        counts[policy] += 1
        if counts[policy] >= policy.at_least:
            reason = _reason(event, name, task, exit_code)
            return Reaction(policy.action, _targets(policy.action, name, tasks), reason, policy)
    missing = tuple(name for name in tasks if name not in seen)
    return Reaction(Action.RESTART_POD, missing) if missing else None


def outcome(rules: Rules, tasks: Mapping[str, str], seen: Mapping[str, TaskPod]) -> Phase | None:
    """Return the phase of a job all of whose pods have ended; None while one has not."""
    pods = [seen.get(name) for name in tasks]
    if not all(pod is not None and pod.is_finished for pod in pods):
        return None
    has_failed = not rules.ends_well and any(pod is not None and pod.phase == "Failed" for pod in pods)
    return Phase.FAILED if has_failed else Phase.COMPLETED


def _events(tasks: Mapping[str, str], seen: Mapping[str, TaskPod]) -> Iterator[tuple[Event, str, str]]:
    """(event, pod, task) for everything that is the matter."""
    for name, task in tasks.items():
        pod = seen.get(name)
        if pod is None or (pod.is_leaving and not pod.is_finished):
            yield Event.POD_EVICTED, name, task
        elif pod.phase == "Failed":
            yield Event.POD_FAILED, name, task
            yield Event.TASK_FAILED, name, task
        elif pod.phase == "Succeeded":
            yield Event.POD_SUCCEEDED, name, task
    for task in dict.fromkeys(tasks.values()):
        names = [name for name, its_task in tasks.items() if its_task == task]
        if all(name in seen and seen[name].phase == "Succeeded" for name in names):
            yield Event.TASK_COMPLETED, names[0], task


def _targets(action: Action, name: str, tasks: Mapping[str, str]) -> tuple[str, ...]:
    if action is Action.RESTART_POD:
        return (name,)
    if action is Action.RESTART_TASK:
        return tuple(other for other, task in tasks.items() if task == tasks[name])
    return tuple(tasks)


def _reason(event: Event, name: str, task: str, exit_code: int) -> str:
    if event is Event.TASK_COMPLETED:
        return f"{event.value}: every pod of {task} has succeeded"
    if event is Event.POD_EVICTED:
        return f"{event.value}: {name} is gone"
    if event is Event.POD_SUCCEEDED:
        return f"{event.value}: {name} has succeeded"
    return f"{event.value}: {name} has failed with exit code {exit_code}"


def summary(policies: Sequence[Policy]) -> str:
    """The policies as one line; "" if there are none."""
    return "; ".join(map(str, policies))
