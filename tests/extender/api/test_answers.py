"""Every answer is what its struct says, and says it in the same bytes."""

from pathlib import Path

import msgspec
import pytest
from flask.testing import FlaskClient

from hived_extender.api.cells import AffinityGroup
from hived_extender.api.configuration import ConfigVersion
from hived_extender.api.waiting import Why
from hived_extender.defrag.desk import DefragDesk
from hived_extender.http.app import create_app
from hived_extender.http.config_pushes import ConfigPushes
from hived_extender.http.routes import ROUTES
from hived_extender.http.routing import Route
from hived_extender.insight.history import HistoryRings
from hived_extender.reconfiguration.stores import FileStore
from tests.extender.service.small_cluster import CONFIG, SmallCluster, pod_json, spec_text, to_pod
from tests.extender.stored_config import configurations_of

READS = [route for route in ROUTES if route.method == "GET" and route.gives not in (None, dict)]


@pytest.fixture
def client(tmp_path: Path) -> FlaskClient:
    cluster = SmallCluster()
    for name in ("p", "q"):
        cluster.place(name, spec_text(group="g", pods=2, leaf_cells=1))
    cluster.place("opportunist", spec_text("b", priority=-1))
    cluster.create("late", spec_text("c", leaf_cells=64))
    foreign = pod_json("foreign", node="n3")
    foreign["spec"] |= {"schedulerName": "default-scheduler"}
    foreign["spec"]["containers"] = [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]
    cluster.service.pod_seen(to_pod(foreign))
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG)
    pushes = ConfigPushes(configurations_of(cluster.service, FileStore(file)), None, is_private=True)
    defrag, history = DefragDesk(cluster.service, lambda: CONFIG), HistoryRings()
    history.record(0.0, {("leaf_cells",): 16})
    return create_app(cluster.service, None, pushes, defrag, history).test_client()


@pytest.mark.parametrize("route", READS, ids=lambda route: route.path)
def test_an_answer_is_byte_for_byte_what_its_struct_encodes_to(client: FlaskClient, route: Route) -> None:
    name = {AffinityGroup: "g", ConfigVersion: "1", Why: "ns/late"}.get(route.gives, "a")
    answer = client.get(route.path.replace("{name}", name))
    assert answer.status_code == 200
    assert msgspec.json.encode(msgspec.json.decode(answer.data, type=route.gives)) == answer.data


def test_the_plan_of_a_broken_text_has_no_changes_at_all(client: FlaskClient) -> None:
    answer = client.post("/v1/config/plan", json={"text": "virtualClusters: 1"})
    assert (answer.status_code, answer.json["changes"]) == (200, {})
