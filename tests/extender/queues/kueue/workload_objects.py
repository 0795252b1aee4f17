"""Kueue's objects as Kueue 0.19 writes them, made by hand: nothing here is Kueue."""

from typing import Any

from hived_extender.queues.kueue.workloads import CONTROLLER

Json = dict[str, Any]

API_VERSION = "kueue.x-k8s.io/v1beta2"
AT = "2026-11-23T10:00:00Z"
CHECK = "hived-cells"
GPU = "nvidia.com/gpu"


def template(gpus: int = 4, *, scheduler: str = "hived", node_selector: Json | None = None, **annotations: str) -> Json:
    """A pod template with one container; annotations are keys of ours, with dashes for underscores."""
    ours = {f"hivedscheduler.microsoft.com/{key.replace('_', '-')}": value for key, value in annotations.items()}
    resources = {"limits": {GPU: str(gpus)}, "requests": {GPU: str(gpus)}} if gpus else {}
    spec: Json = {
        "schedulerName": scheduler,
        "containers": [{"name": "main", "image": "train", "resources": resources}],
    }
    return {
        "metadata": {"annotations": ours},
        "spec": spec | ({"nodeSelector": node_selector} if node_selector else {}),
    }


def pod_set(name: str = "main", count: int = 2, made_of: Json | None = None) -> Json:
    """One of `spec.podSets`."""
    return {"name": name, "count": count, "template": template() if made_of is None else made_of}


def condition(kind: str, *, is_true: bool = True, at: str = AT, reason: str = "Because") -> Json:
    """One of `status.conditions`."""
    status = "True" if is_true else "False"
    return {"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": at}


def check_state(name: str = CHECK, state: str = "Pending", message: str = "", **others: Any) -> Json:
    """One of `status.admissionChecks`."""
    return {"name": name, "state": state, "message": message, "lastTransitionTime": AT, **others}


def admission(*pod_sets: Json, cluster_queue: str = "research", flavor: str = "a100") -> Json:
    """`status.admission` for these pod sets."""
    assigned = [
        {"name": each["name"], "count": each["count"], "flavors": {GPU: flavor}, "resourceUsage": {}}
        for each in pod_sets
    ]
    return {"clusterQueue": cluster_queue, "podSetAssignments": assigned}


def workload(
    name: str = "job-train",
    *pod_sets: Json,
    namespace: str = "ns",
    checks: tuple[Json, ...] = (),
    conditions: tuple[Json, ...] | None = None,
    **spec: Any,
) -> Json:
    """A Workload of a Job, with its quota reserved a moment ago, unless `conditions` say something else."""
    sets = list(pod_sets or (pod_set(),))
    status: Json = {"admissionChecks": list(checks or (check_state(),))}
    status["conditions"] = list((condition("QuotaReserved"),) if conditions is None else conditions)
    if any(each["type"] == "QuotaReserved" and each["status"] == "True" for each in status["conditions"]):
        status["admission"] = admission(*sets)
    return {
        "apiVersion": API_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "resourceVersion": "5",
            "creationTimestamp": AT,
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": name[4:], "uid": f"job-{name}", "controller": True}
            ],
        },
        "spec": {"queueName": "main", "active": True, "podSets": sets, **spec},
        "status": status,
    }


def assigned_topology(item: Json, levels: list[tuple[str, list[str]]], counts: list[int], place: int = 0) -> Json:
    """A Workload with nodes for the pods of one pod set: for each level its key and a value for each domain."""
    values = [{"individual": {"roots": roots}} for _, roots in levels]
    made = {"domainCount": len(counts), "valuesPerLevel": values, "podCounts": {"individual": counts}}
    assigned = item["status"]["admission"]["podSetAssignments"][place]
    assigned["topologyAssignment"] = {"levels": [key for key, _ in levels], "slices": [made]}
    return item


def admission_check(name: str = CHECK, controller: str = CONTROLLER, *, is_active: bool = False) -> Json:
    """An AdmissionCheck."""
    status = {"conditions": [condition("Active")]} if is_active else {}
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "3", "generation": 1}
    return {
        "apiVersion": API_VERSION,
        "kind": "AdmissionCheck",
        "metadata": metadata,
        "spec": {"controllerName": controller},
        "status": status,
    }


def flavor(name: str = "a100", **labels: str) -> Json:
    """A ResourceFlavor, whose labels have dots for underscores."""
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceFlavor",
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "2"},
        "spec": {"nodeLabels": {key.replace("_", "."): value for key, value in labels.items()}},
    }


def cluster_queue(name: str, *, limit: Any = None, **spec: Any) -> Json:
    """A ClusterQueue with our check; `limit` is how much it may borrow of devices."""
    quota = {"name": GPU, "nominalQuota": "8"} | ({} if limit is None else {"borrowingLimit": limit})
    groups = [{"coveredResources": [GPU], "flavors": [{"name": "a100", "resources": [quota]}]}]
    strategy = {"admissionChecks": [{"name": CHECK}]}
    return {
        "apiVersion": API_VERSION,
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {"resourceGroups": groups, "admissionChecksStrategy": strategy, **spec},
    }
