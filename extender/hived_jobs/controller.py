"""Carries out what `policies.py` decides, for all jobs of a cluster or for one: in the place of their controllers.

Several of them do each other no harm: each writes its next action into the job's record first, and a second write fails
as a conflict. All state is in the API server, so a controller that starts goes on where another one was stopped.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress

from msgspec.structs import replace

from hived.values.errors import UserError
from hived_config.words import counted
from hived_extender.kube.client import KubeClient, KubeError
from hived_jobs.creation import create_again, delete_pods, mark_done
from hived_jobs.policies import END_OF, Action, Phase, Reaction, TaskPod, decide, outcome
from hived_jobs.records import JobCache, JobState, Key, Record, find_record, read_pod
from hived_jobs.submission import PlannedJob

log = logging.getLogger(__name__)

RETRY_S = 1.0
"""After a failure of the API server."""

_JOIN_S = 2.0


class JobController:
    """Follows records and pods, from `start` to `stop`.

    Parameters
    ----------
    only : the jobs to look after; None for all of the cluster
    tell : called with one line about each action
    """

    def __init__(
        self, kube: KubeClient, only: Collection[Key] | None = None, tell: Callable[[str], None] = log.info
    ) -> None:
        self._kube = kube
        self._only = only
        self._tell = tell
        self._cache = JobCache(kube, {namespace for namespace, _ in only or ()})
        self._plans: dict[Key, tuple[str, PlannedJob]] = {}
        self._has_stopped = threading.Event()
        self._worker = threading.Thread(target=self._run, name="jobs", daemon=True)

    def start(self) -> None:
        """Begin to look after the jobs."""
        self._cache.start()
        self._worker.start()

    def stop(self) -> None:
        """Do nothing more, and wait for what is under way."""
        self._has_stopped.set()
        self._cache.stop()
        if self._worker.ident is not None:
            self._worker.join(_JOIN_S)
        self._cache.join()

    def __enter__(self) -> "JobController":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_ended(self, key: Key, timeout_s: float | None = None) -> Phase | None:
        """Wait until a job is over and return its phase; None if it was deleted, or at a stop.

        The job was created before `start`: a later one counts as deleted until the watch reports it.
        """
        self._cache.wait(lambda: self._is_over(key), timeout_s)
        record = self._cache.record(key)
        return record.state.phase if record is not None and record.state.phase.is_final else None

    def _is_over(self, key: Key) -> bool:
        record = self._cache.record(key)
        return self._cache.is_gone(key) if record is None else record.state.phase.is_final

    def _run(self) -> None:
        while (keys := self._cache.take_due()) is not None:
            failed = [key for key in keys if not self._look_after(key)]
            if failed:
                self._has_stopped.wait(RETRY_S)
                self._cache.put_back(failed)

    def _look_after(self, key: Key) -> bool:
        """Do what a job needs; False to try again."""
        record, ended = self._cache.record(key), self._cache.take_ended(key)
        try:
            if ended is not None:
                self._remove_what_is_left(ended)
            if record is not None and (self._only is None or key in self._only):
                self._step(record)
        except UserError as error:
            log.error("job %s/%s cannot be looked after: %s", *key, error)
        except KubeError as error:
            if error.is_conflict:
                return True  # somebody else was faster: what they wrote comes by the watch
            log.warning("job %s/%s: %s; trying again", *key, error)
            if ended is not None:
                self._cache.put_ended(ended)
            return False
        except Exception:  # a bug in one job's plan must not leave all others without care
            log.exception("job %s/%s cannot be looked after", *key)
        return True

    def _step(self, record: Record) -> None:
        seen, state = self._cache.pods(record), record.state
        if state.phase is Phase.RESTARTING:
            self._go_on_restarting(record, seen)
        elif state.phase in (Phase.PENDING, Phase.RUNNING):
            tasks = self._tasks_due(record, seen)
            self._forget_stale_absences(record, tasks, seen)
            rules = self._plan(record).rules
            reaction = decide(rules, tasks, seen, state.pod_retries)
            if reaction is not None:
                self._react(record, reaction, seen)
            elif (end := outcome(rules, self._tasks(record), seen)) is not None:
                self._end(record, end, "", seen, removes=False)
            elif (now := _phase_of(seen.values())) is not state.phase:
                self._write(record, replace(state, phase=now))
        elif state.phase.is_final:
            delete_pods(self._kube, record, [pod for pod in seen.values() if not pod.is_finished])

    def _react(self, record: Record, reaction: Reaction, seen: dict[str, TaskPod]) -> None:
        policy = reaction.policy
        if policy is None:
            return self._create(record, reaction.names)
        if reaction.action in END_OF:
            return self._end(record, END_OF[reaction.action], reaction.reason, seen, reaction.action)
        limit = None if policy.is_free else self._plan(record).rules.max_retries
        if limit is not None and record.state.retries >= limit:
            reason = f"{reaction.reason}, and its pods have been started again {counted(limit, 'time')} already"
            return self._end(record, Phase.FAILED, reason, seen)
        going = {name: seen[name].uid if name in seen else "" for name in reaction.names}
        before = record.state
        state = JobState(
            Phase.RESTARTING, reaction.reason, before.retries + (not policy.is_free), going, _retried(before, reaction)
        )
        record = self._write(record, state)
        count = "" if policy.is_free else f" ({state.retries})"
        self._tell(f"job {record.full_name}: {reaction.reason}: {reaction.action.value}{count}")
        self._go_on_restarting(record, seen)

    def _go_on_restarting(self, record: Record, seen: dict[str, TaskPod]) -> None:
        going = record.state.going
        self._forget_stale_absences(record, going, seen)
        old = [pod for pod in seen.values() if going.get(pod.name) == pod.uid]
        if old:
            return delete_pods(self._kube, record, old)
        due = self._tasks_due(record, {name: pod for name, pod in seen.items() if name not in going})
        self._create(record, [name for name in going if name in due])
        self._write(record, replace(record.state, phase=Phase.PENDING, going={}))

    def _end(
        self,
        record: Record,
        phase: Phase,
        reason: str,
        seen: Mapping[str, TaskPod],
        action: Action | None = None,
        removes: bool = True,
    ) -> None:
        record = self._write(record, replace(record.state, phase=phase, reason=reason, going={}))
        self._tell(f"job {record.full_name}: {reason + ': ' if reason else ''}{phase.value}")
        if removes:
            left = [pod for pod in seen.values() if action is Action.CLEAN_UP or not pod.is_finished]
            if phase is Phase.COMPLETED:
                mark_done(self._kube, record, left)
            delete_pods(self._kube, record, left)

    def _create(self, record: Record, names: Iterable[str]) -> None:
        """Create pods anew, unless the job was held or aborted a moment ago, which comes by the watch."""
        now = find_record(self._kube, record.namespace, record.name)
        if now is None or (now.uid, now.state.phase) != (record.uid, record.state.phase):
            return
        by_name = {pod.name: pod for pod in self._plan(record).pods}
        create_again(self._kube, record, [by_name[name] for name in names if name in by_name])

    def _remove_what_is_left(self, record: Record) -> None:
        """The pods of a record that was deleted: a real API server collects them itself, which does no harm."""
        found = self._cache.pods(record)
        with suppress(UserError):  # what cannot be planned has not been created either
            for planned in self._plan(record).pods:  # the watch may be behind
                pod = None if planned.name in found else read_pod(self._kube, record, planned.name)
                if pod is not None:
                    found[planned.name] = pod
        self._plans.pop((record.namespace, record.name), None)
        left = list(found.values())
        delete_pods(self._kube, record, left)
        if left:
            are = "is" if len(left) == 1 else "are"
            self._tell(f"job {record.full_name} was deleted: {counted(len(left), 'pod')} {are} deleted with it")

    def _write(self, record: Record, state: JobState) -> Record:
        written = record.write(self._kube, state)
        self._cache.take(written)
        return written

    def _plan(self, record: Record) -> PlannedJob:
        key = (record.namespace, record.name)
        known = self._plans.get(key)
        if known is None or known[0] != record.uid:
            known = self._plans[key] = (record.uid, record.plan())
        return known[1]

    def _tasks(self, record: Record) -> dict[str, str]:
        return {pod.name: pod.role for pod in self._plan(record).pods}

    def _tasks_due(self, record: Record, seen: Mapping[str, TaskPod]) -> dict[str, str]:
        """The pods that shall be there now, with their tasks: all, or the first so that `width` are unfinished."""
        plan, due, unfinished = self._plan(record), dict[str, str](), 0
        for pod in plan.pods:
            if plan.width is not None and unfinished >= plan.width:
                break
            due[pod.name] = pod.role
            unfinished += pod.name not in seen or not seen[pod.name].is_finished
        return due

    def _forget_stale_absences(self, record: Record, names: Iterable[str], seen: dict[str, TaskPod]) -> None:
        """Ask for pods that the watch does not know: it may be behind, and an absence may restart a whole job."""
        if not self._plan(record).rules.policies:
            return
        for name in names:
            if name not in seen:
                pod = read_pod(self._kube, record, name)
                if pod is not None:
                    seen[name] = pod


def _retried(state: JobState, reaction: Reaction) -> dict[str, int]:
    """Return how often each pod was started again by a policy with a limit; a restart of the job begins anew."""
    if reaction.action is Action.RESTART_JOB:
        return {}
    if reaction.policy is None or reaction.policy.most is None:
        return state.pod_retries
    return state.pod_retries | {name: state.pod_retries.get(name, 0) + 1 for name in reaction.names}


def _phase_of(pods: Iterable[TaskPod]) -> Phase:
    """The phase of a job that has not ended."""
    return Phase.RUNNING if any(pod.has_started for pod in pods) else Phase.PENDING
