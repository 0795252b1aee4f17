"""Talking to a Kubernetes API server: the only file that imports `kubernetes`.

The official client supplies what is tedious to get right (kubeconfig, tokens and their renewal, TLS, proxies). Bodies
are ours: its models take a hundred times longer to decode than msgspec takes for the few fields that we read. So is
what happens on a connection (`connections.py`), but for watches and where there is a proxy on the way. Every call has a
time-out, and none is made while a lock is held.
"""

import logging
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, overload
from urllib.parse import quote, urlencode

import kubernetes.client
import kubernetes.config
import msgspec
import urllib3
from urllib3.util import Timeout, parse_url

from hived.errors import HivedError
from hived_extender.kube.connections import BrokenError, Connections

log = logging.getLogger(__name__)

NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"
NAMESPACES = "/api/v1/namespaces"
LIVE_PODS = "status.phase!=Succeeded,status.phase!=Failed"
"""A field selector. A pod that completes leaves this selection, which the API server reports as its deletion."""

LIST_PAGE_SIZE = 500
CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 30.0
POOL_SIZE = 32
UNAUTHORIZED = 401
TOKEN_S = 1.0
"""For so long a token is not asked for anew. The client would read the whole environment for each call."""

T = TypeVar("T")


class KubeError(HivedError):
    """The API server refused a call, or gave no answer at all (`status` 0).

    `reason` is the machine-readable one of Kubernetes ("NotFound", "Conflict", "Expired", ...).
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{message} ({status} {reason})" if status else message)
        self.status = status
        self.reason = reason
        self.message = message

    @property
    def is_not_found(self) -> bool:
        """True if the object does not exist."""
        return self.status == 404

    @property
    def is_invalid(self) -> bool:
        """True if the object would not be valid that way; a changed uid is told so by a real API server."""
        return self.status == 422

    @property
    def is_conflict(self) -> bool:
        """True if the object exists already, has another uid or version, or is in the wrong state."""
        return self.status == 409


class _ListMeta(msgspec.Struct):
    resourceVersion: str = ""
    # `continue` is a keyword of Python.
    continue_: str = msgspec.field(name="continue", default="")


class _ListPage(msgspec.Struct):
    items: list[msgspec.Raw] | None = None
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class _WatchLine(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _VersionOnly(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


_line_decoder = msgspec.json.Decoder(_WatchLine)
_version_decoder = msgspec.json.Decoder(_VersionOnly)
_status_decoder = msgspec.json.Decoder(_Status)


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """All objects of a resource, and the version from which a watch continues."""

    items: list[T]
    resource_version: str


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """`type` is ADDED, MODIFIED or DELETED with an object, or BOOKMARK with none."""

    type: str
    object: T | None
    resource_version: str


def pod_path(namespace: str, name: str) -> str:
    """The path of one pod."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"


def load_configuration(api_server: str = "", kubeconfig: str = "") -> kubernetes.client.Configuration:
    """Find out where the API server is and how to authenticate.

    `kubeconfig` is a path ("" = ~/.kube/config if it is there); `api_server`, if given, overrides the address found in
    it. With neither, the service account of the pod we run in is used. Raises KubeError if nothing usable is found.
    """
    configuration = kubernetes.client.Configuration()
    default_file = Path(kubernetes.config.KUBE_CONFIG_DEFAULT_LOCATION).expanduser()
    try:
        if kubeconfig or (not api_server and default_file.is_file()):
            kubernetes.config.load_kube_config(
                config_file=kubeconfig or str(default_file), client_configuration=configuration, persist_config=False
            )
        elif not api_server:
            kubernetes.config.load_incluster_config(client_configuration=configuration)
    except Exception as error:  # a broken kubeconfig makes the client stumble in many ways
        wanted = "kubeApiServerAddress or KUBE_APISERVER_ADDRESS, a kubeconfig file or a service account"
        found = f"kubeconfig {kubeconfig}: {error}" if kubeconfig else str(error)
        message = f"cannot find a Kubernetes API server: expected {wanted}, found none that is usable ({found})"
        raise KubeError(0, "ConfigError", message) from error
    if api_server:
        _check_address(api_server)
        configuration.host = api_server.rstrip("/")
    configuration.connection_pool_maxsize = POOL_SIZE
    return configuration


def _check_address(api_server: str) -> None:
    try:
        url = parse_url(api_server)
        is_usable = url.scheme in ("http", "https", None) and bool(url.host)
    except urllib3.exceptions.LocationParseError:
        is_usable = False
    if not is_usable:
        raise KubeError(0, "ConfigError", f"address of the API server {api_server!r}: expected http[s]://host:port")


class KubeClient:
    """A thread-safe client for the few calls a scheduler needs.

    Objects are decoded into `item_type`, a msgspec Struct naming the fields of interest, or `dict` for all of them. A
    single object that cannot be decoded is logged and left out: it must not hide the others.
    """

    def __init__(
        self, configuration: kubernetes.client.Configuration, *, request_timeout_s: float = REQUEST_TIMEOUT_S
    ) -> None:
        self._configuration = configuration
        # Kept apart: renewing a token resets the configuration to what the kubeconfig says.
        self.host = str(configuration.host)
        self._pool: urllib3.PoolManager = kubernetes.client.ApiClient(configuration).rest_client.pool_manager
        self._connections = _connections(self.host, self._pool)
        self._request_timeout_s = request_timeout_s
        self._connect_timeout_s = min(CONNECT_TIMEOUT_S, request_timeout_s)
        self._known_token = "", -math.inf  # and until when it is good
        self._watches: set[Watch[Any]] = set()
        self._encoder = msgspec.json.Encoder()
        self._page_decoder = msgspec.json.Decoder(_ListPage)

    @classmethod
    def connect(cls, api_server: str = "", kubeconfig: str = "", **options: Any) -> "KubeClient":
        """A client for the cluster that `load_configuration` finds; nothing is sent yet."""
        return cls(load_configuration(api_server, kubeconfig), **options)

    def with_timeout(self, request_timeout_s: float) -> "KubeClient":
        """Another client of the same API server, with a pool of its own, that waits this long for an answer."""
        return KubeClient(self._configuration, request_timeout_s=request_timeout_s)

    def list_objects(self, path: str, item_type: type[T], *, field_selector: str = "") -> Listing[T]:
        """All objects under `path`, fetched in pages; raises KubeError (410 if a page token expired on the way)."""
        decoder = msgspec.json.Decoder(item_type)
        query = _selector(field_selector) | {"limit": str(LIST_PAGE_SIZE)}
        items: list[T] = []
        while True:
            page = _decode(self._page_decoder, self._request("GET", path, query))
            for raw in page.items or ():
                item = _decode_item(decoder, raw, path)
                if item is not None:
                    items.append(item)
            if not page.metadata.continue_:
                return Listing(items, page.metadata.resourceVersion)
            query["continue"] = page.metadata.continue_

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

        It ends a quiet watch, of which it says nothing, before this client takes the connection for broken.

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
        return _decode(msgspec.json.Decoder(item_type), self._request("GET", path))

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object in the collection `path` and return it as stored. Raises KubeError."""
        return _decode(msgspec.json.Decoder(dict[str, Any]), self._request("POST", path, body=body))

    def replace(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Replace an object; fails with a conflict if its resourceVersion is not the stored one. Raises KubeError."""
        return _decode(msgspec.json.Decoder(dict[str, Any]), self._request("PUT", path, body=body))

    def patch(self, path: str, body: Mapping[str, Any], item_type: type[Any] = dict) -> Any:
        """Merge `body` into an object (JSON merge patch: null removes a key) and return it. Raises KubeError."""
        answer = self._request("PATCH", path, body=body, content_type="application/merge-patch+json")
        return _decode(msgspec.json.Decoder(item_type), answer)

    def patch_lists(self, path: str, body: Mapping[str, Any]) -> None:
        """Merge `body` into an object as `patch` does, but lists item by item where the API defines a key.

        Conditions have their type for a key: those of others stay. A `metadata.uid` in `body` that is not the object's
        is refused. Raises KubeError.
        """
        self._request("PATCH", path, body=body, content_type="application/strategic-merge-patch+json")

    def delete(self, path: str, *, uid: str = "", grace_period_s: int | None = None) -> None:
        """Delete an object, only the one with this uid if one is given; it may vanish later. Raises KubeError."""
        self._request("DELETE", path, body=_delete_options(uid, grace_period_s))

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
        self._pool.clear()
        if self._connections is not None:
            self._connections.clear()

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
        if self._connections is None:
            response = self._open(method, path, query, body=body, content_type=content_type)
            return _body(response, f"{method} {self.host}{path}")
        try:
            reply = self._connections.call(
                method,
                _target(path, query),
                self._headers(body, content_type),
                b"" if body is None else self._encoder.encode(body),
                connect_timeout_s=self._connect_timeout_s,
                read_timeout_s=self._request_timeout_s,
            )
        except BrokenError as error:
            raise KubeError(0, "NoAnswer", f"{method} {self.host}{path}: {error}") from error
        if reply.status < 300:
            return reply.body
        if reply.status == UNAUTHORIZED:
            self._known_token = "", -math.inf
        raise _refusal(reply.status, reply.body)

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
        try:
            response = self._pool.request(
                method,
                self.host + _target(path, query),
                body=None if body is None else self._encoder.encode(body),
                headers=self._headers(body, content_type),
                timeout=Timeout(connect=self._connect_timeout_s, read=read_timeout_s or self._request_timeout_s),
                retries=False,  # who calls knows whether the call can be repeated
                preload_content=False,
            )
        except urllib3.exceptions.HTTPError as error:
            raise KubeError(0, "NoAnswer", f"{call}: {error}") from error
        if response.status < 300:
            return response
        raise _refusal(response.status, _body(response, call))

    def _headers(self, body: Mapping[str, Any] | None, content_type: str) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "hived"}
        token = self._token()
        if token:
            headers["Authorization"] = token
        if body is not None:
            headers["Content-Type"] = content_type
        return headers

    def _token(self) -> str:
        """What identifies us to the API server, "" if nothing does; a token that has run out is renewed."""
        token, until = self._known_token
        if time.monotonic() > until:
            token = self._renewed_token()
            self._known_token = token, time.monotonic() + TOKEN_S
        return token

    def _renewed_token(self) -> str:
        try:
            given = self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization") or ""
        except Exception as error:  # renewing reads files and runs programs, which fail in many ways
            raise KubeError(0, "ConfigError", f"the token for the API server cannot be renewed: {error}") from error
        # Files of tokens end in a line break, at which http.client would stumble, quoting the token.
        token = given.strip()
        if not token.isprintable():
            raise KubeError(0, "ConfigError", "the token for the API server has a control character in it")
        return token


class Watch(Generic[T]):
    """A watch that is open: iterate once over its events, from one thread; `close` it from any."""

    def __init__(
        self,
        response: urllib3.BaseHTTPResponse,
        decoder: msgspec.json.Decoder[T],
        path: str,
        open_watches: "set[Watch[Any]]",
    ) -> None:
        self._response = response
        self._decoder = decoder
        self._path = path
        self._open_watches = open_watches
        open_watches.add(self)

    def __iter__(self) -> Iterator[WatchEvent[T]]:
        try:
            for line in _lines(self._response):
                event = self._event(line)
                if event is not None:
                    yield event
        finally:
            self._open_watches.discard(self)
            self._response.close()

    def close(self) -> None:
        """Let the iteration end at once, with a KubeError or as if the server had ended it."""
        # A watch that ends by itself at this moment has no connection any more.
        with suppress(RuntimeError, ValueError, OSError):
            self._response.shutdown()

    def _event(self, line: bytes) -> WatchEvent[T] | None:
        envelope = _decode(_line_decoder, line)
        if envelope.type == "ERROR":
            status = _decode(_status_decoder, envelope.object)
            raise KubeError(status.code, status.reason, status.message)
        version = _decode(_version_decoder, envelope.object).metadata.resourceVersion
        if envelope.type == "BOOKMARK":
            return WatchEvent("BOOKMARK", None, version)
        item = _decode_item(self._decoder, envelope.object, self._path)
        return None if item is None else WatchEvent(envelope.type, item, version)


def _connections(host: str, manager: urllib3.PoolManager) -> Connections | None:
    """Connections of our own, with the options of `manager`; None where it uses a proxy."""
    if type(manager) is not urllib3.PoolManager:
        return None
    options = {name: value for name, value in manager.connection_pool_kw.items() if name not in {"maxsize", "retries"}}
    return Connections(host, options, most_idle=POOL_SIZE)


def _target(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _body(response: urllib3.BaseHTTPResponse, call: str) -> bytes:
    """The rest of a response, whose connection can be used again then. Raises KubeError."""
    try:
        return bytes(response.data)
    except urllib3.exceptions.HTTPError as error:
        raise KubeError(0, "NoAnswer", f"{call}: {error}") from error
    finally:
        response.release_conn()


def _selector(field_selector: str) -> dict[str, str]:
    return {"fieldSelector": field_selector} if field_selector else {}


def _delete_options(uid: str, grace_period_s: int | None) -> dict[str, Any]:
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if uid:
        options["preconditions"] = {"uid": uid}
    if grace_period_s is not None:
        options["gracePeriodSeconds"] = grace_period_s
    return options


def _refusal(status: int, answer: bytes) -> KubeError:
    """The error in the body, a Kubernetes Status or whatever a proxy on the way wrote."""
    try:
        detail = msgspec.json.decode(answer, type=_Status)
    except (ValueError, RecursionError):
        detail = _Status(message=answer[:500].decode(errors="replace"))
    return KubeError(status, detail.reason, detail.message)


def _decode(decoder: msgspec.json.Decoder[T], data: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(data)
    except (ValueError, RecursionError) as error:
        raise KubeError(0, "BadAnswer", f"the API server's answer cannot be decoded: {error}") from error


def _decode_item(decoder: msgspec.json.Decoder[T], raw: msgspec.Raw, path: str) -> T | None:
    try:
        return decoder.decode(raw)
    except (ValueError, RecursionError) as error:
        log.error("an object of %s is left out: %s: %.300r", path, error, bytes(raw))
        return None


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """The lines of a body that is still being sent, each as soon as it is complete."""
    rest = b""
    try:
        for chunk in response.stream(None, decode_content=True):
            *complete, rest = (rest + chunk).split(b"\n")
            yield from (line for line in complete if line)
    except urllib3.exceptions.HTTPError as error:
        raise KubeError(0, "NoAnswer", f"the watch broke: {error}") from error
