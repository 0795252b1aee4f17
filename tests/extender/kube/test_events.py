"""Events as Kubernetes takes them."""

import pytest

from hived_extender.kube.client import KubeClient
from hived_extender.kube.events import MESSAGE_LIMIT, NORMAL, EventRecorder
from hived_extender.machine.pods import PodName
from tests.lab.embedded.helpers import Http, api_server


@pytest.mark.parametrize("length", [1, 253])
def test_names_and_messages_are_cut_to_what_kubernetes_takes(length: int) -> None:
    with api_server() as server:
        kube = KubeClient.connect(server.url)
        EventRecorder(kube, "hived").record(PodName("u", "default", "x" * length), NORMAL, "Waiting", "é" * 2000)
        kube.close()
        (event,) = Http(server.port).ok("GET", "/api/v1/namespaces/default/events")["items"]
    assert len(event["metadata"]["name"]) <= 253
    assert MESSAGE_LIMIT - 2 <= len(event["message"].encode()) <= MESSAGE_LIMIT
