"""The calls that a scheduler makes to a Kubernetes API server.

Bodies are ours (`answers.py`): the official client's models take a hundred times longer to decode than msgspec takes
for the few fields that we read. Connections are ours too (`connections.py`), but for watches and where there is a proxy
on the way. Every call has a time-out, and none is made while a lock is held.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, overload
from urllib.parse import quote, urlencode

import msgspec
import urllib3
from msgspec.structs import replace
from urllib3.util import Timeout, parse_url

from hived_extender.kube.answers import KubeError, Listing, Watch, body_of, decode, decode_page, no_answer, refusal
from hived_extender.kube.connections import BrokenError
from hived_extender.kube.endpoint import NEVER, Configuration, Credentials, Endpoint, Identity, Way
from hived_extender.kube.packages import missing

__all__ = ("LIVE_PODS", "NAMESPACES", "NODES", "PODS", "KubeClient", "KubeError", "load_configuration", "pod_path")

NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"
VERSION = "/version"
NAMESPACES = "/api/v1/namespaces"
LIVE_PODS = "status.phase!=Succeeded,status.phase!=Failed"
"""A field selector. A pod that completes leaves this selection, which the API server reports as its deletion."""

LIST_PAGE_SIZE = 500
CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 30.0
UNAUTHORIZED = 401

T = TypeVar("T")


class KubeClient:
    """A thread-safe client for the few calls a scheduler needs.

    Objects are decoded into `item_type`, a msgspec Struct naming the fields of interest, or `dict` for all of them. A
    single object that cannot be decoded is logged and left out: it must not hide the others.
    """

    def __init__(self, configuration: Configuration, *, request_timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self._endpoint = Endpoint(configuration)
        self.host = self._endpoint.host
        self._request_timeout_s = request_timeout_s
        self._connect_timeout_s = min(CONNECT_TIMEOUT_S, request_timeout_s)
        self._watches: set[Watch[Any]] = set()
        self._encoder = msgspec.json.Encoder()

    @classmethod
    def connect(cls, api_server: str = "", kubeconfig: str = "", **options: Any) -> "KubeClient":
        """A client for the cluster that `load_configuration` finds; nothing is sent yet."""
        return cls(load_configuration(api_server, kubeconfig), **options)

    def with_timeout(self, request_timeout_s: float) -> "KubeClient":
        """Another client of the same API server, with a pool of its own, that waits this long for an answer."""
        return KubeClient(self._endpoint.configuration, request_timeout_s=request_timeout_s)

    def as_bearer(self, token: str, request_timeout_s: float) -> "KubeClient":
        """Another client of the same API server, which shows this token and nothing of ours. To be closed."""
        shown = Identity(f"Bearer {token}")
        configuration = replace(self._endpoint.configuration, credentials=Credentials(lambda: (shown, NEVER)))
        return KubeClient(configuration, request_timeout_s=request_timeout_s)

    def list_objects(
        self, path: str, item_type: type[T], *, field_selector: str = "", label_selector: str = ""
    ) -> Listing[T]:
        """All objects under `path`, fetched in pages; raises KubeError (410 if a page token expired on the way)."""
        decoder = msgspec.json.Decoder(item_type)
        query = _selector(field_selector) | {"limit": str(LIST_PAGE_SIZE)}
        if label_selector:
            query["labelSelector"] = label_selector
        items: list[T] = []
        while True:
            page, next_page = decode_page(decoder, self._request("GET", path, query), path)
            items += page.items
            if not next_page:
                return Listing(items, page.resource_version)
            query["continue"] = next_page

    def watch(
        self,
        path: str,
        item_type: type[T],
        resource_version: str,
        *,
        field_selector: str = "",
        timeout_s: int = 100,
        read_timeout_s: float = 120.0,
    ) -> "Watch[T]":
        """Changes after `resource_version`, until the server ends the watch after about `timeout_s`.

        The server ends a quiet watch before this client takes the connection for broken.

        Raises KubeError, now or while it is read: with status 410 when the version has expired, 0 when the connection
        broke or stayed silent for `read_timeout_s`; continue from the last event's version in that case.
        """
        query = _selector(field_selector) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_s),
        }
        response = self._open("GET", path, query, read_timeout_s=read_timeout_s)
        return Watch(response, msgspec.json.Decoder(item_type), path, self._watches)

    @overload
    def get(self, path: str) -> dict[str, Any]: ...
    @overload
    def get(self, path: str, item_type: type[T]) -> T: ...
    def get(self, path: str, item_type: Any = dict) -> Any:
        """One object. Raises KubeError."""
        return decode(msgspec.json.Decoder(item_type), self._request("GET", path))

    def text(self, path: str, query: Mapping[str, str]) -> str:
        """An answer that is no object, such as the log of a pod. Raises KubeError."""
        return self._request("GET", path, query).decode("utf-8", "replace")

    def create(
        self, path: str, body: Mapping[str, Any], *, dry_run: bool = False, is_strict: bool = False
    ) -> dict[str, Any]:
        """Create an object in the collection `path` and return it as stored, or as it would be. Raises KubeError.

        `is_strict`: fields that the API server does not know are refused, as for kubectl.
        """
        query = {"dryRun": "All"} if dry_run else {}
        query |= {"fieldValidation": "Strict"} if is_strict else {}
        return decode(msgspec.json.Decoder(dict[str, Any]), self._request("POST", path, query, body=body))

    def replace(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Replace an object; fails with a conflict if its resourceVersion is not the stored one. Raises KubeError."""
        return decode(msgspec.json.Decoder(dict[str, Any]), self._request("PUT", path, body=body))

    def patch(self, path: str, body: Mapping[str, Any], item_type: type[Any] = dict) -> Any:
        """Merge `body` into an object (JSON merge patch: null removes a key) and return it. Raises KubeError."""
        answer = self._request("PATCH", path, body=body, content_type="application/merge-patch+json")
        return decode(msgspec.json.Decoder(item_type), answer)

    def patch_as(self, path: str, body: Mapping[str, Any], manager: str) -> dict[str, Any]:
        """As `patch`, by a field manager of this name. With a `metadata.resourceVersion` in `body`, an object that has
        changed since is a conflict. Raises KubeError.
        """
        kind, query = "application/merge-patch+json", {"fieldManager": manager}
        answer = self._request("PATCH", path, query, body=body, content_type=kind)
        return decode(msgspec.json.Decoder(dict[str, Any]), answer)

    def patch_lists(self, path: str, body: Mapping[str, Any]) -> None:
        """Merge `body` into an object as `patch` does, but lists item by item where the API defines a key.

        Conditions have their type for a key, so that conditions of others stay. A `metadata.uid` in `body` that is not
        the object's is refused. Raises KubeError.
        """
        self._request("PATCH", path, body=body, content_type="application/strategic-merge-patch+json")

    def delete(
        self, path: str, *, uid: str = "", grace_period_s: int | None = None, with_dependents: bool = False
    ) -> None:
        """Delete an object, only the one with this uid if one is given; it may vanish later. Raises KubeError.

        Kinds differ in whether dependents go as well, such as the pods of a Job, unless it is said.
        """
        options = _delete_options(uid, grace_period_s)
        if with_dependents:
            options["propagationPolicy"] = "Background"
        self._request("DELETE", path, body=options)

    def bind_pod(
        self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str], *, version: str = ""
    ) -> None:
        """Bind a pod to a node and write the annotations onto it, in one atomic call. Raises KubeError.

        The uid keeps the call from binding a later pod of the same name, and `version`, a resourceVersion, from binding
        one that has changed since. A pod that has a node already is a conflict too.
        """
        metadata: dict[str, Any] = {"namespace": namespace, "name": name, "uid": uid, "annotations": dict(annotations)}
        if version:
            metadata["resourceVersion"] = version
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        self._request("POST", f"{pod_path(namespace, name)}/binding", body=body)

    def delete_pod(self, namespace: str, name: str, *, uid: str = "", grace_period_s: int | None = None) -> None:
        """Delete a pod, as the scheduler does with victims. Raises KubeError."""
        self.delete(pod_path(namespace, name), uid=uid, grace_period_s=grace_period_s)

    def evict_pod(self, namespace: str, name: str, *, uid: str = "", grace_period_s: int | None = None) -> None:
        """Delete a pod unless a disruption budget forbids it (KubeError 429)."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
            "deleteOptions": _delete_options(uid, grace_period_s),
        }
        self._request("POST", f"{pod_path(namespace, name)}/eviction", body=body)

    def close(self) -> None:
        """End all watches, whichever thread waits for them, and drop idle connections."""
        for watch in tuple(self._watches):
            watch.close()
        self._endpoint.close()

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        """The body of the answer. Raises KubeError."""
        way = self._endpoint.way()
        if way.connections is None:
            response = self._open(method, path, query, body=body, content_type=content_type)
            return body_of(response, f"{method} {self.host}{path}")
        try:
            reply = way.connections.call(
                method,
                _target(path, query),
                _headers(way.token, body, content_type),
                b"" if body is None else self._encoder.encode(body),
                connect_timeout_s=self._connect_timeout_s,
                read_timeout_s=self._request_timeout_s,
            )
        except BrokenError as error:
            raise no_answer(f"{method} {self.host}{path}", error) from error
        if reply.status < 300:
            return reply.body
        raise self._refusal(way, reply.status, reply.body)

    def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        read_timeout_s: float | None = None,
    ) -> urllib3.BaseHTTPResponse:
        """Send a request; returns the response, its body not yet read, or raises KubeError if it is an error."""
        call = f"{method} {self.host}{path}"
        way = self._endpoint.way()
        try:
            response = way.pool.request(
                method,
                self.host + _target(path, query),
                body=None if body is None else self._encoder.encode(body),
                headers=_headers(way.token, body, content_type),
                timeout=Timeout(connect=self._connect_timeout_s, read=read_timeout_s or self._request_timeout_s),
                retries=False,  # who calls knows whether the call can be repeated
                preload_content=False,
            )
        except urllib3.exceptions.HTTPError as error:
            raise no_answer(call, error) from error
        if response.status < 300:
            return response
        raise self._refusal(way, response.status, body_of(response, call))

    def _refusal(self, way: Way, status: int, answer: bytes) -> KubeError:
        if status == UNAUTHORIZED:
            self._endpoint.forget(way)
        return refusal(status, answer)


def load_configuration(api_server: str = "", kubeconfig: str = "") -> Configuration:
    """Find the API server and the credentials for it.

    `kubeconfig` is a path ("" = $KUBECONFIG, else ~/.kube/config, if it is there). An `api_server` overrides the
    address found in it. With neither, the service account of the pod is used. Raises KubeError if nothing usable is
    found.
    """
    if api_server:
        _check_address(api_server)
    if api_server and not kubeconfig:
        return Configuration(api_server.rstrip("/"))
    try:
        configuration = _read([Path(kubeconfig)] if kubeconfig else _default_files())
    except Exception as error:  # a broken kubeconfig makes its readers fail in many ways
        if isinstance(error, ModuleNotFoundError) and (told := missing(error)) is not None:
            raise KubeError(0, "ConfigError", f"credentials for a Kubernetes API server: {told}") from error
        wanted = "kubeApiServerAddress or KUBE_APISERVER_ADDRESS, a kubeconfig file or a service account"
        found = f"kubeconfig {kubeconfig}: {error}" if kubeconfig else str(error)
        message = f"cannot find a Kubernetes API server: expected {wanted}, found none that is usable ({found})"
        raise KubeError(0, "ConfigError", message) from error
    return replace(configuration, host=api_server.rstrip("/")) if api_server else configuration


def _default_files() -> list[Path]:
    """The files that `KUBECONFIG` lists, else ~/.kube/config; files that are not there are left out."""
    listed = os.environ.get("KUBECONFIG") or "~/.kube/config"
    paths = [Path(part).expanduser() for part in listed.split(os.pathsep) if part]
    return [path for path in paths if path.is_file()]


def _read(files: list[Path]) -> Configuration:
    if len(files) == 1 and (server := _address_alone(files[0])):
        return Configuration(server)
    if files:
        from hived_extender.kube.kubeconfig import read_kubeconfig  # noqa: PLC0415  # the official client, 17 MB

        return read_kubeconfig(files)
    from hived_extender.kube.service_account import read_service_account  # noqa: PLC0415  # a part of it, 1 MB

    return read_service_account()


def _address_alone(file: Path) -> str:
    """The API server of a kubeconfig that says nothing else, as that of an embedded cluster; "" of any other.

    No credentials have to be read then, so the official client is not loaded.
    """
    import yaml  # noqa: PLC0415  # where an address is given, no file is read

    try:
        found = yaml.safe_load(file.read_text())
        context = _entry(found, "context", found["current-context"])
        cluster, user = (_entry(found, kind, context[kind]) for kind in ("cluster", "user"))
    except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError):
        return ""  # whoever reads all of it says why
    is_alone = isinstance(cluster, dict) and cluster.keys() == {"server"} and user == {}
    return str(cluster["server"]).rstrip("/") if is_alone and str(cluster["server"]).startswith("http://") else ""


def _entry(document: Any, kind: str, name: Any) -> Any:
    """Return the entry of a kubeconfig for a cluster, a user or a context. Raises ValueError if not once."""
    (found,) = [each[kind] for each in document[f"{kind}s"] if each["name"] == name]
    return found


def _check_address(api_server: str) -> None:
    try:
        url = parse_url(api_server)
        is_usable = url.scheme in ("http", "https", None) and bool(url.host)
    except urllib3.exceptions.LocationParseError:
        is_usable = False
    if not is_usable:
        raise KubeError(0, "ConfigError", f"address of the API server {api_server!r}: expected http[s]://host:port")


def pod_path(namespace: str, name: str) -> str:
    """The path of one pod."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"


def _headers(token: str, body: Mapping[str, Any] | None, content_type: str) -> dict[str, str]:
    headers = {"Accept": "application/json", "User-Agent": "hived"}
    if token:
        headers["Authorization"] = token
    if body is not None:
        headers["Content-Type"] = content_type
    return headers


def _target(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _selector(field_selector: str) -> dict[str, str]:
    return {"fieldSelector": field_selector} if field_selector else {}


def _delete_options(uid: str, grace_period_s: int | None) -> dict[str, Any]:
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if uid:
        options["preconditions"] = {"uid": uid}
    if grace_period_s is not None:
        options["gracePeriodSeconds"] = grace_period_s
    return options
