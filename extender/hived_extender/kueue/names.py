"""Names that Kueue has given, and ours towards it. Those of its API versions v1beta1 and v1beta2."""

import msgspec

from hived_extender.pods.annotations import PREFIX

GROUP = "kueue.x-k8s.io"
VERSIONS = ("v1beta2", "v1beta1")

CONTROLLER = PREFIX + "admission-check"
"""`spec.controllerName` of an AdmissionCheck that is ours."""

MANAGER = "hived-admission-check"
"""The field manager of our writes, as `managedFields` names it."""

# Conditions of a Workload.
QUOTA_RESERVED, EVICTED, FINISHED, PODS_READY = "QuotaReserved", "Evicted", "Finished", "PodsReady"

# States of an admission check.
PENDING, READY, RETRY, REJECTED = "Pending", "Ready", "Retry", "Rejected"

ACTIVE = "Active"
"""The condition of an AdmissionCheck whose controller is at work."""

WORKLOAD_PRIORITY_CLASS = "WorkloadPriorityClass"


class KueueKind(msgspec.Struct, frozen=True):
    """A resource of Kueue; of `versions` the first is read that the API server has."""

    plural: str
    group: str = GROUP
    versions: tuple[str, ...] = VERSIONS


WORKLOADS, CHECKS, FLAVORS = KueueKind("workloads"), KueueKind("admissionchecks"), KueueKind("resourceflavors")
KINDS = (FLAVORS, CHECKS, WORKLOADS)
