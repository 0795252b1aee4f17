"""Shared by the tests of the embedded cluster: a bare HTTP client, objects, and waiting."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

from hived_extender.kube.client import NODES, KubeClient
from hived_lab.embedded.apiserver.server import ApiServer
from hived_lab.embedded.cluster import EmbeddedCluster
from hived_lab.embedded.nodes import READY
from tests.expecting import PATIENCE_S

JSON = "application/json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


class Http:
    """Requests to one API server as a client that knows nothing of Kubernetes would send them."""

    def __init__(self, port: int) -> None:
        self.port = port

    def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, **parameters: Any
    ) -> tuple[int, Any]:
        """Return the status and the decoded body; `body` is sent as JSON unless it is bytes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            url = f"{path}?{urlencode(parameters)}" if parameters else path
            sent = {"Content-Type": JSON} if content is not None else {}
            connection.request(method, url, content, sent | (headers or {}))
            response = connection.getresponse()
            text = response.read()
            kind = response.getheader("Content-Type", "")
            return response.status, json.loads(text) if kind.startswith(JSON) else text.decode()
        finally:
            connection.close()

    def ok(self, method: str, path: str, body: Any = None, **parameters: Any) -> Any:
        """Return the decoded body of a request that must succeed."""
        status, answer = self.call(method, path, body, **parameters)
        assert 200 <= status < 300, answer
        return answer

    def refused(self, method: str, path: str, body: Any = None, **parameters: Any) -> tuple[int, str, str]:
        """Return code, reason and message of a request that must fail with a proper Status."""
        status, answer = self.call(method, path, body, **parameters)
        assert answer["kind"] == "Status", answer
        assert answer["status"] == "Failure"
        assert answer["code"] == status
        return status, answer["reason"], answer["message"]

    def patch(self, path: str, patch: Any, kind: str = "merge-patch", **parameters: Any) -> tuple[int, Any]:
        """Send a patch of the given kind."""
        return self.call("PATCH", path, patch, {"Content-Type": f"application/{kind}+json"}, **parameters)

    @contextmanager
    def watch(self, path: str, headers: dict[str, str] | None = None, **parameters: Any) -> Iterator["WatchStream"]:
        """Open a watch; it is open, and misses nothing, when the context is entered."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request("GET", f"{path}?{urlencode({'watch': 'true', **parameters})}", headers=headers or {})
        response = connection.getresponse()
        try:
            yield WatchStream(response)
        finally:
            response.close()
            connection.close()


class WatchStream:
    """The lines of one watch."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.response = response

    def next(self) -> dict[str, Any]:
        """Return the next event, waiting for it; fails at the end of the stream."""
        line = self.response.readline()
        assert line, "the watch has ended"
        event: dict[str, Any] = json.loads(line)
        return event

    def rest(self) -> list[dict[str, Any]]:
        """Return all events up to the end of the stream."""
        return [json.loads(line) for line in self.response]

    def names(self, count: int) -> list[tuple[str, str]]:
        """Return type and name of the next `count` events."""
        events = [self.next() for _ in range(count)]
        return [(event["type"], event["object"]["metadata"]["name"]) for event in events]


@contextmanager
def api_server(**options: Any) -> Iterator[ApiServer]:
    """Run an API server."""
    server = ApiServer(**options)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def pod(name: str, *, limits: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a pod; `annotations` and `labels` in `spec` go to its metadata."""
    metadata: dict[str, Any] = {"name": name}
    for field in ("annotations", "labels", "finalizers"):
        if field in spec:
            metadata[field] = spec.pop(field)
    container: dict[str, Any] = {"name": "main", "image": "busybox"}
    if limits:
        container["resources"] = {"limits": limits}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


def config_map(name: str, labels: dict[str, str] | None = None, **data: str) -> dict[str, Any]:
    """Return a config map."""
    metadata: dict[str, Any] = {"name": name, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def binding(name: str, node: str, **metadata: Any) -> dict[str, Any]:
    """Return a binding of the pod `name`."""
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **metadata}, "target": target}


def fail_node(cluster: EmbeddedCluster, name: str) -> None:
    """Make a node report that it is not Ready."""
    _say_ready(cluster, name, "false")


def recover_node(cluster: EmbeddedCluster, name: str) -> None:
    """Take back `fail_node`."""
    _say_ready(cluster, name, None)


def _say_ready(cluster: EmbeddedCluster, name: str, ready: str | None) -> None:
    kube = KubeClient.connect(cluster.api_url)
    try:
        kube.patch(f"{NODES}/{name}", {"metadata": {"annotations": {READY: ready}}})
    finally:
        kube.close()
