"""Which pods of a submission may not have what they ask for: told before anything is created."""

from collections.abc import Iterable

import msgspec

from hived.errors import UserError
from hived.specs import ClusterSpec
from hived_config.rules import PodRules
from hived_extender.kube_rules.resource_rules import pod_faults
from hived_extender.pods.permissions import LabelsOf, Permissions
from hived_extender.pods.wire import Pod
from hived_jobs.submission import Manifest, PlannedPod


def refuse_resources(pods: Iterable[PlannedPod]) -> None:
    """Raise UserError for the first pod whose resources no API server takes.

    A pod that cannot be read is for the API server to refuse.
    """
    for pod in pods:
        read = _read(pod.manifest)
        if read is not None and (faults := list(dict.fromkeys(pod_faults(read)))):
            told = "; ".join(f"{fault.field}: {fault.message}" for fault in faults)
            raise UserError(f"pod {pod.name} is invalid: {told}", 422)


def _read(manifest: Manifest) -> Pod | None:
    try:
        return msgspec.convert(manifest, Pod)
    except (ValueError, RecursionError):
        return None


def submission_refusals(
    pods: Iterable[Manifest], rules: PodRules, cluster: ClusterSpec, labels_of: LabelsOf | None = None
) -> list[str]:
    """Why pods would be refused, each reason once with its pods; nothing if all may have what they ask for.

    Parameters
    ----------
    pods : their manifests, with the namespaces that they are created in
    rules, cluster : those of the configuration in force
    labels_of : the labels of a namespace, none if they are not known; a pod passes where labels decide

    A pod of another scheduler, or one that cannot be read, is nobody's here.
    """
    permissions = Permissions(cluster, rules, labels_of)
    names: dict[str, list[str]] = {}
    for manifest in pods:
        pod = _read(manifest)
        if pod is None:
            continue  # the API server refuses it, in its own words
        name = pod.spec.scheduler_name if pod.spec else None
        if permissions.concerns(pod, is_served=rules.serves(name or "", cluster.virtual_clusters)):
            reason = permissions.refusal(pod) or _too_slow(permissions, pod)
            if reason:
                names.setdefault(reason, []).append(pod.metadata.name)
    return [f"{_named(refused)}: {reason}" for reason, refused in names.items()]


def _too_slow(permissions: Permissions, pod: Pod) -> str:
    """Why an opportunistic pod asks for too much time to leave, "" if it does not."""
    most_s = permissions.most_grace_s(pod)
    if most_s is None or pod.spec is None:
        return ""
    asked_s = pod.spec.termination_grace_period_seconds
    has = f"an opportunistic pod has at most {most_s} s to leave: lower it"
    return f"terminationGracePeriodSeconds is {asked_s}, and {has}"


def _named(pods: list[str]) -> str:
    others = len(pods) - 1
    return f"pod {pods[0]}" + (f" and {others} other{'s' * (others > 1)}" if others else "")
