"""Requests to operations: the verbs of the Kubernetes API, without a socket.

`Rest.handle` answers every request, however broken, with a `Response` or a `Watch`; a refusal is a `Status`.
"""

from hmac import compare_digest

from hived_extender.pods.admission import Admission
from hived_lab.embedded.apiserver import discovery, models, pod_policy, pods, statuses
from hived_lab.embedded.apiserver.admitting import admitted
from hived_lab.embedded.apiserver.bodies import Body, decode, encode, view_of
from hived_lab.embedded.apiserver.formats import Format
from hived_lab.embedded.apiserver.patches import patch_of_type
from hived_lab.embedded.apiserver.reads import Reads
from hived_lab.embedded.apiserver.registry import Check, Registry, allow
from hived_lab.embedded.apiserver.requests import (
    Request,
    Response,
    Target,
    in_namespace,
    is_dry_run,
    named,
    read_body,
    read_delete_options,
    read_object,
    read_resource,
    require_kind,
    target_of,
)
from hived_lab.embedded.apiserver.resources import PODS, ResourceType
from hived_lab.embedded.apiserver.statuses import ApiError, Cause
from hived_lab.embedded.apiserver.store import Key, Revision
from hived_lab.embedded.apiserver.validation import unknown_fields
from hived_lab.embedded.apiserver.watching import Watch

_INTERACTIVE = ("attach", "exec", "portforward", "proxy")


class Rest:
    """The verbs over one registry.

    `expired_as_status` answers a watch of an expired version with the HTTP status 410, as old API servers did, instead
    of an ERROR event. The `admission`, if given, changes pods and jobs that are created, and judges quota trees. With
    a `hived_token` only its bearer writes the parts of pods that `pod_policy` keeps for hived; without one everybody
    does.
    """

    def __init__(
        self,
        registry: Registry,
        bookmark_interval_s: float,
        expired_as_status: bool,
        admission: Admission | None = None,
        hived_token: str = "",
    ) -> None:
        self._admission = admission
        self._hived_header = f"Bearer {hived_token}".encode() if hived_token else b""
        self._registry = registry
        self._reads = Reads(registry, bookmark_interval_s, expired_as_status)

    def stop(self) -> None:
        """End all watches."""
        self._reads.stop()

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
                # A request that cannot be answered must not change anything either.
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
            is_watch = request.parameters.flag("watch")
            return self._reads.watch(request, target) if is_watch else self._reads.list(request, target)
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

    def _create(self, request: Request, target: Target) -> Response:
        body = in_namespace(target, read_resource(request, target.resource))
        warnings = _field_warnings(request, target.resource, body)
        if self._admission is not None:
            body, told = admitted(self._admission, target.resource, body)
            warnings = (*warnings, *told)
        check = self._check(request, target.resource)
        created = self._registry.create(target.resource, body, request.parameters.is_dry_run(), check=check)
        return self._answer(request, target.resource, created, 201, warnings)

    def _replace(self, request: Request, target: Target, key: Key) -> Response:
        body = named(target, read_resource(request, target.resource))
        warnings = _field_warnings(request, target.resource, body)
        updated, told = self._update(request, target, key, body)
        return self._answer(request, target.resource, updated, 200, (*warnings, *told))

    def _patch(self, request: Request, target: Target, key: Key) -> Response:
        resource, wire = target.resource, target.resource.wire
        apply_patch = patch_of_type(request.content_type)
        patch = decode(request.body)
        old = self._registry.get(resource, key).body
        body = read_object(apply_patch(wire.to_wire(old) if wire else old, patch))
        require_kind(body, resource.api_version, resource.kind)
        body = named(target, wire.from_wire(body) if wire else body)
        sent = patch if isinstance(patch, dict) else {}
        warnings = _field_warnings(request, resource, wire.from_wire(sent) if wire else sent)
        updated, told = self._update(request, target, key, body)
        return self._answer(request, resource, updated, 200, (*warnings, *told))

    def _update(self, request: Request, target: Target, key: Key, body: Body) -> tuple[Revision, tuple[str, ...]]:
        resource, is_status, dry_run = target.resource, target.subresource == "status", request.parameters.is_dry_run()
        check = self._check(request, resource)
        told: tuple[str, ...] = ()
        if self._admission is not None and not is_status:
            body, told = admitted(self._admission, resource, body, self._registry.get(resource, key).body)
        return self._registry.update(resource, key, body, is_status, dry_run, check=check), told

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
        accepted = self._reads.selected(request, target)
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
