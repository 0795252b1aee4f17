"""What an API server does with the writes and patches of job kinds, as far as these need it: pure functions on JSON."""

from copy import deepcopy
from typing import Any

from hived_extender.jobs.kinds.kind import Verb, Write

Json = dict[str, Any]


def merged(target: Any, patch: Any) -> Any:
    """JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def written(document: Json, writes: tuple[Write, ...], path: str) -> Json:
    """The object at `path` after those writes that are for it."""
    for write in writes:
        if write.verb is Verb.PATCH and write.path == path:
            assert write.body["metadata"].get("uid", document["metadata"]["uid"]) == document["metadata"]["uid"]
            document = merged(document, write.body)
    return document


def patched(document: Json, patch: list[Json]) -> Json:
    """JSON patch with operations `add`."""
    result = deepcopy(document)
    for operation in patch:
        assert operation["op"] == "add"
        *outer, key = operation["path"].removeprefix("/").split("/")
        target = result
        for each in outer:
            target = target[each]  # as RFC 6902, the parent has to be there
        if isinstance(target, list):
            assert key == "-"
            target.append(operation["value"])
        else:
            target[key] = operation["value"]
    return result
