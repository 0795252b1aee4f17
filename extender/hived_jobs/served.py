"""The kinds of objects that a cluster serves: its API server is asked once for each group and version."""

from collections.abc import Collection
from typing import NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from hived_extender.kube.client import KubeClient, KubeError

T = TypeVar("T", bound=msgspec.Struct)

INSTALLS = {
    "ray.io": "KubeRay's operator",
    "leaderworkerset.x-k8s.io": "the controller of LeaderWorkerSet",
    "trainer.kubeflow.org": "Kubeflow Trainer",
    "kubeflow.org": "Kubeflow's training operator",
    "jobset.x-k8s.io": "the controller of JobSet",
    "batch.volcano.sh": "Volcano",
    "elastic.iml.github.io": "DLRover's operator",
    "argoproj.io": "Argo Workflows",
    "serving.kserve.io": "KServe",
    "sparkoperator.k8s.io": "the Spark operator",
}
"""The software that brings the kinds of a group, for messages."""


class Resource(NamedTuple):
    """A kind as the API server serves it."""

    plural: str
    is_namespaced: bool


class _Row(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool = True


class _Rows(msgspec.Struct):
    resources: list[_Row] = []


class _Version(msgspec.Struct, rename="camel"):
    group_version: str


class _Group(msgspec.Struct):
    versions: list[_Version] = []


class _Schema(msgspec.Struct):
    kinds: list[dict[str, str]] = msgspec.field(name="x-kubernetes-group-version-kind", default_factory=list)
    properties: dict[str, "_Schema"] = {}


class _Components(msgspec.Struct):
    schemas: dict[str, _Schema] = {}


class _OpenApi(msgspec.Struct):
    components: _Components = msgspec.field(default_factory=_Components)


class Served:
    """The kinds of one cluster."""

    def __init__(self, kube: KubeClient) -> None:
        self._kube = kube
        self._known: dict[str, dict[str, Resource]] = {}

    def find(self, api_version: str, kind: str) -> Resource | None:
        """The kind, None if the cluster does not have it. Raises KubeError if that is not said."""
        if api_version not in self._known:
            rows = self._get(_base(api_version), _Rows())
            self._known[api_version] = {
                row.kind: Resource(row.name, row.namespaced) for row in rows.resources if "/" not in row.name
            }
        return self._known[api_version].get(kind)

    def versions(self, api_version: str, kind: str) -> list[str]:
        """The API versions of the same group in which the cluster has the kind."""
        group = api_version.rpartition("/")[0]
        if not group:
            return []
        found = self._get(f"/apis/{quote(group, safe='')}", _Group()).versions
        return [each.group_version for each in found if self.find(each.group_version, kind) is not None]

    def path(self, api_version: str, kind: str, namespace: str) -> str:
        """The collection of a kind that the cluster has."""
        resource = self.find(api_version, kind)
        assert resource is not None, "it was looked for before"
        where = f"/namespaces/{quote(namespace, safe='')}" if resource.is_namespaced else ""
        return f"{_base(api_version)}{where}/{resource.plural}"

    def spec_fields(self, api_version: str, kind: str) -> Collection[str]:
        """The fields of the spec of a kind; empty where the API server has no schema of it. Raises KubeError."""
        group, _, version = api_version.rpartition("/")
        said = self._get(f"/openapi/v3{_base(api_version)}", _OpenApi()).components.schemas.values()
        name = {"group": group, "version": version, "kind": kind}
        return next((each.properties.get("spec", _Schema()).properties for each in said if name in each.kinds), ())

    def _get(self, path: str, absent: T) -> T:
        try:
            return self._kube.get(path, type(absent))
        except KubeError as error:
            if not error.is_not_found:
                raise
            return absent


def _base(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
