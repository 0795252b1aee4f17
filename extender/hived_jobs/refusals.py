"""Which pods of a submission may not have what they ask for: told before anything is created."""

from collections.abc import Iterable

import msgspec

from hived.specs import ClusterSpec
from hived_config.rules import PodRules
from hived_extender.pods.permissions import LabelsOf, Permissions
from hived_extender.pods.wire import Pod
from hived_jobs.submission import Manifest


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
        try:
            pod = msgspec.convert(manifest, Pod)
        except (ValueError, RecursionError):
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
