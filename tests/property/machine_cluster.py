"""An API server for the machine alone: it keeps pods, fails in all kinds of ways, and tells what has changed."""

from collections import deque
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from hived_extender.jobs.wire import Pod
from hived_extender.kube.client import KubeError
from tests.extender.machine.small_cluster import FakeKube, Json, node_json, to_pod

REFUSED = (
    (404, "NotFound"), (409, "Conflict"), (429, "TooManyRequests"), (500, "InternalError"), (403, "Forbidden"),
    (422, "Invalid"), (503, "Unavailable"),
)  # fmt: skip
"""Answers of an API server that has done nothing."""

SILENT = (0, "NoAnswer")
"""No answer, from an API server that may have done what it was asked to."""


class Api(FakeKube):
    """`news` has every change of a pod, in order: the pod, or the uid of one that is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.news: deque[Pod | str] = deque()
        self.kept: Mapping[str, Mapping[str, str]] = {}

    def touch(self, pod: Json) -> None:
        """A new version, which those who watch hear of."""
        super().touch(pod)
        self.tell(to_pod(deepcopy(pod)))

    def tell(self, news: Pod | str) -> None:
        """A pod has changed, or the one with this uid is gone."""
        self.news.append(news)

    def bind_pod(self, namespace: str, name: str, uid: str, node: str, *args: Any, **more: Any) -> None:
        """Bind a pod that is not leaving."""
        if "deletionTimestamp" in self._find(name)["metadata"]:
            raise KubeError(409, "Conflict", f"pod {name} is being deleted, cannot be assigned to a host")
        super().bind_pod(namespace, name, uid, node, *args, **more)

    def remove(self, name: str) -> None:
        """A pod is gone."""
        self.tell(self.pods.pop(name)["metadata"]["uid"])

    def patch(self, path: str, body: Mapping[str, Any], item_type: type[Any] = dict) -> Any:
        """Annotate the pod with this uid and, if one is given, this version."""
        if "/events/" in path:
            return None
        pod, about = self._of(path.rsplit("/", 1)[1], body["metadata"]["uid"]), body["metadata"]
        if about.get("resourceVersion", pod["metadata"]["resourceVersion"]) != pod["metadata"]["resourceVersion"]:
            raise KubeError(409, "Conflict", "the version differs")
        return super().patch(path, body, item_type)

    def patch_lists(self, path: str, body: Mapping[str, Any]) -> None:
        """Take a condition of the pod with this uid."""
        self._of(path.removesuffix("/status").rsplit("/", 1)[1], body["metadata"]["uid"])
        super().patch_lists(path, body)

    def evict_pod(self, namespace: str, name: str, *, uid: str = "") -> None:
        """Let a pod begin to leave; one without a node is gone at once."""
        pod = self._of(name, uid)
        if not pod["spec"]["nodeName"]:
            self.remove(name)
        elif "deletionTimestamp" not in pod["metadata"]:
            pod["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
            self.touch(pod)

    delete_pod = evict_pod

    def keep(self, changed: Mapping[str, Mapping[str, str]]) -> None:
        """Write bindings down in the Secret."""
        self.kept = dict(changed)

    def _of(self, name: str, uid: str) -> Json:
        pod = self._find(name)
        if pod["metadata"]["uid"] != uid:
            raise KubeError(409, "Conflict", "the uid differs")
        return pod


class Unreliable:
    """An API server, but one of the next calls fails as `failure` says: before it is done, or after it was."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._failure: KubeError | None = None
        self._is_done = False

    def fail(self, failure: KubeError | None, *, is_done: bool = False) -> None:
        """Let the next call fail. `is_done`: the answer is lost, but not the call."""
        self._failure, self._is_done = failure, is_done

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._api, name)

        def answer(*args: Any, **more: Any) -> Any:
            failure, self._failure = self._failure, None
            if failure is None:
                return call(*args, **more)
            if self._is_done:
                call(*args, **more)
            raise failure

        return answer


def manifest(name: str, second: int, namespace: str, priority_class: str, gpus: int, notes: Mapping[str, str]) -> Json:
    """A pod as the API server has it after its creation."""
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "1"}
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "annotations": dict(notes),
            "labels": {},
            "creationTimestamp": f"2026-01-01T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z",
        },
        "spec": {
            "nodeName": "",
            "schedulerName": "hived",
            "containers": [{"name": "main", "resources": {"limits": limits}}],
            **({"priorityClassName": priority_class} if priority_class else {}),
        },
        "status": {"phase": "Pending"},
    }


def with_devices(name: str, count: int) -> Json:
    """A node that reports so many devices."""
    body = node_json(name)
    body["status"]["allocatable"] = {"nvidia.com/gpu": str(count), "cpu": "64", "pods": "110"}
    return body
