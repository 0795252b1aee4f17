"""Kueue at work beside hived: a queue of the virtual cluster with its check, and what becomes of Workloads."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hived_extender.queues.kueue.workloads import CONTROLLER
from hived_lab.embedded.nodes import RUN_SECONDS
from tests.e2e.controllers.installing import installed
from tests.e2e.controllers.kinds import KUEUE
from tests.e2e.controllers.racks import GPU, NODE_GPUS, VC, Racks, pod, running_racks, template
from tests.e2e.plane import ControlPlane
from tests.e2e.processes import Process

CHECK = "hived-cells"
QUEUE = "team"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
GROUP = "kueue.x-k8s.io"
VERSION = f"{GROUP}/v1beta2"
QUOTA = 4 * NODE_GPUS
"""As many GPUs as the virtual cluster has."""

NOW = "2026-01-01T00:00:00Z"
"""A moment at which checks of other controllers than ours got their states."""

ALL_NODES = {"kubernetes.io/os": "linux"}

JOBS = ("jobs.batch", "deployments.apps", "statefulsets.apps")
OF_QUEUES = (
    "localqueues", "clusterqueues", "cohorts", "admissionchecks", "resourceflavors", "topologies",
    "workloadpriorityclasses",
)  # fmt: skip

Json = dict[str, Any]


def of_kueue(kind: str, name: str, spec: Json | None = None, **more: Any) -> Json:
    """An object of Kueue's; `namespace` puts it into one."""
    metadata = {"name": name} | ({"namespace": more.pop("namespace")} if "namespace" in more else {})
    return {"apiVersion": VERSION, "kind": kind, "metadata": metadata, **({"spec": spec} if spec else {}), **more}


def cluster_queue(name: str, gpus: int = QUOTA, *, flavor: str = "gpu", limit: int | None = None, **spec: Any) -> Json:
    """A ClusterQueue with our check; `limit` is what it may borrow."""
    quota = {"name": GPU, "nominalQuota": gpus} | ({} if limit is None else {"borrowingLimit": limit})
    return of_kueue(
        "ClusterQueue",
        name,
        {
            "namespaceSelector": {},
            "queueingStrategy": "StrictFIFO",
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [
                {"coveredResources": [GPU], "flavors": [{"name": flavor, "resources": [quota]}]}
            ],
            "admissionChecksStrategy": {"admissionChecks": [{"name": CHECK}]},
            **spec,
        },
    )  # fmt: skip


def local_queue(name: str, of: str) -> Json:
    """A LocalQueue of the namespace default."""
    return of_kueue("LocalQueue", name, {"clusterQueue": of}, namespace="default")


def queued_job(name: str, pods: int = 1, gpus: int = NODE_GPUS, **more: Any) -> Json:
    """A Job in the queue, whose pods run for `seconds`; `annotations` are those of its pods, `spec` more of its own."""
    labels = {QUEUE_LABEL: more.pop("queue", QUEUE), **more.pop("labels", {})}
    annotations = {RUN_SECONDS: str(more.pop("seconds", 3600)), **more.pop("annotations", {})}
    made = template(gpus, annotations=annotations)
    made["spec"] |= {"restartPolicy": "Never", **more.pop("pod_spec", {})}
    spec = {"suspend": True, "parallelism": pods, "completions": pods, "template": made, **more.pop("spec", {})}
    metadata = {"name": name, "labels": labels, **more}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def queued_pod(name: str, gpus: int = NODE_GPUS, *, group: str = "", count: int = 0, seconds: int = 3600) -> Json:
    """A plain pod in the queue that runs so long, perhaps of a group of so many."""
    labels = {QUEUE_LABEL: QUEUE} | ({f"{GROUP}/pod-group-name": group} if group else {})
    notes = {f"{GROUP}/pod-group-total-count": str(count)} if group else {}
    spec = {"restartPolicy": "Never"}
    return pod(name, gpus, spec=spec, labels=labels, annotations={RUN_SECONDS: str(seconds), **notes})


def deployment(name: str, replicas: int, gpus: int = NODE_GPUS, kind: str = "Deployment") -> Json:
    """A Deployment or StatefulSet in the queue."""
    labels = {"app": name}
    made = template(gpus, labels=labels)
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": made}
    if kind == "StatefulSet":
        spec |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    metadata = {"name": name, "labels": {QUEUE_LABEL: QUEUE}}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}


class KueueRacks:
    """The racks, and Kueue, whose program is `process`."""

    def __init__(self, plane: ControlPlane, racks: Racks, process: Process) -> None:
        self.plane, self.racks, self.process = plane, racks, process

    def path(self, plural: str, name: str = "", *, namespace: str = "default") -> str:
        """Where objects of Kueue are."""
        place = f"namespaces/{namespace}/" if namespace else ""
        return f"/apis/{VERSION}/{place}{plural}" + (f"/{name}" if name else "")

    def set_up(self, *more: Json, queue: Json | None = None, approves: tuple[str, ...] = ()) -> None:
        """Create the check, a flavor and the queue of the virtual cluster, and wait until the queue is active.

        `approves` are checks of other controllers than ours, which answer.
        """
        check = of_kueue("AdmissionCheck", CHECK, {"controllerName": CONTROLLER})
        main = queue or cluster_queue(VC)
        self.racks.create(
            check, *more, of_kueue("ResourceFlavor", "gpu", {"nodeLabels": {"kubernetes.io/os": "linux"}}), main
        )
        self.racks.create(local_queue(QUEUE, VC))
        for name in approves:
            active = {"type": "Active", "status": "True", "reason": "Works", "message": "", "lastTransitionTime": NOW}
            self._set_status("AdmissionCheck", name, {"conditions": [active]})
        self.until_active(VC)

    def approve(self, owner: str, check: str) -> None:
        """Say Ready for a check of another controller than ours."""
        state = {"name": check, "state": "Ready", "message": "", "lastTransitionTime": NOW}
        self._set_status("Workload", self._workload_name(owner), {"admissionChecks": [state]}, namespace="default")

    def _set_status(self, kind: str, name: str, status: Json, **more: Any) -> None:
        body = of_kueue(kind, name, status=status, **more)
        options = ("--server-side", "--subresource=status", "--field-manager=approval", "--force-conflicts")
        self.plane.kubectl("apply", *options, "-f", "-", stdin=json.dumps(body))

    def activate(self, owner: str, is_active: bool) -> None:
        """Deactivate the Workload of a job, or activate it again."""
        patch = json.dumps({"spec": {"active": is_active}})
        name = f"workloads.{GROUP}/{self._workload_name(owner)}"
        self.plane.kubectl("patch", name, "--type=merge", "-p", patch)

    def _workload_name(self, owner: str) -> str:
        self.racks.until(lambda: self.workload(owner), f"the Workload of {owner}")
        found = self.workload(owner)
        assert found is not None
        return str(found["metadata"]["name"])

    def until_active(self, name: str) -> None:
        """Wait until a ClusterQueue gives quota: its check has to be active for that."""

        def is_active() -> bool:
            return self.condition(self.plane.kube.get(self.path("clusterqueues", name, namespace="")), "Active")

        self.racks.until(is_active, f"ClusterQueue {name} to be active")

    def says_active(self) -> str:
        """What the condition of our check says."""
        found = self.plane.kube.get(self.path("admissionchecks", CHECK, namespace=""))
        conditions = (found.get("status") or {}).get("conditions") or ()
        return next((str(one["message"]) for one in conditions if one["type"] == "Active"), "")

    @staticmethod
    def condition(item: Json, kind: str) -> bool:
        """Is a condition of an object true?"""
        conditions = (item.get("status") or {}).get("conditions") or ()
        return any(one["type"] == kind and one["status"] == "True" for one in conditions)

    def workloads(self) -> list[Json]:
        """All Workloads."""
        found: list[Json] = self.plane.kube.get(self.path("workloads"))["items"]
        return found

    def workload(self, owner: str) -> Json | None:
        """The Workload of a job, a pod or a group."""
        for one in self.workloads():
            owners = one["metadata"].get("ownerReferences") or ()
            if any(each["name"] == owner for each in owners) or one["metadata"]["name"] == owner:
                return one
        return None

    def check(self, owner: str) -> tuple[str, str]:
        """State and message of our check in the Workload of a job; empty without one."""
        found = self.workload(owner) or {}
        checks = (found.get("status") or {}).get("admissionChecks") or ()
        return next(((one["state"], one["message"]) for one in checks if one["name"] == CHECK), ("", ""))

    def until_check(self, owner: str, state: str, *words: str, within_s: float = 60.0) -> str:
        """Wait until our check has this state and these words; returns the message."""

        def is_so() -> bool:
            found, message = self.check(owner)
            return found == state and all(each in message for each in words)

        try:
            self.racks.until(is_so, f"the check of {owner} to say {state}: {words}", within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.told()}") from None
        return self.check(owner)[1]

    def told(self) -> str:
        """What is said of every Workload, for people."""
        lines = []
        for one in self.workloads():
            status = one.get("status") or {}
            name = one["metadata"]["name"]
            states = [
                f"{each['name']} {each['state']}: {each['message']}" for each in status.get("admissionChecks", ())
            ]
            said = [f"{each['type']}={each['status']} {each['message']}" for each in status.get("conditions") or ()]
            lines.append(f"{name}: {states} {said}")
        return "\n".join(lines)

    def silent(self) -> list[str]:
        """The Workloads that do not run and are told nothing of why."""
        found = []
        for one in self.workloads():
            status = one.get("status") or {}
            is_over = self.condition(one, "Finished") or self.condition(one, "Admitted")
            said = [each["message"] for each in _said(status)]
            if not is_over and not any(said):
                found.append(one["metadata"]["name"])
        return found

    def held_nodes(self) -> list[str]:
        """The nodes of the cells that groups hold, by name."""
        return sorted(node for one in self.racks.groups() for node in one["status"].get("physicalPlacement") or {})

    def evictions(self, owner: str) -> list[str]:
        """Why Kueue has taken the quota of a job back, each reason once."""
        status = (self.workload(owner) or {}).get("status") or {}
        return [one["reason"] for one in (status.get("schedulingStats") or {}).get("evictions") or ()]

    def held(self) -> list[str]:
        """The groups that hold cells and have no pod."""
        groups = self.racks.groups()
        return [one["metadata"]["name"] for one in groups if not one["status"].get("allocatedPods")]

    def until_settled(self) -> None:
        """Wait until cells are held for nobody; then no GPU has been given twice, and nobody waits without a word."""
        self.racks.until(lambda: not self.held(), "no cells to be held for nobody", within_s=60.0)
        assert self.racks.faults() == []
        assert self.silent() == [], self.told()

    def clean(self) -> None:
        """Delete all jobs, pods and queues; all cells are free then."""
        if not self.process.is_running:
            self.process.start(ready_s=180)
        for kind in (*JOBS, "pods"):
            self.plane.kubectl("delete", kind, "--all", "--wait=false")
        # Kueue keeps the pods of a group until all have succeeded, or their Workload is gone.
        self.plane.kubectl("delete", f"workloads.{GROUP}", "--all", "--timeout=60s")
        self.racks.clean(JOBS)
        self.plane.kubectl("delete", f"workloads.{GROUP}", "--all", "--timeout=60s")
        for kind in OF_QUEUES:
            self.plane.kubectl("delete", f"{kind}.{GROUP}", "--all", "--timeout=60s")


def _said(status: Json) -> list[Json]:
    """All that a status says by messages."""
    return [*(status.get("conditions") or ()), *(status.get("admissionChecks") or ())]


@contextmanager
def running_kueue(plane: ControlPlane, folder: Path, **settings: Any) -> Iterator[KueueRacks]:
    """Racks under `rules: 2` with two replicas of hived, and Kueue; `settings` are further keys of what Kueue reads."""
    with installed(plane, KUEUE, **settings) as process, running_racks(plane, folder, replicas=2, rules=2) as racks:
        yield KueueRacks(plane, racks, process)
