"""KubeRay's RayCluster and RayJob (ray.io/v1): `spec.suspend`.

KubeRay suspends a RayJob only if it has a cluster of its own, which goes with it (`shutdownAfterJobFinishes`).
"""

from collections.abc import Mapping
from dataclasses import replace

from hived.values.errors import UserError
from hived_extender.jobs.document import Part
from hived_extender.jobs.job import Document, Job, JobState, Role
from hived_extender.jobs.kinds.kind import Patch, Source, Switch, job_of, kind_with, role_of, root_of
from hived_extender.jobs.wire import Owner

_QUIET = ("", "suspended")


def roles_of(cluster: Part) -> list[Role]:
    """The head, and hosts x replicas of each worker group; under autoscaling as many as the group has at first."""
    roles = [role_of(cluster.part("headGroupSpec"), "head", 1)] if "headGroupSpec" in cluster else []
    for number, group in enumerate(cluster.parts("workerGroupSpecs")):
        least = group.whole("minReplicas", 0)
        replicas = min(max(group.whole("replicas", least), least), group.whole("maxReplicas", 2**31 - 1))
        count = 0 if group.flag("suspend") else replicas * max(group.whole("numOfHosts", 1), 1)
        roles.append(role_of(group, group.text("groupName") or f"worker-{number}", count))
    return roles


def _read_cluster(switch: Switch, document: Document) -> Job:
    root = root_of(document)
    state = JobState.RESUMED
    if switch.is_on(root):
        state = JobState.HELD if _is_quiet(root.part("status")) else JobState.LEAVING
    return job_of(root, roles_of(root.part("spec")), state, grows=True)  # by its autoscaler


def _is_quiet(status: Part) -> bool:
    """Has a suspended cluster no pods? Its condition says so; its `state` changes only when all pods are ready.

    Earlier KubeRay has no condition. There a cluster that its controller has not seen yet has no pods either.
    """
    heard = [each.text("status") for each in status.parts("conditions") if each.text("type") == "RayClusterSuspended"]
    if heard:
        return heard == ["True"]
    return status.text("state") == "suspended" or "observedGeneration" not in status


def _read_job(switch: Switch, document: Document) -> Job:
    root = root_of(document)
    spec, status = root.part("spec"), root.part("status")
    roles = roles_of(spec.part("rayClusterSpec"))
    if roles and "submitterPodTemplate" in spec and spec.text("submissionMode") in ("", "K8sJobMode"):
        spec.part("submitterPodTemplate").part("spec").parts("containers")
        roles.append(Role("submitter", 1, spec.plain("submitterPodTemplate")))
    state = _job_state(switch.is_on(root), status.text("jobDeploymentStatus"), status.text("jobStatus"))
    return job_of(root, roles, state, limit_s=spec.seconds("activeDeadlineSeconds"))


def _job_state(is_suspended: bool, deployment: str, job: str) -> JobState:
    if deployment == "Complete":
        return JobState.SUCCEEDED if job == "SUCCEEDED" else JobState.FAILED
    if deployment == "Failed":
        return JobState.FAILED
    if not is_suspended:
        return JobState.RESUMED
    return JobState.HELD if deployment.lower() in _QUIET else JobState.LEAVING


def _hold(document: Document) -> Patch:
    root = root_of(document)
    spec = root.part("spec")
    if "clusterSelector" in spec:
        return []  # it has no pods of its own but the submitter
    if not spec.flag("shutdownAfterJobFinishes"):
        raise UserError(
            f"{root.place}KubeRay suspends no RayJob whose cluster outlives it: set spec.shutdownAfterJobFinishes to "
            "true"
        )
    return _JOB_SWITCH.hold(document)


def _job_of_pod(labels: Mapping[str, str], owner: Owner) -> str:
    """The RayJob that made the Job of a submitter, or a RayCluster."""
    name = labels.get("ray.io/originated-from-cr-name", "")
    is_made = labels.get("ray.io/originated-from-crd") == "RayJob" and owner.name.startswith(name)
    return name if is_made else ""


_JOB_SWITCH = Switch("rayjobs")
RAY_CLUSTER = replace(kind_with(Switch("rayclusters"), "ray.io", "RayCluster", ("v1",), _read_cluster), serves=True)
RAY_JOB = replace(
    kind_with(_JOB_SWITCH, "ray.io", "RayJob", ("v1",), _read_job, {"Job": _job_of_pod, "RayCluster": _job_of_pod}),
    hold=_hold,
)
SOURCE = Source(jobs=(RAY_JOB, RAY_CLUSTER))
