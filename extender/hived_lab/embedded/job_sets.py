"""JobSet's controller as a function: from a JobSet and its Jobs to what it needs now, and its status.

A restart begins with a greater `status.restarts`: Jobs with a smaller label of that kind are of a run before, and are
deleted. New ones of their names come when these are gone with all their pods. Services, claims of volumes and exclusive
placement are not played.
"""

import hashlib
from collections.abc import Iterable, Mapping

from hived_lab.embedded.apiserver.bodies import Body
from hived_lab.embedded.apiserver.kinds import turn_condition
from hived_lab.embedded.apiserver.models import View
from hived_lab.embedded.apiserver.store import Revision
from hived_lab.embedded.batch_jobs import Step, condition, is_over, number

CONTROLLER = "jobset.sigs.k8s.io/jobset-controller"
_PREFIX = "jobset.sigs.k8s.io/"
_ROLE, _RESTARTS = f"{_PREFIX}replicatedjob-name", f"{_PREFIX}restart-attempt"
_RESTART: str = "RestartJobSet"
_METADATA = ("labels", "annotations")


def next_step(job_set: Revision, jobs: Iterable[Revision], _memory: None, **_clocks: float) -> Step:
    """Return what a JobSet needs that has these Jobs."""
    return _Look(job_set, [job.body for job in jobs]).step()


class _Look:
    """One look at a JobSet."""

    def __init__(self, job_set: Revision, jobs: Iterable[Body]) -> None:
        self._job_set = job_set.body
        self._spec = job_set.view.spec
        self._step = Step({"restarts": 0, **job_set.body.get("status", {})})
        self._restarts: int = self._step.status["restarts"]
        runs = [(number(_labels(job).get(_RESTARTS, "")), job) for job in jobs]
        present = [job for run, job in runs if run is not None and run >= self._restarts]
        self._previous = [job for run, job in runs if run is not None and run < self._restarts]
        self._names = {job["metadata"]["name"] for _, job in runs}
        self._active = [job for job in present if not is_over(job)]
        self._failed = [job for job in present if condition(job.get("status", {}), "Failed")]
        self._succeeded = [job for job in present if condition(job.get("status", {}), "Complete")]
        self._counts = {role.name: self._count(role.name) for role in self._spec.replicated_jobs}

    def step(self) -> Step:
        self._step.status["replicatedJobsStatus"] = list(self._counts.values())
        if is_over(self._job_set):
            self._step.deleted = self._active
            return self._step
        self._step.deleted = self._previous
        if self._failed:
            self._fail()
        elif self._is_complete():
            self._end("Completed", "AllJobsCompleted", "enough of its Jobs have succeeded")
        else:
            self._start()
        return self._step

    def _count(self, name: str) -> Body:
        active = _of_role(self._active, name)
        return {
            "name": name,
            "ready": sum(_is_ready(job) for job in active),
            "succeeded": len(_of_role(self._succeeded, name)),
            "failed": len(_of_role(self._failed, name)),
            "active": sum(job.get("status", {}).get("active", 0) > 0 for job in active),
            "suspended": sum(job["spec"]["suspend"] for job in active),
        }

    # -- the end of a JobSet ---------------------------------------------------------------------

    def _fail(self) -> None:
        """Fail or restart, as the first rule says that fits a failed Job."""
        policy = self._spec.failure_policy
        action, fitting = _RESTART, self._failed
        for rule in policy.rules if policy is not None else ():
            if found := [job for job in self._failed if _fits(rule, job)]:
                action, fitting = rule.action, found
                break
        first = min(fitting, key=lambda job: str(_failure(job)["lastTransitionTime"]))["metadata"]["name"]
        counted = self._step.status.get("restartsCountTowardsMax", 0)
        if policy is None:
            self._end("Failed", "FailedJobs", f"Job {first} has failed")
        elif action == "FailJobSet":
            self._end("Failed", "FailJobSetFailurePolicyAction", f"a rule ends it, since Job {first} has failed")
        elif action == _RESTART and counted >= policy.max_restarts:
            self._end("Failed", "ReachedMaxRestarts", f"no restart is left, and Job {first} has failed")
        else:
            self._step.status["restarts"] += 1
            if action == _RESTART:
                self._step.status["restartsCountTowardsMax"] = counted + 1

    def _is_complete(self) -> bool:
        policy, roles = self._spec.success_policy, self._spec.replicated_jobs
        chosen = [role for role in roles if role.name in (policy.target_replicated_jobs or self._counts)]
        done = sum(self._counts[role.name]["succeeded"] for role in chosen)
        wanted = 1 if policy.operator == "Any" else sum(role.replicas for role in chosen)
        return bool(self._succeeded) and done >= wanted

    def _end(self, kind: str, reason: str, message: str) -> None:
        self._tell(kind, "True", reason, message)
        self._step.status["terminalState"] = kind

    def _tell(self, kind: str, value: str, reason: str, message: str) -> None:
        self._step.status = turn_condition(self._step.status, kind, value, reason, message)

    # -- its Jobs --------------------------------------------------------------------------------

    def _start(self) -> None:
        """Make the Jobs whose turn it is, and resume or suspend those that are there."""
        is_in_order = self._spec.startup_policy.startup_policy_order == "InOrder"
        for at, role in enumerate(self._spec.replicated_jobs):
            if all(self._has_come(each.name, each.status == "Ready") for each in role.depends_on):
                template = self._job_set["spec"]["replicatedJobs"][at]["template"]
                self._make(role, template)
                if not self._spec.suspend:
                    self._resume(role, template.get("spec", {}).get("template", {}))
                    if is_in_order and not self._has_come(role.name, is_ready_enough=True):
                        self._tell_startup("InProgress", "Completed")
                        return
        if self._spec.suspend:
            running = [job for job in self._active if not job["spec"]["suspend"]]
            self._step.changed = [{**job, "spec": {**job["spec"], "suspend": True}} for job in running]
            self._tell("Suspended", "True", "SuspendedJobs", "its Jobs are suspended")
            return
        if is_in_order:
            self._tell_startup("Completed", "InProgress")
        self._tell("Suspended", "False", "ResumeJobs", "its Jobs are resumed")

    def _tell_startup(self, now: str, before: str) -> None:
        reason = f"InOrderStartupPolicy{now}"
        for one in self._step.status.get("conditions", ()):
            if one["type"] == f"StartupPolicy{before}":
                self._tell(one["type"], "False", one["reason"], one["message"])
        self._tell(f"StartupPolicy{now}", "True", reason, "replicated jobs start one after another")

    def _has_come(self, name: str, is_ready_enough: bool) -> bool:
        """True if all Jobs of a replicated job have succeeded, or at least started."""
        if name not in self._counts:
            return False
        counts = self._counts[name]
        started = counts["ready"] + counts["failed"] if is_ready_enough else 0
        wanted = next(role.replicas for role in self._spec.replicated_jobs if role.name == name)
        return bool(counts["succeeded"] + started == wanted)

    def _make(self, role: View, template: Body) -> None:
        policy = self._spec.failure_policy
        if self._previous and policy is not None and policy.restart_strategy == "BlockingRecreate":
            return
        for index in range(role.replicas):
            name = f"{self._job_set['metadata']['name']}-{role.name}-{index}"
            if name not in self._names:
                self._step.made.append(self._job(role, template, name, self._marks(role, index, name)))

    def _resume(self, role: View, template: Body) -> None:
        for job in _of_role(self._active, role.name):
            if job["spec"]["suspend"]:
                merged = _merged(job["spec"]["template"], template)
                self._step.changed.append({**job, "spec": {**job["spec"], "template": merged, "suspend": False}})

    def _job(self, role: View, template: Body, name: str, marks: Mapping[str, str]) -> Body:
        own, child = self._job_set["metadata"], template.get("spec", {})
        pods = child.get("template", {})
        pod_spec = {"restartPolicy": "OnFailure", **pods.get("spec", {})}
        if self._spec.network.enable_dns_hostnames:
            pod_spec["subdomain"] = self._spec.network.subdomain or own["name"]
        owner = {"apiVersion": self._job_set["apiVersion"], "kind": "JobSet", "name": own["name"], "uid": own["uid"]}
        metadata = _marked(template.get("metadata", {}), marks) | {"name": name, "namespace": own["namespace"]}
        metadata["ownerReferences"] = [{**owner, "controller": True, "blockOwnerDeletion": True}]
        made = {"metadata": _marked(pods.get("metadata", {}), marks), "spec": pod_spec}
        suspend = self._spec.suspend
        return {
            "metadata": metadata,
            "spec": {"completionMode": "Indexed", **child, "template": made, "suspend": suspend},
        }

    def _marks(self, role: View, index: int, name: str) -> dict[str, str]:
        """The labels of a Job and its pods, which are annotations as well."""
        own, roles = self._job_set["metadata"], self._spec.replicated_jobs
        before = roles[: roles.index(role)]
        group = role.group_name
        marks = {
            "jobset-name": own["name"],
            "jobset-uid": own["uid"],
            "replicatedjob-name": role.name,
            "restart-attempt": self._restarts,
            "replicatedjob-replicas": role.replicas,
            "global-replicas": sum(each.replicas for each in roles),
            "job-index": index,
            "job-key": hashlib.sha1(f"{own['namespace']}/{name}".encode(), usedforsecurity=False).hexdigest(),
            "job-global-index": sum(each.replicas for each in before) + index,
            "group-name": group,
            "group-replicas": sum(each.replicas for each in roles if each.group_name == group),
            "job-group-index": sum(each.replicas for each in before if each.group_name == group) + index,
        }
        return {f"{_PREFIX}{key}": str(value) for key, value in marks.items()}


def _labels(job: Body) -> Mapping[str, str]:
    labels: Mapping[str, str] = job["metadata"].get("labels", {})
    return labels


def _of_role(jobs: Iterable[Body], name: str) -> list[Body]:
    return [job for job in jobs if _labels(job).get(_ROLE) == name]


def _is_ready(job: Body) -> bool:
    spec, status = job["spec"], job.get("status", {})
    wanted = min(spec["parallelism"], spec.get("completions", spec["parallelism"]))
    return bool(status.get("succeeded", 0) + status.get("ready", 0) >= wanted)


def _failure(job: Body) -> Body:
    return condition(job.get("status", {}), "Failed") or {}


def _fits(rule: View, job: Body) -> bool:
    """True if a rule is for this failure; a rule that asks for a message is for none."""
    reasons, targets = rule.on_job_failure_reasons, rule.target_replicated_jobs
    return (
        not rule.on_job_failure_message_patterns
        and (not reasons or _failure(job)["reason"] in reasons)
        and (not targets or _labels(job).get(_ROLE) in targets)
    )


def _marked(metadata: Body, marks: Mapping[str, str]) -> Body:
    return {key: {**metadata.get(key, {}), **marks} for key in _METADATA}


def _merged(own: Body, wanted: Body) -> Body:
    """The template of a Job with what its JobSet says by now of its pods, where that may change."""
    metadata, told = own.get("metadata", {}), wanted.get("metadata", {})
    metadata = {**metadata, **{key: {**metadata.get(key, {}), **told[key]} for key in _METADATA if key in told}}
    spec, said = dict(own["spec"]), wanted.get("spec", {})
    if "nodeSelector" in said:
        spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **said["nodeSelector"]}
    for key in ("tolerations", "schedulingGates"):
        if key in said:
            known = spec.get(key, [])
            spec[key] = known + [each for each in said[key] if each not in known]
    return {**own, "metadata": metadata, "spec": spec}
