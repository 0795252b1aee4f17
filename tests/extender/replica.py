"""An extender on an embedded API server, and calls to it."""

import json
from pathlib import Path
from typing import Any, Protocol
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.jobs.wire import ENABLE_LIMIT
from hived_extender.kube.client import KubeClient
from hived_extender.running import Extender, start_extender
from hived_lab.embedded.cluster import EmbeddedCluster
from tests.extender.machine.small_cluster import filter_body, spec_text, wait_until

DEADLINE_S = 60.0


def connect(cluster: EmbeddedCluster) -> KubeClient:
    """A client that may write what only hived writes, such as the annotations of pods that it bound before."""
    client = KubeClient.connect(kubeconfig=str(cluster.hived_kubeconfig))
    client.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})
    return client


def start(config: Path, cluster: EmbeddedCluster, **options: Any) -> Any:
    client = KubeClient.connect(kubeconfig=str(cluster.hived_kubeconfig))
    return start_extender(config, client, listen="127.0.0.1:0", **options)


def create_pod(kube: KubeClient, name: str, spec: str | None = None, node: str = "", **annotations: str) -> Any:
    notes = {SCHEDULING_SPEC: spec_text() if spec is None else spec, **annotations}
    return kube.create(
        "/api/v1/namespaces/ns/pods",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "ns", "annotations": notes},
            "spec": {
                **({"nodeName": node} if node else {}),
                "containers": [
                    {
                        "name": "main",
                        "image": "none",
                        "resources": {"limits": {ENABLE_LIMIT: "1"}, "requests": {ENABLE_LIMIT: "1"}},
                    }
                ],
            },
        },
    )


class Answering(Protocol):
    """An extender, in whatever process."""

    @property
    def url(self) -> str:
        """Where it answers."""


def post(extender: Answering, verb: str, body: bytes) -> Any:
    with urlopen(Request(f"{extender.url}/v1/extender/{verb}", body, method="POST")) as response:
        return json.load(response)


def filter_pod(extender: Answering, pod: Any) -> Any:
    """Call filter until the extender has been told of the pod."""
    answers: list[Any] = []

    def is_known() -> bool:
        answers.append(post(extender, "filter", filter_body(pod)))
        return "is not known" not in answers[-1]["Error"]

    wait_until(is_known)
    return answers[-1]


def place(extender: Answering, pod: Any) -> str:
    (node,) = filter_pod(extender, pod)["NodeNames"]
    meta = pod["metadata"]
    body = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}
    assert post(extender, "bind", json.dumps(body).encode()) == {"Error": ""}
    return str(node)


def status_of(url: str) -> int:
    try:
        with urlopen(url) as response:
            return int(response.status)
    except HTTPError as error:
        return error.code


def reason_of(extender: Extender) -> str:
    """Why it is not ready, as everybody can read it."""
    try:
        with urlopen(f"{extender.url}/readyz") as response:
            return f"status {response.status}"
    except HTTPError as error:
        return str(json.load(error)["reason"])


def metric(extender: Extender, name: str, **labels: str) -> float | None:
    return extender.service.metrics.registry.get_sample_value(name, labels)
