"""Fields of objects that only other schedulers and controllers read, as their API types have them.

Pages show such objects beside their counterparts. `...` holds anything. A field that is missing here makes the page
fail: look it up in the API type of the version that is named, then add it.
"""

from typing import Any

_SELECTOR = {"matchLabels": ..., "matchExpressions": ...}
_VOLCANO_QUEUE = {
    "weight": ..., "capability": ..., "reclaimable": ..., "guarantee": {"resource": ...}, "deserved": ...,
    "parent": ..., "priority": ..., "affinity": ..., "dequeueStrategy": ..., "extendClusters": ..., "type": ...,
}  # fmt: skip
_KUEUE_QUOTA = {"name": ..., "nominalQuota": ..., "borrowingLimit": ..., "lendingLimit": ...}
_KAI_RESOURCE = {"quota": ..., "limit": ..., "overQuotaWeight": ...}
_CERTIFICATE = {
    "secretName": ..., "dnsNames": ..., "commonName": ..., "usages": ..., "issuerRef": {"name": ..., "kind": ...},
}  # fmt: skip

FIELDS: dict[tuple[str, str], Any] = {
    # cert-manager
    ("cert-manager.io/v1", "Certificate"): _CERTIFICATE,
    # Kueue 0.19
    ("kueue.x-k8s.io/v1beta2", "ResourceFlavor"): {
        "nodeLabels": ..., "nodeTaints": ..., "tolerations": ..., "topologyName": ...,
    },
    ("kueue.x-k8s.io/v1beta2", "ClusterQueue"): {
        "cohortName": ..., "queueingStrategy": ..., "namespaceSelector": _SELECTOR,
        "resourceGroups": {"coveredResources": ..., "flavors": {"name": ..., "resources": _KUEUE_QUOTA}},
        "preemption": {"reclaimWithinCohort": ..., "withinClusterQueue": ..., "borrowWithinCohort": ...},
        "fairSharing": {"weight": ...}, "stopPolicy": ..., "flavorFungibility": ...,
        "admissionChecksStrategy": {"admissionChecks": {"name": ..., "onFlavors": ...}},
    },
    ("kueue.x-k8s.io/v1beta2", "AdmissionCheck"): {"controllerName": ..., "parameters": ...},
    ("kueue.x-k8s.io/v1beta2", "LocalQueue"): {"clusterQueue": ..., "stopPolicy": ..., "fairSharing": ...},
    # Volcano
    ("scheduling.volcano.sh/v1beta1", "Queue"): _VOLCANO_QUEUE,
    # KAI Scheduler
    ("scheduling.run.ai/v2", "Queue"): {
        "displayName": ..., "parentQueue": ..., "priority": ..., "preemptMinRuntime": ..., "reclaimMinRuntime": ...,
        "resources": {"gpu": _KAI_RESOURCE, "cpu": _KAI_RESOURCE, "memory": _KAI_RESOURCE},
    },
}  # fmt: skip
