"""Names that Kueue has given, and ours towards it. Those of its API versions v1beta1 and v1beta2."""

from hived_extender.kube.optional_kinds import ObjectKind
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


WORKLOADS, CHECKS, FLAVORS, QUEUES = (
    ObjectKind(GROUP, plural, VERSIONS)
    for plural in ("workloads", "admissionchecks", "resourceflavors", "clusterqueues")
)
KINDS = (FLAVORS, QUEUES, CHECKS, WORKLOADS)
