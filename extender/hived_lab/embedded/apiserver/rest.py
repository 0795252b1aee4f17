"""Requests to operations: the verbs of the Kubernetes API, without a socket.

`Rest.handle` answers every request, however broken, with a `Response` or a `Watch`; what it refuses it refuses with a
`Status`.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hmac import compare_digest

from hived_extender.pods.admission import Admitted
from hived_lab.embedded.apiserver import discovery, models, pod_policy, pods, statuses
from hived_lab.embedded.apiserver.formats import Format, continue_token, read_continue_token
from hived_lab.embedded.apiserver.models import Body, encode, view_of
from hived_lab.embedded.apiserver.patches import patch_of_type
from hived_lab.embedded.apiserver.registry import Check, Registry, allow
from hived_lab.embedded.apiserver.requests import (
    JSON,
    Request,
    Target,
    is_dry_run,
    read_body,
    read_delete_options,
    read_object,
    require_kind,
    target_of,
)
from hived_lab.embedded.apiserver.resources import PODS, ResourceType
from hived_lab.embedded.apiserver.selectors import parse_fields, parse_labels
from hived_lab.embedded.apiserver.statuses import ApiError, Cause, forbidden
from hived_lab.embedded.apiserver.store import Collection, Key, Revision, watch_frame
from hived_lab.embedded.apiserver.validation import unknown_fields
from hived_lab.embedded.apiserver.watching import Filter, Watch

_DEFAULT_WATCH_S = 1800
_INTERACTIVE = ("attach", "exec", "portforward", "proxy")


@dataclass(frozen=True, slots=True)
class Response:
    """One whole HTTP answer."""

    code: int
    content: bytes
    content_type: str = JSON
    warnings: tuple[str, ...] = ()


PodAdmission = Callable[[Body], Admitted]


class Rest:
    """The verbs over one registry.

    `expired_as_status` answers a watch of an expired version with the HTTP status 410, as old API servers did, instead
    of an ERROR event. `admit_pod`, if given, changes pods that are created. With a `hived_token` only its bearer writes
    the parts of pods that `pod_policy` keeps for hived; without one everybody does.
    """

    def __init__(
        self,
        registry: Registry,
        bookmark_interval_s: float,
        expired_as_status: bool,
        admit_pod: PodAdmission | None = None,
        hived_token: str = "",
    ) -> None:
        self._admit_pod = admit_pod
        self._hived_header = f"Bearer {hived_token}".encode() if hived_token else b""
        self._registry = registry
        self._bookmark_interval_s = bookmark_interval_s
        self._expired_as_status = expired_as_status
        self._is_stopping = False

    def stop(self) -> None:
        """End all watches."""
        self._is_stopping = True
        self._registry.store.wake_all()

    def handle(self, request: Request) -> Response | Watch:
        """Answer `request`; a refusal is a `Response` with a `Status`."""
        try:
            return self._dispatch(request)
        except ApiError as error:
            return Response(error.code, encode(error.status()))

    def _dispatch(self, request: Request) -> Response | Watch:
        match request.parts:
            case ("api", "v1", "namespaces", namespace, "bindings") if request.method == "POST":
                return self._bind_named(request, namespace)
        target = target_of(request.parts)
        if target is not None:
            if target.subresource != "log":
                # Whoever cannot be answered must not change anything either.
                request.wants_table()
            if target.subresource:
                return self._subresource(request, target)
            return self._object(request, target) if target.name else self._collection(request, target)
        found = discovery.document(request.parts)
        if found is None:
            raise statuses.unknown_path()
        if request.method != "GET":
            raise statuses.method_not_allowed(request.method)
        if isinstance(found, str):
            return Response(200, found.encode(), "text/plain; charset=utf-8")
        return Response(200, encode(found))

    def _collection(self, request: Request, target: Target) -> Response | Watch:
        if request.method == "GET":
            return self._watch(request, target) if request.parameters.flag("watch") else self._list(request, target)
        if target.namespace is None:
            raise statuses.method_not_allowed(request.method)
        if request.method == "POST":
            return self._create(request, target)
        if request.method == "DELETE":
            return self._delete_collection(request, target)
        raise statuses.method_not_allowed(request.method)

    def _object(self, request: Request, target: Target) -> Response:
        key = Key(target.namespace or "", target.name)
        if request.method == "GET":
            return self._answer(request, target.resource, self._registry.get(target.resource, key))
        if request.method == "PUT":
            return self._replace(request, target, key)
        if request.method == "PATCH":
            return self._patch(request, target, key)
        if request.method == "DELETE":
            return self._delete(request, target.resource, key)
        raise statuses.method_not_allowed(request.method)

    def _subresource(self, request: Request, target: Target) -> Response:
        key = Key(target.namespace or "", target.name)
        if target.resource is PODS and target.subresource in _INTERACTIVE:
            raise statuses.bad_request(f"{target.subresource}: the embedded cluster runs no processes")
        if target.subresource not in {one.name for one in target.resource.subresources}:
            raise statuses.unknown_path()
        match request.method, target.subresource:
            case "GET", "status":
                return self._answer(request, target.resource, self._registry.get(target.resource, key))
            case "PUT", "status":
                return self._replace(request, target, key)
            case "PATCH", "status":
                return self._patch(request, target, key)
            case "POST", "binding":
                return self._bind(request, key)
            case "POST", "eviction":
                return self._evict(request, key)
            case "GET", "log":
                view = self._registry.get(PODS, key).view
                assert isinstance(view, models.Pod)
                return Response(200, pods.logs(view).encode(), "text/plain; charset=utf-8")
        raise statuses.method_not_allowed(request.method)

    def _list(self, request: Request, target: Target) -> Response:
        written = Format(target.resource, request)
        parameters = request.parameters
        collection = self._registry.collection(target.resource)
        version, after = self._list_version(request, collection)
        accepts = self._filter(request, target)
        revisions = collection.snapshot(version)
        keys = sorted(key for key, revision in revisions.items() if accepts(revision))
        if after is not None:
            keys = keys[bisect_right(keys, after) :]
        limit = parameters.number("limit") or len(keys)
        metadata: Body = {"resourceVersion": str(version)}
        if len(keys) > limit:
            metadata["continue"] = continue_token(version, keys[limit - 1])
            if not parameters.text("labelSelector") and not parameters.text("fieldSelector"):
                metadata["remainingItemCount"] = len(keys) - limit
        return Response(200, written.listed([revisions[key] for key in keys[:limit]], metadata))

    def _list_version(self, request: Request, collection: Collection) -> tuple[int, Key | None]:
        """Return the version that a list shows and the key that the last page ended with."""
        parameters = request.parameters
        if token := parameters.text("continue"):
            version, after = read_continue_token(token)
            self._require_known(collection, version)
            return version, after
        version = self._version_parameter(request)
        match = parameters.text("resourceVersionMatch")
        if match not in ("", "Exact", "NotOlderThan") or (match and not parameters.text("resourceVersion")):
            cause = Cause("resourceVersionMatch", f"Forbidden: {match!r} does not fit the other parameters")
            raise statuses.invalid("ListOptions", "", [cause])
        if version > self._registry.store.version or match == "Exact":
            self._require_known(collection, version)
        return (version if match == "Exact" else self._registry.store.version), None

    def _version_parameter(self, request: Request) -> int:
        return request.parameters.number("resourceVersion") or 0

    def _require_known(self, collection: Collection, version: int) -> None:
        if version > self._registry.store.version:
            raise statuses.expired(f"resource version {version} is not of this server: it has been restarted since")
        collection.changes_since(version)

    def _filter(self, request: Request, target: Target) -> Filter:
        strategy, namespace = target.resource.strategy, target.namespace
        labels = parse_labels(request.parameters.text("labelSelector"))
        fields = parse_fields(request.parameters.text("fieldSelector"), strategy.field_names)

        def accepts(revision: Revision) -> bool:
            if namespace is not None and revision.key.namespace != namespace:
                return False
            if labels is not None and not labels(revision.view.metadata.labels):
                return False
            return fields is None or fields(strategy.fields(revision.view))

        return accepts

    def _watch(self, request: Request, target: Target) -> Watch:
        parameters, store = request.parameters, self._registry.store
        written = Format(target.resource, request)
        accepts = self._filter(request, target)
        collection = self._registry.collection(target.resource)
        version = self._version_parameter(request)
        is_streaming_list = parameters.flag("sendInitialEvents")
        if is_streaming_list and parameters.text("resourceVersionMatch") != "NotOlderThan":
            cause = Cause("resourceVersionMatch", "Forbidden: sendInitialEvents requires NotOlderThan")
            raise statuses.invalid("ListOptions", "", [cause])
        initial, timeout_s = b"", float(parameters.number("timeoutSeconds") or _DEFAULT_WATCH_S)
        try:
            if version:
                self._require_known(collection, version)
            if is_streaming_list or (not version and not parameters.text("sendInitialEvents")):
                initial = written.initial(self._accepted(collection, accepts))
            if is_streaming_list or not version:
                version = store.version
        except ApiError as gone:
            if self._expired_as_status:
                raise
            initial, timeout_s, version = watch_frame("ERROR", encode(gone.status())), 0.0, store.version
        has_bookmarks = parameters.flag("allowWatchBookmarks") and timeout_s > 0
        return Watch(
            collection=collection,
            version=version,
            current_version=lambda: store.version,
            initial=initial,
            accepts=accepts,
            render=written.changed,
            timeout_s=timeout_s,
            bookmark=written.bookmark if has_bookmarks else None,
            bookmark_interval_s=self._bookmark_interval_s,
            ends_initial_list=is_streaming_list,
            is_stopping=lambda: self._is_stopping,
        )

    def _accepted(self, collection: Collection, accepts: Filter) -> Iterable[Revision]:
        return [revision for _, revision in sorted(collection.revisions.items()) if accepts(revision)]

    def _create(self, request: Request, target: Target) -> Response:
        body = self._in_namespace(target, self._read(request, target.resource))
        warnings = _field_warnings(request, target.resource, body)
        if target.resource is PODS and self._admit_pod is not None:
            admitted = self._admit_pod(body)
            if admitted.refusal:
                name = body.get("metadata", {}).get("name", "")
                raise forbidden("pods", name, f"the admission webhook denied the request: {admitted.refusal}")
            body, warnings = dict(admitted.pod), (*warnings, *admitted.warnings)
        check = self._check(request, target.resource)
        created = self._registry.create(target.resource, body, request.parameters.is_dry_run(), check=check)
        return self._answer(request, target.resource, created, 201, warnings)

    def _replace(self, request: Request, target: Target, key: Key) -> Response:
        body = self._named(target, self._read(request, target.resource))
        warnings = _field_warnings(request, target.resource, body)
        updated = self._update(request, target, key, body)
        return self._answer(request, target.resource, updated, 200, warnings)

    def _patch(self, request: Request, target: Target, key: Key) -> Response:
        resource, wire = target.resource, target.resource.wire
        apply_patch = patch_of_type(request.content_type)
        patch = models.decode(request.body)
        old = self._registry.get(resource, key).body
        body = read_object(apply_patch(wire.to_wire(old) if wire else old, patch))
        require_kind(body, resource.api_version, resource.kind)
        body = self._named(target, wire.from_wire(body) if wire else body)
        sent = patch if isinstance(patch, dict) else {}
        warnings = _field_warnings(request, resource, wire.from_wire(sent) if wire else sent)
        updated = self._update(request, target, key, body)
        return self._answer(request, resource, updated, 200, warnings)

    def _update(self, request: Request, target: Target, key: Key, body: Body) -> Revision:
        resource, is_status, dry_run = target.resource, target.subresource == "status", request.parameters.is_dry_run()
        check = self._check(request, resource)
        return self._registry.update(resource, key, body, is_status, dry_run, check=check)

    def _check(self, request: Request, resource: ResourceType) -> Check:
        """The admission policy that the stored object has to meet."""
        return allow if resource is not PODS or self._is_of_hived(request) else pod_policy.check_pod

    def _is_of_hived(self, request: Request) -> bool:
        """Whether the request may write what only hived writes."""
        given = request.headers.get("authorization", "").encode()
        return not self._hived_header or compare_digest(given, self._hived_header)

    def _delete(self, request: Request, resource: ResourceType, key: Key) -> Response:
        options = read_delete_options(request)
        dry_run = is_dry_run(options.dry_run) or request.parameters.is_dry_run()
        last = self._registry.delete(resource, key, options, dry_run)
        if resource is PODS:
            return self._answer(request, resource, last)
        uid = last.view.metadata.uid
        done = statuses.success(name=key.name, group=resource.group, kind=resource.plural, uid=uid)
        return Response(200, encode(done))

    def _delete_collection(self, request: Request, target: Target) -> Response:
        options = read_delete_options(request)
        dry_run = is_dry_run(options.dry_run) or request.parameters.is_dry_run()
        accepted = self._accepted(self._registry.collection(target.resource), self._filter(request, target))
        for one in accepted:
            self._registry.delete(target.resource, one.key, options, dry_run=True)
        deleted = [self._registry.delete(target.resource, one.key, options, dry_run) for one in accepted]
        metadata = {"resourceVersion": str(self._registry.store.version)}
        return Response(200, Format(target.resource, request).listed(deleted, metadata))

    def _bind(self, request: Request, key: Key) -> Response:
        body = read_body(request)
        require_kind(body, "v1", "Binding")
        binding = view_of(body, models.Binding)
        _require_name(binding.metadata.name, key)
        if binding.target.kind not in ("", "Node") or not binding.target.name:
            cause = Cause("target", f"Invalid value: a binding needs the name of a Node, not {binding.target!r}")
            raise statuses.invalid("Binding", key.name, [cause])
        if not self._is_of_hived(request):
            pod_policy.check_binding(key.name, body)
        self._registry.bind(key, binding, request.parameters.is_dry_run())
        return Response(201, encode(statuses.success()))

    def _bind_named(self, request: Request, namespace: str) -> Response:
        """Bind by the path that has the pod's name in the body only."""
        name = view_of(read_body(request), models.Binding).metadata.name
        return self._bind(request, Key(namespace, name))

    def _evict(self, request: Request, key: Key) -> Response:
        body = read_body(request)
        require_kind(body, "policy/v1", "Eviction")
        eviction = view_of(body, models.Eviction)
        _require_name(eviction.metadata.name, key)
        options = eviction.delete_options
        self._registry.evict(key, options, is_dry_run(options.dry_run) or request.parameters.is_dry_run())
        return Response(201, encode(statuses.success()))

    def _read(self, request: Request, resource: ResourceType) -> Body:
        body = read_body(request)
        require_kind(body, resource.api_version, resource.kind)
        body = resource.wire.from_wire(body) if resource.wire else body
        view_of(body, resource.view)
        return body

    def _in_namespace(self, target: Target, body: Body) -> Body:
        meta = body.get("metadata", {})
        if not target.resource.is_namespaced:
            return body
        given = meta.get("namespace") or target.namespace
        if given != target.namespace:
            raise statuses.bad_request(
                f"the namespace of the object ({given}) is not that of the path ({target.namespace})"
            )
        return {**body, "metadata": {**meta, "namespace": target.namespace}}

    def _named(self, target: Target, body: Body) -> Body:
        view_of(body, target.resource.view)
        body = self._in_namespace(target, body)
        meta = body.get("metadata", {})
        if meta.get("name", target.name) != target.name:
            raise statuses.bad_request(
                f"the name of the object ({meta['name']}) is not that of the path ({target.name})"
            )
        return body

    def _answer(
        self,
        request: Request,
        resource: ResourceType,
        revision: Revision,
        code: int = 200,
        warnings: tuple[str, ...] = (),
    ) -> Response:
        return Response(code, Format(resource, request).one(revision), warnings=warnings)


def _require_name(given: str, key: Key) -> None:
    if given and given != key.name:
        raise statuses.bad_request(f"the name in the body ({given}) does not match the name of the path ({key.name})")


def _field_warnings(request: Request, resource: ResourceType, sent: Body) -> tuple[str, ...]:
    """Return a warning for each misspelt field; ApiError (400) if the request asks to be refused for them."""
    wish = request.parameters.text("fieldValidation") or "Warn"
    if wish not in ("Strict", "Warn", "Ignore"):
        cause = Cause("fieldValidation", f"Unsupported value: {wish!r}", "FieldValueNotSupported")
        raise statuses.invalid("CreateOptions", "", [cause])
    if wish == "Ignore":
        return ()
    found = tuple(f'unknown field "{path}"' for path in unknown_fields(sent, resource.view))
    if found and wish == "Strict":
        raise statuses.bad_request("strict decoding error: " + ", ".join(found))
    return found
