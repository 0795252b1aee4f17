"""Every answer is what its struct says, and says it in the same bytes."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from flask.testing import FlaskClient

from hived_extender.api.cells import AffinityGroup
from hived_extender.api.configuration import ConfigVersion
from hived_extender.api.paths import QUEUE_PATHS, STATUS_PATH
from hived_extender.api.queues import QueuedJob
from hived_extender.api.waiting import Why
from hived_extender.http.app import create_app
from hived_extender.http.change_rights import ConfigPushes
from hived_extender.http.routes import ROUTES
from hived_extender.http.routing import Route
from hived_extender.insight.defrag.desk import DefragDesk
from hived_extender.insight.history import HistoryRings
from hived_extender.queues.answering import QueueAnswers
from hived_extender.reconfiguration.stores import FileStore
from tests.extender.machine.small_cluster import CONFIG, SmallCluster, pod_json, spec_text, to_pod
from tests.extender.queues.embedded_jobs import jobs_on
from tests.extender.stored_config import configurations_of

READS = [
    route
    for route in ROUTES
    if route.method == "GET" and route.gives not in (None, dict) and route.path != STATUS_PATH  # of a whole process
]
OF_QUEUES = [route for route in READS if route.path.startswith(QUEUE_PATHS)]


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


@pytest.fixture(scope="module")
def queues(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlaskClient]:
    """Of an embedded cluster with a job in the queue `b`."""
    with jobs_on(tmp_path_factory.mktemp("queues")) as jobs:
        jobs.create("job", "b")
        jobs.expect(lambda: jobs.runs("job"))
        extender = jobs.running.extender
        yield create_app(extender.service, queues=QueueAnswers(extender.queues)).test_client()


@pytest.mark.parametrize("route", OF_QUEUES, ids=lambda route: route.path)
def test_an_answer_about_queues_is_byte_for_byte_what_its_struct_encodes_to(queues: FlaskClient, route: Route) -> None:
    name = "Job/default/job" if route.gives is QueuedJob else "b"
    answer = queues.get(route.path.replace("{name}", name))
    assert answer.status_code == 200
    assert msgspec.json.encode(msgspec.json.decode(answer.data, type=route.gives)) == answer.data


@pytest.mark.sample(8)
@pytest.mark.parametrize("route", [one for one in READS if one not in OF_QUEUES], ids=lambda route: route.path)
def test_an_answer_is_byte_for_byte_what_its_struct_encodes_to(client: FlaskClient, route: Route) -> None:
    name = {AffinityGroup: "g", ConfigVersion: "1", Why: "ns/late"}.get(route.gives, "a")
    answer = client.get(route.path.replace("{name}", name))
    assert answer.status_code == 200
    assert msgspec.json.encode(msgspec.json.decode(answer.data, type=route.gives)) == answer.data


def test_the_plan_of_a_broken_text_has_no_changes_at_all(client: FlaskClient) -> None:
    answer = client.post("/v1/config/plan", json={"text": "virtualClusters: 1"})
    assert (answer.status_code, answer.json["changes"]) == (200, {})
