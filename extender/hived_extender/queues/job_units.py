"""The unit of a job: its queue, by the quota tree, and all that answers to it depend on."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from hived.values.errors import UserError
from hived.values.specs import ClusterSpec
from hived_extender.job_kinds.job import Job
from hived_extender.job_kinds.needs import Need
from hived_extender.kube_rules.reader import DemandsReader
from hived_extender.pods.wire import Pod
from hived_extender.queues.minimums import smallest
from hived_extender.queues.units import Unit
from hived_extender.quotas.backing import virtual_cluster_of
from hived_extender.quotas.naming import quota_of
from hived_extender.quotas.tree import QuotaTree
from hived_extender.service.certificates import size_from


class TooLargeError(UserError):
    """A job asks for more than the cluster has."""


@dataclass(frozen=True, slots=True)
class Cells:
    """A cluster, and how many leaf cells it has."""

    spec: ClusterSpec
    leaf_count: int


def unit_of(job: Job, need: Need, cells: Cells, tree: QuotaTree | None, *, preempts: bool = True) -> Unit:
    """The unit of a job, for which others leave if it `preempts`.

    Raises UserError if its quota is unknown, or another virtual cluster's, and TooLargeError if it is larger than the
    cluster.
    """
    queue = vc = need.spec.virtual_cluster
    leaf = None if tree is None else quota_of(tree, job.labels, job.ref.namespace)
    if leaf is not None:
        backed = virtual_cluster_of(leaf, cells.spec)
        if backed and backed != vc:
            raise UserError(
                f"its quota {leaf.name} is backed by virtual cluster {backed}, and its pods ask for {vc}: annotate "
                f"their template hivedscheduler.microsoft.com/virtual-cluster: {backed}, or name another quota"
            )
        queue = leaf.name
    unit = Unit(
        job.ref.key, queue, need.spec, job.created_s, need.user, need.request, need.is_preemptible, need.limit_s,
        needs=_needs(need.pods), namespace=job.ref.namespace, may_take_time=need.has_others,
        preempts=preempts, minimum=need.minimum,
    )  # fmt: skip
    least = smallest(unit).leaf_count
    if least > cells.leaf_count:
        raise TooLargeError(
            f"it asks for {least} leaf cells{_sized_by(need, cells.spec) or ', such as GPUs'}, and the cluster has "
            f"{cells.leaf_count}: it can never run; ask for fewer"
        )
    return unit


def _sized_by(need: Need, spec: ClusterSpec) -> str:
    """The CPU or memory for which the pods of a job need more leaf cells than for devices; "" if there is none."""
    only = next(iter(spec.sku_types), "") if len(spec.sku_types) == 1 else ""
    for member, (pod, _) in zip(reversed(need.spec.group.members), reversed(need.pods), strict=False):
        demands = DemandsReader().read(pod).demands
        if found := size_from(need.spec.leaf_cell_type or only, member.leaf_cell_count, demands, spec):
            each = f", {member.leaf_cell_count} of them a pod" if sum(count for _, count in need.pods) > 1 else ""
            return f"{each} for {found}"
    return ""


def _needs(pods: Sequence[tuple[Pod, int]]) -> str:
    """Equal for pods that Kubernetes may place alike."""
    specs = msgspec.json.encode([(pod.spec, count) for pod, count in pods])
    return hashlib.sha256(specs).hexdigest()[:16]
