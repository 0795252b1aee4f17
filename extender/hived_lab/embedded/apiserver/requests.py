"""A request, read: its path, parameters, media types and the object in it; and the form of an answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote

from hived_lab.embedded.apiserver import models, protobuf, statuses
from hived_lab.embedded.apiserver.bodies import Body, decode, view_of, without_nulls
from hived_lab.embedded.apiserver.resources import RESOURCES, ResourceType
from hived_lab.embedded.apiserver.statuses import Cause

JSON = "application/json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_JSON_TYPES = (JSON, "application/*", "*/*")
_PROPAGATION_POLICIES = ("", "Background", "Foreground", "Orphan")


@dataclass(frozen=True, slots=True)
class Response:
    """One whole HTTP answer."""

    code: int
    content: bytes
    content_type: str = JSON
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request: the path as sent (still escaped), header names in lower case."""

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
    def parameters(self) -> "Parameters":
        """The query."""
        return Parameters(self.query)

    @property
    def content_type(self) -> str:
        """The media type of the body without its parameters; JSON if none is given."""
        return self.headers.get("content-type", JSON).partition(";")[0].strip().lower() or JSON

    def wants_table(self) -> bool:
        """Tell whether the first media type accepted that is served is a `Table`; ApiError (406) if none is served."""
        for offered in self.headers.get("accept", "*/*").split(","):
            media, *options = [part.strip() for part in offered.split(";")]
            if media not in _JSON_TYPES:
                continue
            asked = dict(option.partition("=")[::2] for option in options)
            if "as" not in asked:
                return False
            if (asked["as"], asked.get("g"), asked.get("v")) == ("Table", "meta.k8s.io", "v1"):
                return True
        raise statuses.not_acceptable(f"{JSON}, {TABLE}")


class Parameters:
    """The query of a request; of a repeated parameter the first counts."""

    def __init__(self, query: str) -> None:
        self._values: dict[str, str] = {}
        for name, value in parse_qsl(query, keep_blank_values=True):
            self._values.setdefault(name, value)

    def text(self, name: str) -> str:
        """Return a value as text, empty if it is not given."""
        return self._values.get(name, "")

    def flag(self, name: str) -> bool:
        """Return a truth value; absent is false, present without a value is true."""
        value = self._values.get(name, "false").lower()
        if value in ("true", "1", ""):
            return True
        if value in ("false", "0"):
            return False
        raise statuses.bad_request(f"{name} must be true or false, not {value!r}")

    def number(self, name: str) -> int | None:
        """Return a whole number of at most 18 digits, None if it is not given."""
        value = self._values.get(name, "")
        if not value:
            return None
        if not (value.isascii() and value.isdigit()) or len(value) > 18:
            raise statuses.bad_request(f"{name} must be a whole number, not {value!r}")
        return int(value)

    def is_dry_run(self) -> bool:
        """Tell whether `dryRun` asks that nothing is stored."""
        return is_dry_run([self._values["dryRun"]] if "dryRun" in self._values else [])


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
    if request.content_type == protobuf.MEDIA_TYPE:
        return read_object(protobuf.decode_protobuf(request.body))
    if request.content_type != JSON:
        raise statuses.unsupported_media_type(f"the body must be {JSON}, not {request.content_type!r}")
    return read_object(decode(request.body))


def read_object(value: object) -> Body:
    """Return `value` without its nulls if it is an object; ApiError (400) otherwise."""
    if not isinstance(value, dict):
        raise statuses.bad_request("the body must be a JSON object")
    return dict(without_nulls(value))


def require_kind(body: Body, api_version: str, kind: str) -> None:
    """Raise ApiError (400) if `body` says that it is something else than a `kind` of `api_version`."""
    for field_name, expected in (("apiVersion", api_version), ("kind", kind)):
        given = body.get(field_name, expected)
        if given != expected:
            message = f"the {field_name} in the data ({given}) does not match the expected {field_name} ({expected})"
            raise statuses.bad_request(message)


def read_resource(request: Request, resource: ResourceType) -> Body:
    """Return the object in the body as it is stored; ApiError: 400 if it is none of this kind, 415."""
    body = read_body(request)
    require_kind(body, resource.api_version, resource.kind)
    body = resource.wire.from_wire(body) if resource.wire else body
    view_of(body, resource.view)
    return body


def in_namespace(target: Target, body: Body) -> Body:
    """Return an object with the namespace of the path; ApiError (400) if it names another one."""
    meta = body.get("metadata", {})
    if not target.resource.is_namespaced:
        return body
    given = meta.get("namespace") or target.namespace
    if given != target.namespace:
        raise statuses.bad_request(
            f"the namespace of the object ({given}) is not that of the path ({target.namespace})"
        )
    return {**body, "metadata": {**meta, "namespace": target.namespace}}


def named(target: Target, body: Body) -> Body:
    """Return an object with the namespace of the path; ApiError (400) if that or its name is another one."""
    view_of(body, target.resource.view)
    body = in_namespace(target, body)
    meta = body.get("metadata", {})
    if meta.get("name", target.name) != target.name:
        raise statuses.bad_request(f"the name of the object ({meta['name']}) is not that of the path ({target.name})")
    return body


def read_delete_options(request: Request) -> models.DeleteOptions:
    """Return how to delete: from the body if there is one, else from the parameters."""
    parameters = request.parameters
    if request.body.strip():
        options = view_of(read_body(request), models.DeleteOptions)
    else:
        options = models.DeleteOptions(
            grace_period_seconds=parameters.number("gracePeriodSeconds"),
            propagation_policy=parameters.text("propagationPolicy"),
        )
    if options.propagation_policy not in _PROPAGATION_POLICIES:
        cause = Cause(
            "propagationPolicy", f"Unsupported value: {options.propagation_policy!r}", "FieldValueNotSupported"
        )
        raise statuses.invalid("DeleteOptions", "", [cause])
    return options


def is_dry_run(values: list[str]) -> bool:
    """Tell whether nothing shall be stored; ApiError (422) for any other wish than "All"."""
    if any(value != "All" for value in values):
        cause = Cause("dryRun", f"Unsupported value: {values!r}", "FieldValueNotSupported")
        raise statuses.invalid("DryRun", "", [cause])
    return bool(values)
