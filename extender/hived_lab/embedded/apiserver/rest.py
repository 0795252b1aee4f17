"""Requests to operations: the verbs of the Kubernetes API, without a socket.

`Rest.handle` answers every request, however broken, with a `Response` or a `Watch`; a refusal is a `Status`.
"""

import base64
import binascii
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from hmac import compare_digest
from itertools import pairwise
from urllib.parse import parse_qsl, unquote

import msgspec

from hived.values.errors import UserError
from hived_config.selectors import matches, read_selector
from hived_extender.jobs.admission import Admission
from hived_extender.kube_rules.resource_rules import Fault
from hived_lab.embedded.apiserver import bodies, kinds, models, resources
from hived_lab.embedded.apiserver.admission import admitted, check_binding, check_pod
from hived_lab.embedded.apiserver.bodies import (
    ApiError,
    Body,
    bad_request,
    decode,
    encode,
    view_of,
    without_nulls,
)
from hived_lab.embedded.apiserver.models import DeleteOptions, unknown_fields
from hived_lab.embedded.apiserver.patches import patch_of_type
from hived_lab.embedded.apiserver.registry import Check, Registry, allow
from hived_lab.embedded.apiserver.resources import PODS, RESOURCES, ResourceType
from hived_lab.embedded.apiserver.store import Change, ChangeType, Collection, Filter, Key, Revision, Watch, watch_frame

JSON = "application/json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_JSON_TYPES = (JSON, "application/*", "*/*")
_PROPAGATION_POLICIES = ("", "Background", "Foreground", "Orphan")
_INTERACTIVE = ("attach", "exec", "portforward", "proxy")
_DEFAULT_WATCH_S = 1800
_UNKNOWN_PATH = "the server could not find the requested resource"
_NOT_ALLOWED = "the server does not allow the method {} on the requested resource"

Predicate = Callable[[Mapping[str, str]], bool]

_FIELD_TERM = re.compile(r"(?P<path>[A-Za-z0-9_./-]+)(?P<sign>==|=|!=)(?P<value>(?:[^\\,=]|\\[\\,=])*)")
_FIELD_COMMA = re.compile(r"(?<!\\)(?:\\\\)*,")


def parse_labels(text: str) -> Predicate | None:
    """Return what `text` demands of a label map, None if nothing; ApiError (400) if it cannot be parsed."""
    try:
        selector = read_selector(text)
    except UserError as error:
        raise bad_request(f"unable to parse label selector {text!r}: {error.message}") from None
    return partial(matches, selector) if selector else None


def parse_fields(text: str, allowed: frozenset[str]) -> Predicate | None:
    """Return what `text` demands of a map of field paths, None if nothing.

    The grammar is `path=value,path!=value`, with a backslash before a comma, an equals sign or a backslash in a value.
    Raises ApiError (400) if it cannot be parsed or names a field outside `allowed`.
    """
    commas = [0, *(comma.end() for comma in _FIELD_COMMA.finditer(text)), len(text) + 1] if text.strip() else []
    terms = [_field_term(text[start : end - 1].strip(), text, allowed) for start, end in pairwise(commas)]
    return (lambda fields: all(term(fields) for term in terms)) if terms else None


def _field_term(term: str, text: str, allowed: frozenset[str]) -> Predicate:
    match = _FIELD_TERM.fullmatch(term)
    if match is None:
        raise bad_request(f"unable to parse field selector {text!r}")
    path, value, is_wanted = match["path"], re.sub(r"\\(.)", r"\1", match["value"]), match["sign"] != "!="
    if path not in allowed:
        raise bad_request(f"field label not supported: {path}")
    return lambda fields: (fields.get(path, "") == value) == is_wanted


@dataclass(frozen=True, slots=True)
class Response:
    """One whole HTTP answer."""

    code: int
    content: bytes
    content_type: str = JSON
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request: the path as sent (still escaped), header names in lower case.

    Of a repeated parameter of the query the first counts.
    """

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def parts(self) -> tuple[str, ...]:
        """The path, split and unescaped."""
        return tuple(unquote(part) for part in self.path.strip("/").split("/"))

    @property
    def content_type(self) -> str:
        """The media type of the body without its parameters; JSON if none is given."""
        return self.headers.get("content-type", JSON).partition(";")[0].strip().lower() or JSON

    def wants_table(self) -> bool:
        """Return True if the first accepted media type that is served is a `Table`; ApiError (406) if none is."""
        for offered in self.headers.get("accept", "*/*").split(","):
            media, *options = [part.strip() for part in offered.split(";")]
            if media not in _JSON_TYPES:
                continue
            asked = dict(option.partition("=")[::2] for option in options)
            if "as" not in asked:
                return False
            if (asked["as"], asked.get("g"), asked.get("v")) == ("Table", "meta.k8s.io", "v1"):
                return True
        raise ApiError(406, f"only the following media types are offered: {JSON}, {TABLE}")

    def text(self, name: str) -> str:
        """Return a parameter as text, empty if it is not given."""
        return self._parameter(name) or ""

    def flag(self, name: str) -> bool:
        """Return a truth value; absent is false, present without a value is true."""
        value = self._parameter(name)
        if value is None or value.lower() in ("false", "0"):
            return False
        if value.lower() in ("true", "1", ""):
            return True
        raise bad_request(f"{name} must be true or false, not {value.lower()!r}")

    def number(self, name: str) -> int | None:
        """Return a whole number of at most 18 digits, None if it is not given."""
        value = self.text(name)
        if value and (not (value.isascii() and value.isdigit()) or len(value) > 18):
            raise bad_request(f"{name} must be a whole number, not {value!r}")
        return int(value) if value else None

    def is_dry_run(self, options: Iterable[str] = ()) -> bool:
        """Return True if nothing shall be stored; ApiError (422) for any other wish than "All"."""
        asked = self._parameter("dryRun")
        for values in (list(options), [] if asked is None else [asked]):
            if any(value != "All" for value in values):
                raise _unsupported("DryRun", "dryRun", values)
            if values:
                return True
        return False

    def _parameter(self, name: str) -> str | None:
        return next((value for key, value in parse_qsl(self.query, keep_blank_values=True) if key == name), None)


def _unsupported(kind: str, name: str, value: object) -> ApiError:
    return bodies.invalid(kind, "", [Fault(name, f"Unsupported value: {value!r}", "FieldValueNotSupported")])


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a path; `namespace` is None for all namespaces, `name` empty for the collection."""

    resource: ResourceType
    namespace: str | None
    name: str = ""
    subresource: str = ""


def target_of(parts: tuple[str, ...]) -> Target | None:
    """Return the collection, object or subresource that the path `parts` names, None if there is no such path."""
    match parts:
        case ("api", version, *rest):
            return _target_in("", version, rest)
        case ("apis", group, version, *rest):
            return _target_in(group, version, rest)
    return None


def _target_in(group: str, version: str, parts: list[str]) -> Target | None:
    served = {one.plural: one for one in RESOURCES if (one.group, one.version) == (group, version)}
    match parts:
        case ["namespaces", namespace, plural, *below] if plural in served and served[plural].is_namespaced:
            return Target(served[plural], namespace, *below) if len(below) <= 2 else None
        case [plural, *below] if plural in served and len(below) <= 2:
            resource = served[plural]
            if resource.is_namespaced:
                return None if below else Target(resource, None)
            return Target(resource, "", *below)
    return None


def read_body(request: Request) -> Body:
    """Return the object in the body without its nulls; ApiError: 400, 415 for a media type that is not read."""
    if request.content_type == bodies.MEDIA_TYPE:
        return read_object(bodies.decode_protobuf(request.body))
    if request.content_type != JSON:
        raise ApiError(415, f"the body must be {JSON}, not {request.content_type!r}")
    return read_object(decode(request.body))


def read_object(value: object) -> Body:
    """Return `value` without its nulls if it is an object; ApiError (400) otherwise."""
    if not isinstance(value, dict):
        raise bad_request("the body must be a JSON object")
    return dict(without_nulls(value))


def require_kind(body: Body, api_version: str, kind: str) -> None:
    """Raise ApiError (400) if `body` says that it is something else than a `kind` of `api_version`."""
    for name, expected in (("apiVersion", api_version), ("kind", kind)):
        given = body.get(name, expected)
        if given != expected:
            raise bad_request(f"the {name} in the data ({given}) does not match the expected {name} ({expected})")


def as_stored(target: Target, body: Body) -> Body:
    """Return an object that was sent as it is stored, with the namespace of the path.

    Raises ApiError (400) if it is none of this kind, or if its namespace or name is not that of the path.
    """
    resource = target.resource
    require_kind(body, resource.api_version, resource.kind)
    body = resource.from_wire(body)
    view_of(body, resource.view)
    meta = body.get("metadata", {})
    if resource.is_namespaced:
        given = meta.get("namespace") or target.namespace
        if given != target.namespace:
            raise bad_request(f"the namespace of the object ({given}) is not that of the path ({target.namespace})")
        body = {**body, "metadata": {**meta, "namespace": target.namespace}}
    if target.name and meta.get("name", target.name) != target.name:
        raise bad_request(f"the name of the object ({meta['name']}) is not that of the path ({target.name})")
    return body


def read_delete_options(request: Request) -> DeleteOptions:
    """Return how to delete: from the body if there is one, else from the parameters."""
    if request.body.strip():
        options = view_of(read_body(request), DeleteOptions)
    else:
        options = DeleteOptions(
            grace_period_seconds=request.number("gracePeriodSeconds"),
            propagation_policy=request.text("propagationPolicy"),
        )
    if options.propagation_policy not in _PROPAGATION_POLICIES:
        raise _unsupported("DeleteOptions", "propagationPolicy", options.propagation_policy)
    return options


_INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}


class _ContinueToken(msgspec.Struct):
    version: int
    namespace: str
    name: str


def continue_token(version: int, last: Key) -> str:
    """Return where the next page of a list begins: after `last`, at the same version."""
    token = msgspec.json.encode(_ContinueToken(version, *last))
    return base64.urlsafe_b64encode(token).decode()


def read_continue_token(text: str) -> tuple[int, Key]:
    """Return what `continue_token` wrote; ApiError (400) if it did not write `text`."""
    try:
        token = msgspec.json.decode(base64.urlsafe_b64decode(text.encode()), type=_ContinueToken)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise bodies.bad_request("continue key is not valid") from error
    return token.version, Key(token.namespace, token.name)


class Format:
    """The format of one answer: objects (in the resource's own form for clients) or tables."""

    def __init__(self, resource: ResourceType, request: Request) -> None:
        self._resource = resource
        self._is_table = request.wants_table()
        self._include = request.text("includeObject") or "Metadata"
        self._has_sent_columns = False

    def one(self, revision: Revision) -> bytes:
        """Return a single object."""
        if self._is_table:
            return encode(self._table([revision], {"resourceVersion": str(revision.version)}))
        return self._json(revision)

    def listed(self, revisions: list[Revision], metadata: Body) -> bytes:
        """Return a list with the `metadata` given; cost O(bytes), objects are not encoded again."""
        if self._is_table:
            return encode(self._table(revisions, metadata))
        head = {"kind": f"{self._resource.kind}List", "apiVersion": self._resource.api_version, "metadata": metadata}
        items = b",".join(self._json(revision) for revision in revisions)
        return encode(head)[:-1] + b',"items":[' + items + b"]}"

    def initial(self, revisions: Iterable[Revision]) -> bytes:
        """Return the lines of a watch for the objects that exist already."""
        return b"".join(watch_frame("ADDED", self._watched(revision)) for revision in revisions)

    def changed(self, change: Change, seen_as: ChangeType) -> bytes:
        """Return the line of a watch for a change."""
        if self._is_table or self._resource.wire:
            return watch_frame(seen_as.value, self._watched(change.after))
        return change.frame(seen_as)

    def bookmark(self, version: int, ends_initial_list: bool) -> bytes:
        """Return the line of a watch for the version that it has reached."""
        metadata: Body = {"resourceVersion": str(version)}
        if ends_initial_list:
            metadata["annotations"] = _INITIAL_EVENTS_END
        bare = {"kind": self._resource.kind, "apiVersion": self._resource.api_version, "metadata": metadata}
        return watch_frame("BOOKMARK", encode(self._table([], metadata) if self._is_table else bare))

    def _watched(self, revision: Revision) -> bytes:
        if not self._is_table:
            return self._json(revision)
        row = self._table([revision], {"resourceVersion": str(revision.version)})
        if self._has_sent_columns:
            row["columnDefinitions"] = None
        self._has_sent_columns = True
        return encode(row)

    def _json(self, revision: Revision) -> bytes:
        return encode(self._resource.to_wire(revision.body)) if self._resource.wire else revision.json

    def _table(self, revisions: Iterable[Revision], metadata: Body) -> Body:
        rows = ((revision.view, revision.body) for revision in revisions)
        return resources.table(self._resource.printer, rows, self._include, metadata)


class Rest:
    """The verbs over one registry.

    The `admission`, if given, changes pods and jobs that are created, and judges quota trees. With a `hived_token` only
    its bearer writes the parts of pods that the pod policy keeps for hived; without one every client does.
    """

    def __init__(
        self,
        registry: Registry,
        bookmark_interval_s: float,
        admission: Admission | None = None,
        hived_token: str = "",
    ) -> None:
        self._registry = registry
        self._bookmark_interval_s = bookmark_interval_s
        self._admission = admission
        self._hived_token = hived_token.encode()
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
                name = view_of(read_body(request), models.Binding).metadata.name
                return self._bind(request, Key(namespace, name))
        target = target_of(request.parts)
        if target is not None:
            if target.subresource != "log":
                # A request that cannot be answered must not change anything either.
                request.wants_table()
            return self._object(request, target) if target.name else self._collection(request, target)
        found = resources.document(request.parts)
        if found is None:
            raise ApiError(404, _UNKNOWN_PATH)
        if request.method != "GET":
            raise ApiError(405, _NOT_ALLOWED.format(request.method))
        return _text(found) if isinstance(found, str) else Response(200, encode(found))

    def _collection(self, request: Request, target: Target) -> Response | Watch:
        if request.method == "GET":
            return self._watch(request, target) if request.flag("watch") else self._list(request, target)
        if target.namespace is not None and request.method == "POST":
            return self._create(request, target)
        if target.namespace is not None and request.method == "DELETE":
            return self._delete_collection(request, target)
        raise ApiError(405, _NOT_ALLOWED.format(request.method))

    def _object(self, request: Request, target: Target) -> Response:
        resource, key, below = target.resource, Key(target.namespace or "", target.name), target.subresource
        if resource is PODS and below in _INTERACTIVE:
            raise bad_request(f"{below}: the embedded cluster runs no processes")
        if below not in {"", *(one.name for one in resource.subresources)}:
            raise ApiError(404, _UNKNOWN_PATH)
        match request.method, below:
            case "GET", "" | "status":
                return self._answer(request, resource, self._registry.get(resource, key))
            case "PUT", "" | "status":
                sent = read_body(request)
                return self._update(request, target, key, sent, sent)
            case "PATCH", "" | "status":
                return self._patch(request, target, key)
            case "DELETE", "":
                return self._delete(request, resource, key)
            case "POST", "binding":
                return self._bind(request, key)
            case "POST", "eviction":
                return self._evict(request, key)
            case "GET", "log":
                return _text(kinds.logs(self._registry.get(PODS, key).view))
        raise ApiError(405, _NOT_ALLOWED.format(request.method))

    # -- lists and watches -----------------------------------------------------------------------

    def _list(self, request: Request, target: Target) -> Response:
        """A list, or a page of it, of one version."""
        written = Format(target.resource, request)
        collection = self._registry.collection(target.resource)
        version, after = self._list_version(request, collection)
        accepts = self._filter(request, target)
        revisions = collection.snapshot(version)
        keys = sorted(key for key, revision in revisions.items() if accepts(revision))
        if after is not None:
            keys = keys[bisect_right(keys, after) :]
        limit = request.number("limit") or len(keys)
        metadata: Body = {"resourceVersion": str(version)}
        if len(keys) > limit:
            metadata["continue"] = continue_token(version, keys[limit - 1])
            if not request.text("labelSelector") and not request.text("fieldSelector"):
                metadata["remainingItemCount"] = len(keys) - limit
        return Response(200, written.listed([revisions[key] for key in keys[:limit]], metadata))

    def _list_version(self, request: Request, collection: Collection) -> tuple[int, Key | None]:
        """Return the version that a list shows and the key that the last page ended with."""
        if token := request.text("continue"):
            version, after = read_continue_token(token)
            self._require_known(collection, version)
            return version, after
        version, match = request.number("resourceVersion") or 0, request.text("resourceVersionMatch")
        if match not in ("", "Exact", "NotOlderThan") or (match and not request.text("resourceVersion")):
            cause = Fault("resourceVersionMatch", f"Forbidden: {match!r} does not fit the other parameters")
            raise bodies.invalid("ListOptions", "", [cause])
        if version > self._registry.store.version or match == "Exact":
            self._require_known(collection, version)
        return (version if match == "Exact" else self._registry.store.version), None

    def _require_known(self, collection: Collection, version: int) -> None:
        if version > self._registry.store.version:
            raise ApiError(410, f"resource version {version} is not of this server: it has been restarted since")
        collection.changes_since(version)

    def _filter(self, request: Request, target: Target) -> Filter:
        strategy, namespace = target.resource.strategy, target.namespace
        labels = parse_labels(request.text("labelSelector"))
        known = frozenset(strategy.fields(target.resource.view()))
        fields = parse_fields(request.text("fieldSelector"), known)

        def accepts(revision: Revision) -> bool:
            if namespace is not None and revision.key.namespace != namespace:
                return False
            if labels is not None and not labels(revision.view.metadata.labels):
                return False
            return fields is None or fields(strategy.fields(revision.view))

        return accepts

    def _accepted(self, target: Target, accepts: Filter) -> list[Revision]:
        revisions = self._registry.collection(target.resource).revisions
        return [revision for _, revision in sorted(revisions.items()) if accepts(revision)]

    def _watch(self, request: Request, target: Target) -> Watch:
        """A watch, which begins with the objects that exist if the request asks for them."""
        store, written = self._registry.store, Format(target.resource, request)
        accepts = self._filter(request, target)
        collection = self._registry.collection(target.resource)
        version = request.number("resourceVersion") or 0
        is_streaming_list = request.flag("sendInitialEvents")
        if is_streaming_list and request.text("resourceVersionMatch") != "NotOlderThan":
            cause = Fault("resourceVersionMatch", "Forbidden: sendInitialEvents requires NotOlderThan")
            raise bodies.invalid("ListOptions", "", [cause])
        initial, timeout_s = b"", float(request.number("timeoutSeconds") or _DEFAULT_WATCH_S)
        try:
            if version:
                self._require_known(collection, version)
            if is_streaming_list or (not version and not request.text("sendInitialEvents")):
                initial = written.initial(self._accepted(target, accepts))
            if is_streaming_list or not version:
                version = store.version
        except ApiError as gone:
            initial, timeout_s, version = watch_frame("ERROR", encode(gone.status())), 0.0, store.version
        has_bookmarks = request.flag("allowWatchBookmarks") and timeout_s > 0
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

    # -- writes ----------------------------------------------------------------------------------

    def _create(self, request: Request, target: Target) -> Response:
        resource, body = target.resource, as_stored(target, read_body(request))
        warnings = _field_warnings(request, resource, body)
        if self._admission is not None:
            body, told = admitted(self._admission, resource, body)
            warnings = (*warnings, *told)
        check = self._check(request, resource)
        created = self._registry.create(resource, body, request.is_dry_run(), check=check)
        return self._answer(request, resource, created, 201, warnings)

    def _patch(self, request: Request, target: Target, key: Key) -> Response:
        apply_patch = patch_of_type(request.content_type)
        patch = decode(request.body)
        old = target.resource.to_wire(self._registry.get(target.resource, key).body)
        body = read_object(apply_patch(old, patch))
        return self._update(request, target, key, body, patch if isinstance(patch, dict) else {})

    def _update(self, request: Request, target: Target, key: Key, body: Body, sent: Body) -> Response:
        """Store `body` in place of the object at `key`; `sent` is the part of it that the client wrote."""
        resource, is_status = target.resource, target.subresource == "status"
        body = as_stored(target, body)
        warnings = _field_warnings(request, resource, resource.from_wire(sent))
        dry_run, check = request.is_dry_run(), self._check(request, resource)
        if self._admission is not None and not is_status:
            body, told = admitted(self._admission, resource, body, self._registry.get(resource, key).body)
            warnings = (*warnings, *told)
        updated = self._registry.update(resource, key, body, is_status, dry_run, check=check)
        return self._answer(request, resource, updated, 200, warnings)

    def _check(self, request: Request, resource: ResourceType) -> Check:
        """The admission policy that the stored object has to meet."""
        return allow if resource is not PODS or self._is_of_hived(request) else check_pod

    def _is_of_hived(self, request: Request) -> bool:
        """True if the request may write what only hived writes."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        is_hiveds = scheme.lower() == "bearer" and compare_digest(token.encode(), self._hived_token)
        return is_hiveds or not self._hived_token

    def _delete(self, request: Request, resource: ResourceType, key: Key) -> Response:
        options = read_delete_options(request)
        last = self._registry.delete(resource, key, options, request.is_dry_run(options.dry_run))
        if resource is PODS:
            return self._answer(request, resource, last)
        uid = last.view.metadata.uid
        done = bodies.success(name=key.name, group=resource.group, kind=resource.plural, uid=uid)
        return Response(200, encode(done))

    def _delete_collection(self, request: Request, target: Target) -> Response:
        options = read_delete_options(request)
        dry_run = request.is_dry_run(options.dry_run)
        accepted = self._accepted(target, self._filter(request, target))
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
            cause = Fault("target", f"Invalid value: a binding needs the name of a Node, not {binding.target!r}")
            raise bodies.invalid("Binding", key.name, [cause])
        if not self._is_of_hived(request):
            check_binding(key.name, body)
        self._registry.bind(key, binding, request.is_dry_run())
        return Response(201, encode(bodies.success()))

    def _evict(self, request: Request, key: Key) -> Response:
        body = read_body(request)
        require_kind(body, "policy/v1", "Eviction")
        eviction = view_of(body, models.Eviction)
        _require_name(eviction.metadata.name, key)
        options = eviction.delete_options
        self._registry.evict(key, options, request.is_dry_run(options.dry_run))
        return Response(201, encode(bodies.success()))

    def _answer(
        self,
        request: Request,
        resource: ResourceType,
        revision: Revision,
        code: int = 200,
        warnings: tuple[str, ...] = (),
    ) -> Response:
        return Response(code, Format(resource, request).one(revision), warnings=warnings)


def _text(text: str) -> Response:
    return Response(200, text.encode(), "text/plain; charset=utf-8")


def _require_name(given: str, key: Key) -> None:
    if given and given != key.name:
        raise bodies.bad_request(f"the name in the body ({given}) does not match the name of the path ({key.name})")


def _field_warnings(request: Request, resource: ResourceType, sent: Body) -> tuple[str, ...]:
    """Return a warning for each misspelt field; ApiError (400) if the request asks to be refused for them."""
    wish = request.text("fieldValidation") or "Warn"
    if wish not in ("Strict", "Warn", "Ignore"):
        raise _unsupported("CreateOptions", "fieldValidation", wish)
    if wish == "Ignore":
        return ()
    found = tuple(f'unknown field "{path}"' for path in unknown_fields(sent, resource.view))
    if found and wish == "Strict":
        raise bodies.bad_request("strict decoding error: " + ", ".join(found))
    return found
