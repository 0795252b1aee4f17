"""An API server in memory, as far as Secrets go."""

import json
from collections.abc import Mapping
from typing import Any

from hived_extender.kube.client import KubeError

Json = dict[str, Any]


class Secrets:
    """Secrets by path, with versions."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.patches = 0
        self._version = 0

    def get(self, path: str) -> Json:
        """A copy of one."""
        if path not in self.objects:
            raise KubeError(404, "NotFound", path)
        found: Json = json.loads(json.dumps(self.objects[path]))
        return found

    def create(self, path: str, body: Mapping[str, Any]) -> None:
        """Add one."""
        name = f"{path}/{body['metadata']['name']}"
        if name in self.objects:
            raise KubeError(409, "AlreadyExists", name)
        self.objects[name] = json.loads(json.dumps(body))
        self._touch(name)

    def patch(self, path: str, body: Mapping[str, Any]) -> None:
        """Merge keys into one, if it has the version that the body names, if any."""
        found = self.get(path)
        version = body.get("metadata", {}).get("resourceVersion", "")
        if version and version != found["metadata"]["resourceVersion"]:
            raise KubeError(409, "Conflict", f"{path} has changed")
        data = self.objects[path].setdefault("data", {})
        data.update(body["data"])
        self.objects[path]["data"] = {key: value for key, value in data.items() if value is not None}
        self._touch(path)
        self.patches += 1

    def _touch(self, path: str) -> None:
        self._version += 1
        self.objects[path].setdefault("metadata", {})["resourceVersion"] = str(self._version)
