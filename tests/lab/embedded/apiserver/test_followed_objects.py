"""PodGroups, Workloads and namespaces of the embedded cluster, as the service follows them over HTTP."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from hived_extender.jobs.kinds.description import ObjectKind, ObjectRef
from hived_extender.jobs.kinds.table import OBJECTS
from hived_extender.jobs.namespaces import Namespaces
from hived_extender.jobs.podgroups import Objects
from hived_extender.kube.client import KubeClient
from hived_extender.kube.metrics import Metrics
from hived_lab.embedded.apiserver.server import ApiServer
from tests.expecting import PATIENCE_S, expect_soon
from tests.lab.embedded.helpers import Http

X_K8S = "/apis/scheduling.x-k8s.io/v1alpha1"


def path_of(kind: ObjectKind, namespace: str) -> str:
    """The collection of the version that the embedded API server has."""
    return f"/apis/{kind.group}/{kind.versions[-1]}/namespaces/{namespace}/{kind.plural}"


@pytest.fixture
def followed(server: ApiServer) -> Iterator[tuple[Objects, list[ObjectRef]]]:
    """The objects of that server, and those that changed."""
    kube, told = KubeClient.connect(f"http://127.0.0.1:{server.port}"), list[ObjectRef]()
    objects = Objects(kube, Metrics())
    objects.start(told.append)
    yield objects, told
    objects.stop()
    kube.close()
    objects.join(PATIENCE_S)


@pytest.mark.parametrize("kind", OBJECTS, ids=lambda kind: kind.name)
def test_an_object_of_every_kind_is_followed(
    kind: ObjectKind, followed: tuple[Objects, list[ObjectRef]], http: Http, namespace: str
) -> None:
    objects, told = followed
    assert objects.wait_until_listed(PATIENCE_S)
    ref = kind.ref(namespace, "train")
    http.ok("POST", path_of(kind, namespace), {"metadata": {"name": "train"}, "spec": {}})
    expect_soon(lambda: ref in told)
    assert objects.get(ref.kind, ref.namespace, ref.name) is not None
    told.clear()
    http.ok("DELETE", f"{path_of(kind, namespace)}/train")
    expect_soon(lambda: ref in told)
    assert objects.get(ref.kind, ref.namespace, ref.name) is None


def test_a_status_is_written_by_its_own_path_alone(http: Http, namespace: str) -> None:
    path, train = f"{X_K8S}/namespaces/{namespace}/podgroups", {"metadata": {"name": "train"}}
    http.ok("POST", path, {**train, "spec": {"minMember": 3}})
    http.ok("PUT", f"{path}/train", {**train, "spec": {"minMember": 4}, "status": {"phase": "Failed"}})
    read = http.ok("PUT", f"{path}/train/status", {**train, "spec": {"minMember": 5}, "status": {"phase": "Running"}})
    assert (read["spec"], read["status"]) == ({"minMember": 4}, {"phase": "Running"})


def test_a_misspelt_field_of_a_podgroup_is_refused(http: Http, namespace: str) -> None:
    path = f"{X_K8S}/namespaces/{namespace}/podgroups?fieldValidation=Strict"
    body = {"metadata": {"name": "train"}, "spec": {"minMembers": 3}}
    assert http.refused("POST", path, body)[:2] == (400, "BadRequest")


NAME = "kubernetes.io/metadata.name"


def test_labels_follow_the_namespaces_of_the_api_server(server: ApiServer, namespace: str) -> None:
    path, told = f"/api/v1/namespaces/{namespace}", list[str]()
    with closing(KubeClient.connect(f"http://127.0.0.1:{server.port}")) as kube:
        namespaces = Namespaces(kube, Metrics())
        namespaces.start(told.append)
        assert namespaces.wait_until_listed(PATIENCE_S)
        assert namespaces.labels(namespace) == {NAME: namespace}
        count = told.count(namespace)
        kube.patch(path, {"metadata": {"labels": {"team": "blue"}}})
        expect_soon(lambda: told.count(namespace) > count)
        assert namespaces.labels(namespace) == {NAME: namespace, "team": "blue"}
        namespaces.stop()
        namespaces.join(PATIENCE_S)
