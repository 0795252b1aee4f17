"""Labels of namespaces, as the service follows them on the embedded cluster."""

from contextlib import closing

from hived_extender.kube.client import KubeClient
from hived_extender.kube.metrics import Metrics
from hived_extender.pods.namespaces import Namespaces
from hived_lab.embedded.apiserver.server import ApiServer
from tests.expecting import PATIENCE_S, expect_soon

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
