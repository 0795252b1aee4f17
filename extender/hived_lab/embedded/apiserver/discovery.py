"""The answers that clients need before they ask for objects: versions, groups, resources, and OpenAPI.

The OpenAPI document says which paths, verbs and parameters exist, which is what kubectl needs to send
`fieldValidation`; it has no schemas of the objects.
"""

from functools import cache

from hived_lab.embedded.apiserver.bodies import Body
from hived_lab.embedded.apiserver.resources import EVICTION_GROUP_VERSION, RESOURCES, VERBS, ResourceType

VERSION: Body = {
    "major": "1",
    "minor": "32",
    "gitVersion": "v1.32.0+hived",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "hived/embedded",
}
_HEALTH_PATHS = ("healthz", "livez", "readyz")
# kubectl distrusts a group without resources; one without verbs is nothing that it would list or ask for.
_UNSERVED_BUDGETS: Body = {
    "name": "poddisruptionbudgets",
    "singularName": "poddisruptionbudget",
    "namespaced": True,
    "kind": "PodDisruptionBudget",
    "verbs": [],
}
_NAMED_VERBS = {"get": "get", "put": "update", "patch": "patch", "delete": "delete"}
_COLLECTION_VERBS = {"get": "list", "post": "create", "delete": "deletecollection"}
_LIST_PARAMETERS = (
    "allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit", "resourceVersion",
    "resourceVersionMatch", "sendInitialEvents", "timeoutSeconds", "watch",
)  # fmt: skip
_WRITE_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation")
_DELETE_PARAMETERS = ("dryRun", "gracePeriodSeconds", "propagationPolicy")


def document(parts: tuple[str, ...]) -> Body | str | None:
    """Return what a GET of the path `parts` finds: an object, plain text, or None if there is nothing."""
    match parts:
        case ("version",):
            return VERSION
        case (health,) if health in _HEALTH_PATHS:
            return "ok"
        case ("api",):
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ("apis",):
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in _group_names()]}
        case ("apis", group) if group in _group_names():
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group)}
        case ("api", version):
            return _resource_list("", version)
        case ("apis", group, version):
            return _resource_list(group, version)
        case ("openapi", "v3"):
            return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in _group_version_paths()}}
        case ("openapi", "v3", *rest) if "/".join(rest) in _group_version_paths():
            return _openapi("/".join(rest))
    return None


@cache
def _group_versions() -> tuple[tuple[str, str], ...]:
    served = [(resource.group, resource.version) for resource in RESOURCES]
    return tuple(dict.fromkeys([*served, EVICTION_GROUP_VERSION]))


def _group_names() -> tuple[str, ...]:
    return tuple(dict.fromkeys(group for group, _ in _group_versions() if group))


def _group_version_paths() -> tuple[str, ...]:
    return tuple(f"apis/{group}/{version}" if group else f"api/{version}" for group, version in _group_versions())


def _group(name: str) -> Body:
    versions = [
        {"groupVersion": f"{group}/{version}", "version": version}
        for group, version in _group_versions()
        if group == name
    ]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _resource_list(group: str, version: str) -> Body | None:
    if (group, version) not in _group_versions():
        return None
    rows: list[Body] = []
    for resource in RESOURCES:
        if (resource.group, resource.version) == (group, version):
            rows.extend(_resource_rows(resource))
    if (group, version) == EVICTION_GROUP_VERSION:
        rows.append(_UNSERVED_BUDGETS)
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": rows,
    }


def _resource_rows(resource: ResourceType) -> list[Body]:
    row: Body = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.is_namespaced,
        "kind": resource.kind,
        "verbs": list(VERBS),
    }
    if resource.categories:
        row["categories"] = list(resource.categories)
    if resource.short_names:
        row["shortNames"] = list(resource.short_names)
    rows = [row]
    for sub in resource.subresources:
        below: Body = {
            "name": f"{resource.plural}/{sub.name}",
            "singularName": "",
            "namespaced": resource.is_namespaced,
            "kind": sub.kind,
            "verbs": list(sub.verbs),
        }
        if sub.group:
            below |= {"group": sub.group, "version": sub.version}
        rows.append(below)
    return rows


def _openapi(group_version_path: str) -> Body:
    paths: dict[str, Body] = {}
    for resource in RESOURCES:
        if resource.base_path == f"/{group_version_path}":
            prefix = f"{resource.base_path}/namespaces/{{namespace}}" if resource.is_namespaced else resource.base_path
            paths[f"{prefix}/{resource.plural}"] = _operations(resource, _COLLECTION_VERBS)
            paths[f"{prefix}/{resource.plural}/{{name}}"] = _operations(resource, _NAMED_VERBS)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes, embedded", "version": "v1.32.0"},
        "paths": paths,
        "components": {"schemas": {}},
    }


def _operations(resource: ResourceType, verbs: dict[str, str]) -> Body:
    return {method: _operation(resource, method, action) for method, action in verbs.items()}


def _operation(resource: ResourceType, method: str, action: str) -> Body:
    names = {"list": _LIST_PARAMETERS, "get": (), "delete": _DELETE_PARAMETERS, "deletecollection": _DELETE_PARAMETERS}
    return {
        "operationId": f"{action}{resource.kind}{resource.group.partition('.')[0]}{resource.version}",
        "parameters": [
            {"name": name, "in": "query", "schema": {"type": "string"}} for name in names.get(action, _WRITE_PARAMETERS)
        ],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "post" if method == "post" else method,
        "x-kubernetes-group-version-kind": {
            "group": resource.group,
            "version": resource.version,
            "kind": resource.kind,
        },
    }
