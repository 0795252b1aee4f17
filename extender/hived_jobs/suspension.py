"""Holds and releases jobs that no queue has: by their own field, a command for their controller, or their record.

By the API server alone, with the rights of who asks (rule 34.3).
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from hived.values.errors import UserError
from hived_config.words import counted
from hived_extender.api.names import DEFAULT_NAMESPACE, is_full
from hived_extender.api.waiting import Job, PodCounts, When
from hived_extender.jobs import starts
from hived_extender.jobs.annotations import SCHEDULING_SPEC, pod_request
from hived_extender.jobs.job import JobState as ObjectState
from hived_extender.jobs.job import typed
from hived_extender.jobs.kinds import gangs, gates, marks, table
from hived_extender.jobs.kinds.kind import Kind, Verb, Write, path_of
from hived_extender.jobs.wire import Pod
from hived_extender.kube.client import KubeClient, KubeError, pod_path
from hived_extender.kube.clocks import wall_s
from hived_jobs.creation import delete_pods, resume_job
from hived_jobs.policies import Phase
from hived_jobs.records import KIND, JobPod, JobState, Record, as_seen, belongs, find_record, parse_record
from hived_jobs.schedules import cron_jobs
from hived_jobs.submission import JOB

SCALED = ("Deployment", "ReplicaSet", "StatefulSet", "LeaderWorkerSet")

_NOT_BY_QUEUE = {marks.HELD: None}
"""Without this mark the service leaves a suspended job alone; with it, it resumes one that no queue has."""

HELD, RELEASED = "held by hived hold", "released"

LATER = "it starts once --begin and --after let it; hived release {name} --now starts it at once"
"""Of a job that nobody holds, and that its author does not let start yet."""


def suspend(kube: KubeClient, job: Job) -> str:
    """Hold a job: no pod of it runs then, until it is released. Returns what was done, in words.

    Raises UserError for a job that cannot be held, with the reason, and KubeError.
    """
    record = _record_of(kube, job)
    return _switch(kube, job, is_on=True) if record is None else suspend_record(kube, record)


def check_may_hold(kube: KubeClient, job: Job) -> None:
    """Raise UserError for a job of a kind that cannot be held, with the reason; KubeError."""
    kind = table.find_kind(job.api_version, job.name.partition("/")[0])
    if (kind is None or kind.has_gates) and _record_of(kube, job) is None:
        raise UserError(_why_not(job), 409)


def resume(kube: KubeClient, job: Job, *, is_now: bool) -> str:
    """Release a job that was held, by us or by its owner. Returns what was done; raises as `suspend`.

    It starts once its author's words let it, or at once if it `is_now`.
    """
    record = _record_of(kube, job)
    if record is not None:
        return resume_record(kube, record, is_now=is_now)
    return _switch(kube, job, is_on=False, is_now=is_now)


def resume_record(kube: KubeClient, record: Record, *, is_now: bool) -> str:
    """The same of a job that `hived submit` made. Its pods may wait at their gates by its author's word."""
    later = LATER.format(name=typed(record.full_name, record.namespace))
    if not record.state.phase.is_resumable:
        if words := _words_of_pods(kube, pods_of(kube, record)):
            return _released(kube, words, later, is_now=is_now)
        return f"is not held: it is {record.state.phase.value.lower()}"
    made = resume_job(kube, record).pods
    told = f"released: {counted(len(made), 'pod')} created"
    if not any(starts.is_timed(pod["metadata"].get("annotations") or {}) for pod in made):
        return told
    if is_now:
        _patch(kube, _words_of_pods(kube, pods_of(kube, record)))
    return told if is_now else f"{told}; {later}"


def suspend_record(kube: KubeClient, record: Record) -> str:
    """Hold a job that `hived submit` made; as `suspend`."""
    state = record.state.phase
    if state is Phase.SUSPENDED:
        return "is held already"
    if state.is_final or state is Phase.CREATING:
        raise UserError(f"job {record.name} is {state.value.lower()}: only one that runs or waits can be held", 409)
    listed = _job_pods(kube, record)
    record = record.write(kube, JobState(Phase.SUSPENDED, HELD))  # first, so that nobody makes its pods again
    going = [as_seen(pod) for pod in listed]
    delete_pods(kube, record, [pod for pod in going if not pod.is_finished])
    return f"held: {counted(len(going), 'pod')} deleted, and hived release makes them anew"


def suspend_cron(kube: KubeClient, path: str, *, is_on: bool) -> str:
    """Suspend a CronJob, by its path, or let it go on: its runs do anyway. Returns what was done; raises KubeError."""
    made = kube.get(path)
    if bool(made["spec"].get("suspend")) == is_on:
        return "is held already" if is_on else "is not held"
    kube.patch(path, {"spec": {"suspend": is_on}})
    return f"held: it starts no more runs{_told_of_runs(kube, made['metadata'])}" if is_on else RELEASED


def _told_of_runs(kube: KubeClient, cron: Mapping[str, str]) -> str:
    """What becomes of the runs that a CronJob has made, if the caller may list them."""
    try:
        listed = kube.list_objects(f"/apis/batch/v1/namespaces/{quote(cron['namespace'], safe='')}/jobs", dict).items
    except KubeError:
        return "; runs that are there go on"  # it is held all the same
    runs = [table.read({"apiVersion": "batch/v1", "kind": "Job", **each}) for each in listed if _is_made_by(each, cron)]
    waiting = [run.ref.name for run in runs if run.state is ObjectState.HELD]
    running = sum(not run.state.is_over for run in runs) - len(waiting)
    told = f"; {counted(running, 'run')} {'goes' if running == 1 else 'go'} on" if running else ""
    if not waiting:
        return told
    verb = "waits" if len(waiting) == 1 else "wait"
    return f"{told}; {counted(len(waiting), 'run')} still {verb}, to be held by name: {', '.join(waiting)}"


def _is_made_by(document: Mapping[str, Any], owner: Mapping[str, str]) -> bool:
    return any(each.get("uid") == owner["uid"] for each in document["metadata"].get("ownerReferences") or ())


def unwatched_jobs(kube: KubeClient, namespace: str = "") -> list[Job]:
    """The jobs that the service does not watch: those that are suspended in their records, and CronJobs between runs.

    They are of a namespace, or of all for "", as far as the caller may read them.
    """
    found = list[Job]()
    for read in (held_records, cron_jobs):
        try:
            found += read(kube, namespace)
        except KubeError as error:
            if not error.status:  # it does not answer
                break
    return found


def held_records(kube: KubeClient, namespace: str = "") -> list[Job]:
    """Return the jobs that `hived submit` has made and that are suspended in their records, by name; no pods are there.

    They are of a namespace, or of all for "". Raises KubeError.
    """
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps" if namespace else "/api/v1/configmaps"
    found = []
    for each in kube.list_objects(path, dict, label_selector=KIND).items:
        with suppress(UserError):  # somebody has edited it
            record = parse_record(each)
            if record.state.phase is Phase.SUSPENDED:
                found.append(_row(record))
    return sorted(found, key=lambda job: job.name)


def _row(record: Record) -> Job:
    """Return a job that is suspended in its record as lists have it."""
    vc, priority, pod_count = record.wishes.virtual_cluster, record.wishes.priority, 0
    with suppress(UserError):  # its document has become unusable
        plan = record.plan()
        pod_count, first = len(plan.pods), plan.pods[0].manifest["metadata"]
        priority = plan.pods[0].priority if priority is None else priority
        vc = vc or plan.virtual_cluster
        if not vc and SCHEDULING_SPEC in (annotations := first.get("annotations", {})):
            vc = pod_request("", first["name"], record.namespace, annotations).spec.virtual_cluster
    why = f": {record.state.reason}" if record.state.reason else ""
    sentence = (
        f"it is suspended in its record{why}; hived release {typed(record.full_name, record.namespace)} starts it"
    )
    return Job(
        name=f"{record.kind}/{record.namespace}/{record.full_name}",
        state="Held",
        namespace=record.namespace,
        user=record.wishes.user,
        vc=vc or "",
        priority=priority or 0,
        cause="held",
        sentence=sentence,
        when=When(kind="unknown", because="it is held"),
        counts=PodCounts(wanted=pod_count),
    )


def pods_of(kube: KubeClient, record: Record) -> list[str]:
    """The pods of a job that `hived submit` made, `NAMESPACE/NAME`. Raises KubeError."""
    return [f"{record.namespace}/{pod.metadata.name}" for pod in _job_pods(kube, record)]


def _job_pods(kube: KubeClient, record: Record) -> list[JobPod]:
    path = f"/api/v1/namespaces/{record.namespace}/pods"
    listed = kube.list_objects(path, JobPod, label_selector=f"{JOB}={record.name}").items
    return [pod for pod in listed if belongs(pod, record)]


def _words_of_object(kube: KubeClient, job: Job, kind: Kind | None) -> Sequence[Write]:
    """The calls that remove its author's words from an object whose pods have gates, such as a Deployment; none from
    one that does not wait.
    """
    if kind is None or not kind.has_gates:
        return ()
    _, namespace, name = job.name.split("/")
    found = table.read(kube.get(path_of(job.api_version, kind.plural, namespace, name)))
    is_timed = found.state is ObjectState.HELD and starts.is_timed(found.annotations)
    return table.annotate(found.ref, starts.NO_WORDS) if is_timed else ()


def _words_of_pods(kube: KubeClient, pods: Sequence[str]) -> Sequence[Write]:
    """The same of pods, by `NAMESPACE/NAME`."""
    writes = []
    for each in pods:
        namespace, _, name = each.partition("/")
        pod = kube.get(pod_path(namespace, name), Pod)
        if starts.is_timed(pod.annotations) and gates.GATE in pod.gates:
            writes.append(gangs.annotate(namespace, name, pod.metadata.uid, starts.NO_WORDS))
    return writes


def _released(kube: KubeClient, words: Sequence[Write], later: str, *, is_now: bool) -> str:
    """Release a job that only its author's words hold, if it `is_now`: the service removes gates then."""
    if not is_now:
        return f"is not held: {later}"
    _patch(kube, words)
    return RELEASED


def _switch(kube: KubeClient, job: Job, *, is_on: bool, is_now: bool = False) -> str:
    """Suspend a job object, or resume it, by its kind's own means: a field, or a command for its controller."""
    kind_name, _, where = job.name.partition("/")
    kind = table.find_kind(job.api_version, kind_name)
    if kind is None or kind.has_gates:
        if not is_on and (words := _words_of_object(kube, job, kind) or _words_of_pods(kube, job.pods)):
            return _released(
                kube,
                words,
                LATER.format(name=typed(job.name.rpartition("/")[2], job.namespace or DEFAULT_NAMESPACE)),
                is_now=is_now,
            )
        if not is_on:
            raise UserError(
                f"{job.name} is not held, and hived holds none of its kind: there is nothing to release", 409
            )
        raise UserError(_why_not(job), 409)
    namespace, _, name = where.partition("/")
    document = kube.get(path_of(job.api_version, kind.plural, namespace, name))
    found = table.read(document)
    if found.labels.get(marks.KUEUE_QUEUE):
        raise UserError(f"{job.name} is in a queue of Kueue, which resumes it: set `active` of its Workload", 409)
    if found.state.is_over:
        raise UserError(f"{job.name} has {found.state.value}", 409)
    is_held = found.state in (ObjectState.HELD, ObjectState.LEAVING)
    may_resume = marks.is_marked_held(found.annotations)
    if is_on and is_held and may_resume:
        _patch(kube, table.annotate(found.ref, _NOT_BY_QUEUE))
        return "held: it does not start before it is released"
    if is_on == is_held:
        return "is held already" if is_on else "is not held"
    if not is_on and not is_now and starts.is_early(found.annotations, wall_s()):
        _patch(kube, () if may_resume else table.annotate(found.ref, {marks.HELD: "true"}))
        return f"{'is not held' if may_resume else RELEASED}: {LATER.format(name=typed(found.ref.name, namespace))}"
    if is_on and not kind.hold(document):  # or it raises UserError: its controller cannot suspend it
        raise UserError(f"{job.name} cannot be held: its controller does not suspend it as it is", 409)
    for write in table.suspend(found.ref, _NOT_BY_QUEUE) if is_on else table.resume(found.ref, starts.NO_WORDS):
        try:
            (kube.patch if write.verb is Verb.PATCH else kube.create)(write.path, write.body)
        except KubeError as error:
            if not (error.is_not_found and write.may_be_missing):
                raise
    return "held: its controller deletes its pods" if is_on else RELEASED


def _patch(kube: KubeClient, writes: Sequence[Write]) -> None:
    for write in writes:
        kube.patch(write.path, write.body)


def _why_not(job: Job) -> str:
    """Return why a job cannot be held, and what would do instead."""
    if not is_full(job.name) or job.name.startswith("podgroup/"):
        return (
            f"{job.name} cannot be held: it consists of pods, and Kubernetes suspends no pod that is there. To end it, "
            f"hived delete {job.name}"
        )
    kind, namespace, name = job.name.split("/")
    if kind in SCALED:
        return (
            f"{job.name} cannot be held: a {kind} has no field that suspends it. Scale it to 0 instead: kubectl -n "
            f"{namespace} scale {kind.lower()} {name} --replicas=0"
        )
    group = job.api_version.rpartition("/")[0]  # Volcano has a Job as well
    return (
        f"{job.name} cannot be held: hived knows no field that suspends a {f'{group} {kind}'.strip()}. To end it, "
        f"hived delete {job.name}"
    )


def _record_of(kube: KubeClient, job: Job) -> Record | None:
    """The record of a job that `hived submit` made; None for any other."""
    if job.api_version:
        return None
    for each in job.pods[:1]:
        namespace, _, name = each.partition("/")
        try:
            pod = kube.get(pod_path(namespace, name), JobPod)
        except KubeError as error:
            if not error.is_not_found:
                raise
            continue
        record = find_record(kube, namespace, (pod.metadata.labels or {}).get(JOB, ""))
        return record if record is not None and belongs(pod, record) else None
    return None
