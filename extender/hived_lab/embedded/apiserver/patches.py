"""The three kinds of patch, as pure functions from an object and a patch to a new object.

Nothing is changed in place: results share untouched parts with the object they came from.
"""

import copy
from collections.abc import Callable
from typing import Any

from hived_lab.embedded.apiserver.bodies import ApiError, Body, bad_request

MAX_OPERATIONS = 10_000

# Lists of objects that strategic merge joins by a key; every other list is replaced whole. These names mean the same
# list wherever they occur in the kinds served here.
MERGE_KEYS = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "ports": "containerPort",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
MERGED_PRIMITIVE_LISTS = frozenset({"finalizers"})

_DIRECTIVE = "$patch"
_DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"
_RETAIN_KEYS = "$retainKeys"


def patch_of_type(content_type: str) -> Callable[[Body, Any], Any]:
    """Return the function that applies a patch of a media type to an object.

    Raises ApiError (415) for a media type that is not served, server-side apply among them.
    """
    merges: dict[str, Callable[[Body, Any], Any]] = {
        "application/merge-patch+json": merge_patch,
        "application/strategic-merge-patch+json": strategic_merge_patch,
        "application/json-patch+json": json_patch,
    }
    if content_type not in merges:
        offered = ", ".join(merges)
        hint = "; server-side apply is not served, use client-side apply" if "apply-patch" in content_type else ""
        raise ApiError(415, f"the patch type {content_type!r} is not one of {offered}{hint}")
    return merges[content_type]


def merge_patch(target: Any, patch: Any) -> Any:
    """Return `target` merged with `patch` by RFC 7386: null deletes, objects merge, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def strategic_merge_patch(target: Any, patch: Any) -> Any:
    """Return `target` merged with `patch` as `merge_patch` does, but lists of MERGE_KEYS item by item.

    Directives understood: `$patch` (replace, delete, merge), `$deleteFromPrimitiveList/<list>`,
    `$setElementOrder/<list>`, `$retainKeys`.
    """
    if not isinstance(patch, dict):
        return patch
    directive = patch.get(_DIRECTIVE, "merge")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _DIRECTIVE}
    if directive == "delete":
        return {}
    if directive != "merge":
        raise bad_request(f"unknown {_DIRECTIVE} directive {directive!r}")
    merged = _retained(dict(target) if isinstance(target, dict) else {}, patch)
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, list):
            merged[key] = _merge_list(key, merged.get(key), value)
        else:
            merged[key] = strategic_merge_patch(merged.get(key), value)
    return _apply_list_directives(merged, patch)


def _retained(target: Body, patch: Body) -> Body:
    keys = patch.get(_RETAIN_KEYS)
    if keys is None:
        return target
    if not isinstance(keys, list):
        raise bad_request(f"{_RETAIN_KEYS} must be a list")
    return {key: value for key, value in target.items() if key in keys}


def _merge_list(name: str, target: Any, patch: list[Any]) -> list[Any]:
    current = target if isinstance(target, list) else []
    if name in MERGED_PRIMITIVE_LISTS:
        return [*current, *(item for item in patch if item not in current)]
    if name not in MERGE_KEYS:
        return patch
    return _merge_items(MERGE_KEYS[name], current, patch)


def _merge_items(merge_key: str, current: list[Any], patch: list[Any]) -> list[Any]:
    items = [item for item in patch if not (isinstance(item, dict) and item.get(_DIRECTIVE) == "replace")]
    merged = list(current) if len(items) == len(patch) else []
    for item in items:
        if not isinstance(item, dict) or merge_key not in item:
            raise bad_request(f"a list item of the patch has no {merge_key!r}: {item!r}")
        place = _place_of(merged, merge_key, item[merge_key])
        if item.get(_DIRECTIVE) == "delete":
            merged = [other for index, other in enumerate(merged) if index != place]
        elif place is None:
            merged.append(strategic_merge_patch({}, item))
        else:
            merged[place] = strategic_merge_patch(merged[place], item)
    return merged


def _place_of(items: list[Any], merge_key: str, value: Any) -> int | None:
    return next((i for i, item in enumerate(items) if isinstance(item, dict) and item.get(merge_key) == value), None)


def _apply_list_directives(merged: Body, patch: Body) -> Body:
    for key, value in patch.items():
        for prefix, change in ((_DELETE_PRIMITIVES, _without_items), (_ORDER, _ordered)):
            name = key.removeprefix(prefix)
            if name != key and isinstance(merged.get(name), list):
                if not isinstance(value, list):
                    raise bad_request(f"{key} must be a list")
                merged[name] = change(name, merged[name], value)
    return merged


def _without_items(_name: str, items: list[Any], gone: list[Any]) -> list[Any]:
    return [item for item in items if item not in gone]


def _ordered(name: str, items: list[Any], order: list[Any]) -> list[Any]:
    """Put the items that `order` names in its order; the others stay behind them."""
    merge_key = MERGE_KEYS.get(name, "")

    def identity(item: Any) -> Any:
        return item.get(merge_key) if isinstance(item, dict) else item

    wanted = [identity(item) for item in order]
    return sorted(items, key=lambda item: wanted.index(identity(item)) if identity(item) in wanted else len(wanted))


def json_patch(target: Body, patch: Any) -> Any:
    """Return `target` changed by the operations of RFC 6902, all or none."""
    if not isinstance(patch, list) or not all(isinstance(operation, dict) for operation in patch):
        raise bad_request("a JSON patch is a list of operations")
    if len(patch) > MAX_OPERATIONS:
        raise bad_request(f"a JSON patch may have {MAX_OPERATIONS} operations, this has {len(patch)}")
    document: Any = {"": copy.deepcopy(target)}
    for operation in patch:
        _apply_operation(document, operation)
    if "" not in document:
        raise _unfit("the patch leaves no object")
    return document[""]


def _apply_operation(document: Body, operation: Body) -> None:
    """Apply one operation to the value under the key "" of `document`, so that the root has a parent too."""
    verb, path = operation.get("op"), _pointer(operation, "path")
    if verb in ("add", "replace", "test") and "value" not in operation:
        raise bad_request(f"the operation {verb!r} needs a value")
    if verb == "add":
        _insert(document, path, copy.deepcopy(operation["value"]))
    elif verb == "remove":
        _take(document, path)
    elif verb == "replace":
        _take(document, path)
        _insert(document, path, copy.deepcopy(operation["value"]))
    elif verb == "move":
        _insert(document, path, _take(document, _pointer(operation, "from")))
    elif verb == "copy":
        _insert(document, path, copy.deepcopy(_look_up(document, _pointer(operation, "from"))))
    elif verb == "test":
        if _look_up(document, path) != operation["value"]:
            raise _unfit(f"testing value {operation['path']} failed")
    else:
        raise bad_request(f"unknown JSON patch operation {verb!r}")


def _pointer(operation: Body, key: str) -> list[str]:
    text = operation.get(key)
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise bad_request(f"{key!r} must be a JSON pointer, not {text!r}")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")]


def _look_up(document: Any, path: list[str]) -> Any:
    for part in path:
        if isinstance(document, list):
            document = document[_index(document, part, len(document) - 1)]
        elif isinstance(document, dict) and part in document:
            document = document[part]
        else:
            raise _unfit(f"the path {'/'.join(path)!r} does not exist")
    return document


def _insert(document: Body, path: list[str], value: Any) -> None:
    parent = _look_up(document, path[:-1])
    if isinstance(parent, list):
        parent.insert(len(parent) if path[-1] == "-" else _index(parent, path[-1], len(parent)), value)
    elif isinstance(parent, dict):
        parent[path[-1]] = value
    else:
        raise _unfit(f"the path {'/'.join(path)!r} leads into a plain value")


def _take(document: Body, path: list[str]) -> Any:
    value = _look_up(document, path)
    parent = _look_up(document, path[:-1])
    if isinstance(parent, list):
        return parent.pop(_index(parent, path[-1], len(parent) - 1))
    del parent[path[-1]]
    return value


def _index(items: list[Any], part: str, last: int) -> int:
    if not (part.isascii() and part.isdigit()) or len(part) > 9 or int(part) > last:
        raise _unfit(f"the index {part!r} is not in 0..{last}")
    return int(part)


def _unfit(message: str) -> ApiError:
    return ApiError(422, f"the server rejected our request due to an error in our request: {message}")
