"""The steps of Kueue, one by one, as Kueue writes them. There is no Kueue: a test decides when each is taken."""

from typing import Any

from hived_extender.kube.client import KubeClient, KubeError
from tests.expecting import expect_soon
from tests.extender.queues.kueue.workload_objects import (
    AT,
    CHECK,
    admission,
    admission_check,
    check_state,
    condition,
    flavor,
    workload,
)

Json = dict[str, Any]


class KueueByHand:
    """Kueue's part in the life of Workloads of one namespace."""

    def __init__(self, kube: KubeClient, version: str = "v1beta2", namespace: str = "default") -> None:
        self.kube = kube
        self._api_version = f"kueue.x-k8s.io/{version}"
        self._base = f"/apis/{self._api_version}"
        self._namespace = namespace

    def is_there(self) -> bool:
        """Are its kinds served?"""
        try:
            for plural in ("workloads", "admissionchecks", "resourceflavors"):
                self.kube.get(f"{self._base}/{plural}")
        except KubeError:
            return False
        return True

    def clear(self) -> None:
        """Delete all Workloads and AdmissionChecks."""
        for found in self.kube.list_objects(self.path(), dict).items:
            self.kube.delete(self.path(found["metadata"]["name"]))
        for found in self.kube.list_objects(f"{self._base}/admissionchecks", dict).items:
            self.kube.delete(f"{self._base}/admissionchecks/{found['metadata']['name']}")

    @property
    def collection(self) -> str:
        """Where all Workloads are."""
        return f"{self._base}/workloads"

    def declare(self, *names: str, controller: str = "hivedscheduler.microsoft.com/admission-check") -> None:
        """An administrator creates AdmissionChecks."""
        for name in names or (CHECK,):
            body = admission_check(name, controller)
            del body["metadata"]["uid"], body["metadata"]["resourceVersion"]
            self.kube.create(f"{self._base}/admissionchecks", {**body, "apiVersion": self._api_version})

    def add_flavor(self, name: str = "a100", **labels: str) -> None:
        """An administrator creates a ResourceFlavor; see `flavor`."""
        body = {**flavor(name, **labels), "apiVersion": self._api_version, "metadata": {"name": name}}
        self.kube.create(f"{self._base}/resourceflavors", body)

    def is_active(self, name: str = CHECK) -> bool:
        """Does the AdmissionCheck say that its controller is at work?"""
        status = self.kube.get(f"{self._base}/admissionchecks/{name}").get("status") or {}
        return any(each["type"] == "Active" and each["status"] == "True" for each in status.get("conditions", ()))

    def says_active(self, name: str = CHECK) -> str:
        """What the condition of the AdmissionCheck says."""
        status = self.kube.get(f"{self._base}/admissionchecks/{name}").get("status") or {}
        return next((str(each["message"]) for each in status.get("conditions", ()) if each["type"] == "Active"), "")

    def queue(self, name: str, *pod_sets: Json, **spec: Any) -> None:
        """A job was created: it has a Workload of this name, without quota. Its owner is left out: it is not there."""
        body = workload(name, *pod_sets, namespace=self._namespace, conditions=(), **spec)
        del body["metadata"]["uid"], body["metadata"]["resourceVersion"], body["metadata"]["ownerReferences"]
        del body["status"]
        self.kube.create(self.path(), {**body, "apiVersion": self._api_version})

    def reserve(
        self, name: str, *checks: str, cluster_queue: str = "research", at: str = AT, topology: Json | None = None
    ) -> None:
        """There is quota for it since `at`, on the nodes of an assignment perhaps, and its checks are due."""
        sets = self.get(name)["spec"]["podSets"]
        given = admission(*sets, cluster_queue=cluster_queue)
        if topology is not None:
            given["podSetAssignments"][0]["topologyAssignment"] = topology
        self.write(
            name,
            {
                "conditions": [condition("QuotaReserved", at=at), condition("Evicted", is_true=False)],
                "admission": given,
                "admissionChecks": [check_state(check) for check in checks or (CHECK,)],
            },
        )

    def admit(self, name: str) -> list[Json]:
        """All its checks are ready. Returns the words that its pods get, by pod set."""
        found = self.get(name)["status"]
        assert {each["state"] for each in found["admissionChecks"]} == {"Ready"}
        self.write(name, {"conditions": [*found["conditions"], condition("Admitted")]})
        return [update for each in found["admissionChecks"] for update in each.get("podSetUpdates", ())]

    def start(self, name: str) -> list[str]:
        """Its job is resumed, and pods come with the words of the check, of no owner that is there. Returns names."""
        words = {each["name"]: each["annotations"] for each in self.admit(name)}
        item, names = self.get(name), list[str]()
        for each in item["spec"]["podSets"]:
            for number in range(each["count"]):
                made_of = each["template"]
                notes = made_of["metadata"].get("annotations", {}) | words.get(each["name"], {})
                pod = f"{name}-{each['name']}-{number}"
                metadata = {"name": pod, "annotations": notes}
                body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made_of["spec"]}
                self.kube.create(self.pods, body)
                names.append(pod)
        return names

    @property
    def pods(self) -> str:
        """Where pods are."""
        return f"/api/v1/namespaces/{self._namespace}/pods"

    def node_of(self, pod: str) -> str:
        """The node of a pod, "" before it has one."""
        return str(self.kube.get(f"{self.pods}/{pod}")["spec"].get("nodeName", ""))

    def evict(self, name: str) -> None:
        """It is taken back, and its checks are set back in the same call; a moment later its quota goes."""
        found = self.get(name)["status"]
        checks = [{**check_state(each["name"]), "message": "Reset"} for each in found["admissionChecks"]]
        self.write(name, {"conditions": [condition("QuotaReserved"), condition("Evicted")], "admissionChecks": checks})
        gone = [condition("QuotaReserved", is_true=False), condition("Evicted")]
        self.write(name, {"conditions": gone, "admission": None})

    def finish(self, name: str) -> None:
        """Its job has ended."""
        found = self.get(name)["status"]
        self.write(name, {"conditions": [*found["conditions"], condition("Finished", reason="Succeeded")]})

    def delete(self, name: str) -> None:
        """Its job was deleted."""
        self.kube.delete(self.path(name))

    def check(self, name: str, check: str = CHECK) -> Json:
        """The state of one of its checks."""
        checks: list[Json] = self.get(name)["status"]["admissionChecks"]
        return next(each for each in checks if each["name"] == check)

    def expect(self, name: str, state: str, text: str = "", check: str = CHECK) -> Json:
        """Wait until a check has this state, and its message has this text."""

        def is_so() -> bool:
            found = self.check(name, check)
            return bool(found["state"] == state and text in found["message"])

        expect_soon(is_so)
        return self.check(name, check)

    def get(self, name: str) -> Json:
        """A Workload."""
        return self.kube.get(self.path(name))

    def path(self, name: str = "") -> str:
        """Where Workloads are."""
        return f"{self._base}/namespaces/{self._namespace}/workloads" + (f"/{name}" if name else "")

    def write(self, name: str, status: Json) -> None:
        """Merge into the status of a Workload. Kueue tries again where somebody else has written meanwhile."""
        self.kube.patch(f"{self.path(name)}/status", {"status": status})
