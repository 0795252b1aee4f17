"""Volcano's Job (batch.volcano.sh/v1alpha1): its tasks' pods, what its plugins add to them, and its policies."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hived_extender.pods.dialects import kueue
from hived_extender.pods.dialects.volcano import TIER
from hived_jobs.documents import Document, Section
from hived_jobs.policies import Action, Event, Policy, Rules
from hived_jobs.roles import Job, Role, gang_of, mount, read_job, read_role
from hived_jobs.submission import PlannedJob, PlannedPod, Submission
from hived_jobs.volcano_plugins import Plugins, read_plugins

MAX_RETRIES = 3
"""Volcano's default of maxRetry."""

_EVENTS = {event.value: event for event in Event}
_ACTIONS = {action.value: action for action in Action if action is not Action.CLEAN_UP}
_OTHER_EVENTS = ("PodPending", "PodRunning", "Unknown", "OutOfSync", "CommandIssued", "JobUpdated", "JobUnknown")
_OTHER_ACTIONS = ("RestartPartition", "ResumeJob", "SyncJob", "EnqueueJob", "SyncQueue", "OpenQueue", "CloseQueue")


def plan_volcano_job(document: Document, submission: Submission) -> PlannedJob:
    """The pods, task by task, as one gang with its tasks' minimums. Raises UserError, with file, line and place."""
    root = document.section()
    spec = root.section("spec")
    job = read_job(root, submission, (spec, "queue"))
    sections = spec.sections("tasks")
    roles = [read_role(one, one.text("name", f"default{index}")) for index, one in enumerate(sections)]
    if not roles:
        raise spec.refuse("tasks", "missing; expected at least one task")
    names = [role.name for role in roles]
    for one, name in zip(sections, names, strict=True):
        if names.count(name) > 1:
            raise one.refuse("name", f"several tasks are named {name}")
        one.warn_unused(
            topologyPolicy="NUMA nodes are not known to hived",
            maxRetry="the job's maxRetry counts",
            dependsOn="all tasks start together, as one gang",
            partitionPolicy="a task's pods are not divided further",
        )
    spec.warn_unused(
        ttlSecondsAfterFinished="finished pods stay until somebody deletes them",
        runningEstimate="pods run until they end",
        minSuccess="the job is complete when all its pods have succeeded, or a policy says so",
    )
    plugins = read_plugins(spec)
    policies = [policy for one, name in zip(sections, names, strict=True) for policy in _policies(one, name)]
    rules = Rules((*policies, *_policies(spec, "")), spec.whole("maxRetry", MAX_RETRIES))
    job = replace(
        job,
        priority_class=spec.text("priorityClassName", ""),
        scheduler=_scheduler(spec),
        annotations=_gang(job, spec, roles) | _topology_wish(spec),
    )
    volumes = _volumes(spec)
    pods = [_pod(job, spec, role, index, roles, plugins, volumes) for role in roles for index in range(role.replicas)]
    return job.planned(document, pods, objects=plugins.objects(job, roles), rules=rules)


def pod_name(job: Job, role: Role, index: int) -> str:
    """As Volcano names it."""
    return f"{job.name}-{role.name}-{index}"


def _pod(
    job: Job, spec: Section, role: Role, index: int, roles: Sequence[Role], plugins: Plugins, volumes: Mapping[str, str]
) -> PlannedPod:
    said = {"volcano.sh/job-name": job.name, "volcano.sh/task-spec": role.name, "volcano.sh/task-index": str(index)}
    labels = said | {"volcano.sh/job-namespace": job.namespace, "volcano.sh/queue-name": spec.text("queue", "default")}
    pod = job.pod(role, pod_name(job, role, index), labels, said)
    for path, claim in volumes.items():
        mount(pod.manifest["spec"], f"{claim}-volume", path, {"persistentVolumeClaim": {"claimName": claim}})
    plugins.complete(pod.manifest, job, role, index, roles)
    return pod


def _gang(job: Job, spec: Section, roles: Sequence[Role]) -> dict[str, str]:
    """Minimums of tasks count only where the job's own minimum is not below their sum."""
    written = {role.name: role.section.whole("minAvailable") for role in roles if "minAvailable" in role.section}
    for role in roles:
        role.section.skip("minAvailable")
        if written.get(role.name, 0) > role.replicas:
            message = f"found {written[role.name]}, but the task has {role.replicas} pods and would never start"
            raise role.section.refuse("minAvailable", message)
    by_task = {role.name: written.get(role.name, role.replicas) for role in roles}
    least = sum(by_task.values())
    minimum = spec.whole("minAvailable", least)
    counts = written and minimum >= least
    minimums = {name: count for name, count in by_task.items() if count} if counts else None
    return gang_of(job, roles, minimum, (spec, "minAvailable"), minimums)


def _scheduler(spec: Section) -> str:
    name = spec.text("schedulerName", "volcano")
    if name == "volcano" and "schedulerName" in spec:
        spec.warn("schedulerName", "volcano would not be hived; another scheduler takes its place")
    return name


def _topology_wish(spec: Section) -> dict[str, str]:
    """A tier is called volcano-tier-N, as the configuration's topologyLevels has it."""
    wish = spec.section("networkTopology")
    if "networkTopology" not in spec:
        return {}
    mode, tier = wish.text("mode", "hard"), wish.whole("highestTierAllowed", 1, 1)
    if mode not in ("hard", "soft"):
        raise wish.refuse("mode", f"found {mode!r}, expected hard or soft")
    return {kueue.REQUIRED if mode == "hard" else kueue.PREFERRED: TIER.format(tier)}


def _volumes(spec: Section) -> dict[str, str]:
    """The claims that every container mounts, by path."""
    volumes = {}
    for one in spec.sections("volumes"):
        if "volumeClaim" in one:
            one.warn("volumeClaim", "not honoured: create the claim yourself and name it as volumeClaimName")
        one.skip("volumeClaim")
        if "volumeClaimName" in one:
            volumes[one.text("mountPath")] = one.text("volumeClaimName")
    return volumes


def _policies(section: Section, task: str) -> list[Policy]:
    return [_policy(one, task) for one in section.sections("policies")]


def _policy(section: Section, task: str) -> Policy:
    """Volcano's words, all of them; those that nothing here acts on are refused: they would silently do nothing."""
    section.warn_unused(timeout="actions are taken at once")
    action = section.text("action")
    if action in _OTHER_ACTIONS:
        raise section.refuse("action", f"{action} is not acted on; expected {', '.join(_ACTIONS)}")
    if action not in _ACTIONS:
        raise section.refuse("action", f"found {action!r}, expected {', '.join(_ACTIONS)}")
    names = section.texts("events") + ([section.text("event")] if "event" in section else [])
    if "exitCode" in section:
        code = section.whole("exitCode", minimum=1, maximum=255)
        if names:
            raise section.refuse("exitCode", "event and exitCode exclude each other")
        return Policy(_ACTIONS[action], task=task, exit_codes=(code, code))
    if not names:
        raise section.refuse("", f"expected an event ({', '.join(_EVENTS)}) or an exitCode")
    key = "event" if "event" in section else "events"
    for name in names:
        if name in _OTHER_EVENTS:
            raise section.refuse(key, f"{name} is not acted on; expected {', '.join(_EVENTS)}")
        if name not in _EVENTS:
            raise section.refuse(key, f"found {name!r}, expected {', '.join(_EVENTS)}")
    return Policy(_ACTIONS[action], tuple(_EVENTS[name] for name in names), task)
