"""Kubernetes' own workloads: batch/v1 Job, apps/v1 Deployment, and JobSet (jobset.x-k8s.io/v1alpha2).

None of them says that its pods start together: they do if the template carries a dialect's words for a gang.
"""

from collections.abc import Mapping
from dataclasses import replace

from hived_config.words import counted
from hived_jobs.documents import Document, Section
from hived_jobs.policies import Action, Event, Policy, Rules
from hived_jobs.submission import MAX_PODS, Job, PlannedJob, PlannedPod, Role, Submission, add_env, read_job, read_role

BACKOFF_LIMIT = 6
"""Kubernetes' default for a Job: how many failed pods are replaced."""

_INDEX = "batch.kubernetes.io/job-completion-index"
_JOBSET = "jobset.sigs.k8s.io/"
_JOB_UNUSED = {
    "activeDeadlineSeconds": "pods run until they end",
    "ttlSecondsAfterFinished": "finished pods stay until they are deleted",
    "podFailurePolicy": "every failed pod is replaced, as often as backoffLimit says",
    "backoffLimitPerIndex": "backoffLimit counts for the whole job",
    "maxFailedIndexes": "backoffLimit counts for the whole job",
    "successPolicy": "the job is complete when all its pods have succeeded",
    "podReplacementPolicy": "a pod is replaced when it is gone",
    "managedBy": "there is no controller to name",
}


def plan_plain_job(document: Document, submission: Submission) -> PlannedJob:
    """The pods of a batch/v1 Job. Raises UserError, with file, line and place."""
    job, spec = _begin(document, submission)
    spec.skip("selector", "manualSelector")
    is_suspended = spec.flag("suspend", False)
    role, parallelism, is_indexed = _read_job_spec(spec, "NonIndexed", job.name)
    pods = []
    for index in range(role.replicas):
        name = f"{job.name}-{index}"
        labels = {"batch.kubernetes.io/job-name": job.name, "job-name": job.name}
        pods.append(_job_pod(job, role, name, index, labels, is_indexed, name if is_indexed else ""))
    return job.planned(document, pods, rules=_replacing(spec), width=parallelism, is_suspended=is_suspended)


def plan_deployment(document: Document, submission: Submission) -> PlannedJob:
    """The pods of a Deployment. Raises UserError, with file, line and place."""
    job, spec = _begin(document, submission)
    spec.skip("selector")
    spec.warn_unused(
        strategy="a changed template is not rolled out",
        minReadySeconds="a changed template is not rolled out",
        progressDeadlineSeconds="a changed template is not rolled out",
        revisionHistoryLimit="there are no revisions",
        paused="a changed template is not rolled out",
    )
    role = read_role(spec, job.name)
    pods = [job.pod(role, f"{job.name}-{index}", {}) for index in range(role.replicas)]
    pods = [replace(pod, role=pod.name) for pod in pods]  # a task each: one is replaced though the others run on
    again = (Event.POD_FAILED, Event.TASK_COMPLETED)
    return job.planned(document, pods, rules=Rules((Policy(Action.RESTART_POD, again),)))


def plan_jobset(document: Document, submission: Submission) -> PlannedJob:
    """The pods of a JobSet. Raises UserError, with file, line and place."""
    job, spec = _begin(document, submission)
    spec.warn_unused(
        ttlSecondsAfterFinished="finished pods stay until they are deleted",
        startupPolicy="all jobs start at once",
        coordinator="its label is not written",
        managedBy="there is no controller to name",
    )
    is_suspended = spec.flag("suspend", False)
    network = spec.section("network")
    has_names = network.flag("enableDNSHostnames", True)
    subdomain = network.text("subdomain", job.name) if has_names else ""
    is_early = network.flag("publishNotReadyAddresses", True)
    failure = spec.section("failurePolicy")
    failure.warn_unused(
        rules="every failed pod restarts the set", restartStrategy="pods are made anew when all are gone"
    )
    max_restarts = failure.whole("maxRestarts", 0)
    pods, names, first = [], [], 0
    for one in spec.sections("replicatedJobs"):
        names.append(one.text("name"))
        one.warn_unused(groupName="its label is not written", dependsOn="all jobs start at once")
        count = one.whole("replicas", 1, maximum=MAX_PODS)
        one.section("template").section("metadata").skip()
        child = one.section("template").section("spec")
        child.skip("selector", "manualSelector", "suspend")
        role, parallelism, is_indexed = _read_job_spec(child, "Indexed", names[-1])
        child.warn_unused(backoffLimit="a failed pod counts for failurePolicy of the set")
        if parallelism < role.replicas:
            child.warn("parallelism", "not honoured: all pods of a set start at once")
        if count * role.replicas > MAX_PODS:
            jobs = f"{counted(count, 'job')} of {counted(role.replicas, 'pod')}"
            raise one.refuse("replicas", f"{jobs} {'is' if count == 1 else 'are'} more than {MAX_PODS:,} pods")
        for at in range(count):
            labels = {
                f"{_JOBSET}jobset-name": job.name,
                f"{_JOBSET}replicatedjob-name": names[-1],
                f"{_JOBSET}replicatedjob-replicas": str(count),
                f"{_JOBSET}job-index": str(at),
                f"{_JOBSET}job-global-index": str(first + at),
                f"{_JOBSET}restart-attempt": "0",
                "batch.kubernetes.io/job-name": f"{job.name}-{names[-1]}-{at}",
            }
            for index in range(role.replicas):
                name = f"{job.name}-{names[-1]}-{at}-{index}"
                host = name if has_names else ""
                pods.append(_job_pod(job, role, name, index, labels, is_indexed, host, subdomain))
        first += count
    if not names:
        raise spec.refuse("replicatedJobs", "missing; expected at least one job")
    restart = (Policy(Action.RESTART_JOB, (Event.POD_FAILED,)),)
    services = [job.headless_service(subdomain, {f"{_JOBSET}jobset-name": job.name}, is_early=is_early)]
    return job.planned(
        document,
        pods,
        objects=services if has_names else [],
        rules=Rules((*restart, *_success_policy(spec, names)), max_restarts),
        is_suspended=is_suspended,
    )


def _begin(document: Document, submission: Submission) -> tuple[Job, Section]:
    job = read_job(document.section(), submission)
    return job, job.root.section("spec")


def _success_policy(spec: Section, names: list[str]) -> tuple[Policy, ...]:
    """Return when a set is complete before all its pods have ended."""
    success = spec.section("successPolicy")
    operator, targets = success.text("operator", "All"), success.texts("targetReplicatedJobs")
    if operator not in ("All", "Any"):
        raise success.refuse("operator", f"found {operator!r}, expected All or Any")
    for target in targets:
        if target not in names:
            raise success.refuse("targetReplicatedJobs", f"no replicatedJob is named {target}")
    if operator == "All" and len(targets) > 1:
        success.warn("targetReplicatedJobs", "not honoured: the set is complete when all its pods have succeeded")
        return ()
    chosen = targets or (names if operator == "Any" else [])
    return tuple(Policy(Action.COMPLETE_JOB, (Event.TASK_COMPLETED,), task=name) for name in chosen)


def _read_job_spec(spec: Section, default_mode: str, name: str) -> tuple[Role, int, bool]:
    """(role with as many pods as completions, how many at a time, whether they are numbered)."""
    parallelism = spec.whole("parallelism", 1, maximum=MAX_PODS)
    completions = spec.whole("completions", parallelism, 1, MAX_PODS) if parallelism else 0
    mode = spec.text("completionMode", default_mode)
    if mode not in ("Indexed", "NonIndexed"):
        raise spec.refuse("completionMode", f"found {mode!r}, expected Indexed or NonIndexed")
    spec.warn_unused(**_JOB_UNUSED)
    role = read_role(spec, name, replicas=None)
    return replace(role, replicas=completions), parallelism, mode == "Indexed"


def _job_pod(
    job: Job,
    role: Role,
    name: str,
    index: int,
    labels: Mapping[str, str],
    is_indexed: bool,
    hostname: str = "",
    subdomain: str = "",
) -> PlannedPod:
    number = {_INDEX: str(index)} if is_indexed else {}
    pod = job.pod(role, name, {**labels, **number}, number, hostname, subdomain)
    if is_indexed:
        add_env(pod.manifest["spec"], {"JOB_COMPLETION_INDEX": index})
    return pod


def _replacing(spec: Section) -> Rules:
    return Rules((Policy(Action.RESTART_POD, (Event.POD_FAILED,)),), spec.whole("backoffLimit", BACKOFF_LIMIT))
