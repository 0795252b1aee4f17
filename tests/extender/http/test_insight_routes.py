"""Jobs, nodes and free cells over HTTP: one snapshot for many callers, and tags for those who ask again."""

import json
from typing import Any

import pytest
from flask.testing import FlaskClient

from hived_extender.api.waiting import Job, PodCounts, When
from hived_extender.http.app import create_app
from hived_extender.http.insight_routes import states_of
from hived_extender.insight import answering
from hived_extender.insight.answering import Answering
from hived_extender.insight.forecast import Forecaster
from tests.extender.machine.small_cluster import SmallCluster, node, node_json, pod_json, spec_text, to_node, to_pod

JOBS = "/v1/inspect/jobs"
WHY = "/v1/inspect/why/"
FULL = "needs 1 node of 4 GPUs; a has 2 of 2 in use by one (priority 0) and two (priority 0)"


class Time:
    """Seconds that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def small() -> SmallCluster:
    """VC a is full, and ns/three waits for it; ns/four waits for more than VC b has."""
    small = SmallCluster()
    small.place("one")
    small.place("two")
    small.create("three")
    small.create("four", spec_text("b", leaf_cells=4, priority=7, group="four", pods=3))
    return small


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def client(small: SmallCluster, time: Time) -> FlaskClient:
    return create_app(small.service, insight=Answering(small.service, clock=time)).test_client()


def items(client: FlaskClient, query: str = "") -> list[Any]:
    response = client.get(JOBS + query)
    assert response.status_code == 200
    return list(response.json["items"])


def names(client: FlaskClient, query: str = "") -> list[str]:
    return [item["name"] for item in items(client, query)]


def test_waiting_jobs_come_first_each_with_its_cause(client: FlaskClient) -> None:
    found = items(client)
    assert [(item["name"], item["state"], item.get("cause", "")) for item in found] == [
        ("ns:four", "Waiting", "never"),
        ("ns/three", "Waiting", "in-use"),
        ("ns/one", "Starting", ""),
        ("ns/two", "Starting", ""),
    ]
    assert found[0]["sentence"] == "needs 3 nodes of 4 GPUs each at once; it can never run: b has 1 in all"
    assert found[1]["sentence"] == FULL
    assert found[2]["asks"] == "1 node of 4 GPUs"
    assert found[2]["nodes"] == ["n0"]


@pytest.mark.parametrize(
    ("query", "chosen"),
    [
        ("?vc=b", ["ns:four"]),
        ("?vc=a&vc=b&state=Waiting", ["ns:four", "ns/three"]),
        ("?vc=b&state=waiting", ["ns:four"]),
        ("?node=n0", ["ns/one"]),
        ("?namespace=other", []),
        ("?q=THREE", ["ns/three"]),
        ("?q=never+run", ["ns:four"]),
        ("?user=ann", []),
    ],
)
def test_the_query_chooses_jobs(client: FlaskClient, query: str, chosen: list[str]) -> None:
    assert names(client, query) == chosen


def test_a_new_answer_has_the_pod_of_a_moment_ago(small: SmallCluster, client: FlaskClient) -> None:
    assert "ns/five" not in names(client)
    small.create("five")
    assert "ns/five" not in names(client)  # it is kept, as the clock stands still
    assert "ns/five" in names(client, "?new=1")


def test_a_key_that_means_nothing_is_refused(client: FlaskClient) -> None:
    response = client.get(JOBS + "?cluster=b")
    assert (response.status_code, response.json) == (
        400,
        "'cluster' means nothing here; the query may have vc, state, user, namespace, node, q, queued, pods, ended, "
        "me, selector, new",
    )


def test_jobs_that_have_ended_are_a_list_of_their_own(client: FlaskClient) -> None:
    assert names(client, "?ended=1d") == names(client, "?ended=") == []
    response = client.get(JOBS + "?ended=5")
    assert response.status_code == 400
    assert response.json.startswith("ended: expected a length of time such as 90m")


def test_labels_choose_jobs_by_their_pods_and_nodes_by_their_objects(small: SmallCluster, client: FlaskClient) -> None:
    for name, label in (("five", "nlp"), ("six", "cv")):
        pod = pod_json(name, spec_text())
        pod["metadata"]["labels"] = {"team": label}
        small.service.pod_seen(to_pod(pod))
    assert names(client, "?selector=team%3Dnlp") == ["ns/five"]
    assert names(client, "?selector=team&selector=team!%3Dnlp") == ["ns/six"]
    assert "ns/five" not in names(client, "?selector=!team")
    assert client.get(JOBS + "?selector=a,").status_code == 400
    refused = client.get(JOBS + "?selector=a&ended=1d")
    assert (refused.status_code, refused.json) == (
        400,
        "selector and ended exclude each other: no labels of ended jobs are kept",
    )
    labelled = node_json("n2")
    labelled["metadata"]["labels"] = {"zone": "west"}
    small.service.node_seen(to_node(labelled))
    assert [one["node"] for one in client.get("/v1/inspect/nodes?selector=zone+in+(west)").json] == ["n2"]
    assert "n2" not in [one["node"] for one in client.get("/v1/inspect/nodes?selector=!zone").json]
    assert client.get("/v1/inspect/nodes?selector=!").status_code == 400


def test_the_whole_answer_about_a_job_has_what_would_help(client: FlaskClient) -> None:
    found = client.get(WHY + "ns/three").json
    assert found["job"]["name"] == "ns/three"
    certificate = found["certificate"]
    assert (certificate["sentence"], certificate["cause"]) == (FULL, "in-use")
    assert [holder["group"] for holder in certificate["holders"]] == ["ns/one", "ns/two"]
    assert certificate["reason"].startswith("insufficient capacity")
    assert "ends=ns/one" in [one["change"] for one in certificate["unblock"]]


def test_a_job_that_runs_has_no_certificate(client: FlaskClient) -> None:
    assert "certificate" not in client.get(WHY + "ns/one").json


def test_a_job_that_does_not_exist_is_not_found(client: FlaskClient) -> None:
    response = client.get(WHY + "ns/five")
    assert response.status_code == 404
    assert "no job, pod or affinity group ns/five" in response.json


def test_changes_are_tried_and_not_made(client: FlaskClient) -> None:
    body = json.dumps({"name": "ns/three", "changes": ["priority=5"]})
    found = client.post("/v1/inspect/if", data=body)
    assert (found.status_code, found.json["starts"]) == (200, True)
    assert len(found.json["victims"]) == 1
    assert client.post("/v1/inspect/if", data=body.replace("priority=5", "luck=5")).status_code == 400
    assert client.post("/v1/inspect/if", data=body.replace("three", "one")).status_code == 400


def test_bad_nodes_have_a_reason_and_a_moment(small: SmallCluster, client: FlaskClient) -> None:
    broken = node("n3", is_ready=False)
    assert broken.status is not None
    assert broken.status.conditions is not None
    broken.status.conditions[0].changed = "2026-11-23T13:50:00Z"
    small.service.node_seen(broken)
    (found,) = client.get("/v1/inspect/nodes?bad").json
    assert (found["node"], found["reason"], found["since"]) == ("n3", "NotReady", "2026-11-23T13:50:00Z")
    every = client.get("/v1/inspect/nodes").json
    assert [(one["node"], one.get("free", 0)) for one in every] == [("n0", 0), ("n1", 4), ("n2", 4), ("n3", 0)]


def test_free_cells_are_of_each_level(client: FlaskClient) -> None:
    rows = client.get("/v1/inspect/free-cells").json
    assert {(row["vc"], row["level"]): row.get("free", 0) for row in rows if row["level"] == "NODE"} == {
        ("a", "NODE"): 0, ("b", "NODE"): 1,
    }  # fmt: skip


def test_whoever_has_an_answer_already_gets_none(client: FlaskClient) -> None:
    for path in (JOBS, WHY + "ns/three", "/v1/inspect/nodes", "/v1/inspect/free-cells"):
        tag = client.get(path).headers["ETag"]
        assert client.get(path, headers={"If-None-Match": tag}).status_code == 304


def test_an_answer_lasts_for_a_moment(small: SmallCluster, client: FlaskClient, time: Time) -> None:
    assert len(names(client)) == 4
    small.create("five")
    time.now = answering.FRESH_S / 2
    assert len(names(client)) == 4
    time.now = answering.FRESH_S * 1.5
    assert len(names(client)) == 5


def test_a_job_that_came_after_the_list_is_found_by_its_name(
    small: SmallCluster, client: FlaskClient, time: Time
) -> None:
    assert len(names(client)) == 4
    small.create("five")
    time.now = answering.FRESH_S / 2
    assert client.get(WHY + "ns/five").json["job"]["name"] == "ns/five"
    assert client.get(WHY + "ns/six").status_code == 404


def test_a_job_without_virtual_cluster_has_no_priority_no_place_and_its_reason_once(small: SmallCluster) -> None:
    small.create("wrong", '{"virtualCluster": 7}')
    told = Answering(small.service, Forecaster(small.service)).why("ns/wrong")
    assert (told.job.vc, told.job.priority, told.job.cause) == ("", None, "invalid")
    assert told.when == When(kind="unknown")
    found = items(create_app(small.service, insight=Answering(small.service)).test_client())
    priorities = {one["name"]: one.get("priority", "none") for one in found}
    assert priorities == {"ns:four": 7, "ns/three": 0, "ns/one": 0, "ns/two": 0, "ns/wrong": "none"}


def test_a_replica_that_does_not_lead_says_so() -> None:
    client = create_app(SmallCluster(is_leading=False).service).test_client()
    assert client.get(JOBS).status_code == 503


def test_a_start_that_waits_for_nodes_is_unknown_for_that_reason() -> None:
    small = SmallCluster(bad_nodes=("n0", "n1", "n2", "n3"))
    small.create("one")
    small.filter(small.create("two"))
    told = Answering(small.service, Forecaster(small.service)).why("ns/two")
    assert told.certificate is not None
    assert told.certificate.cause == "bad"
    assert told.when is not None
    assert (told.when.kind, told.when.because) == ("unknown", "it is not known when the nodes are healthy again")


@pytest.mark.parametrize(("lent", "then"), [(0, "starts"), (1, "starts"), (2, "preempts")])
def test_a_node_says_whether_its_jobs_would_start_elsewhere_if_it_were_drained(lent: int, then: str) -> None:
    small = SmallCluster()
    nodes = {name: small.place(name, spec_text(vc, leaf_cells=4))[1] for name, vc in (("one", "a"), ("two", "b"))}
    for number in range(lent):
        small.place(f"lent-{number}", spec_text("a", leaf_cells=4, priority=-1))
    client = create_app(small.service).test_client()
    (found,) = client.get(f"/v1/inspect/nodes?drained={nodes['one']}").json
    assert (found["groups"], found["if_drained"]) == (["ns/one"], [then])
    assert client.get("/v1/inspect/nodes?drained=nowhere").status_code == 404
    (again,) = [one for one in client.get("/v1/inspect/nodes").json if one["node"] == nodes["one"]]
    assert "if_drained" not in again, "it is told of one node, which is asked for"


def test_jobs_of_a_drained_node_that_find_no_others_wait() -> None:
    small = SmallCluster()
    for number in range(2):
        small.place(f"own-{number}", spec_text("a", leaf_cells=4))
    for number in range(2):
        small.place(f"lent-{number}", spec_text("b", leaf_cells=4, priority=-1))
    client = create_app(small.service).test_client()
    told = [client.get(f"/v1/inspect/nodes?drained=n{number}").json[0] for number in range(4)]
    outcomes = {one["groups"][0][:6]: one["if_drained"] for one in told}
    assert outcomes == {"ns/own": ["preempts"], "ns/len": ["waits"]}
    assert all(one.get("pods") == 1 for one in told), "nothing has changed"


def test_a_job_for_which_others_leave_waits_and_one_that_waits_in_part_runs() -> None:
    assert states_of(Job(name="a", state="Preempting")) == ("Preempting", "Waiting")
    in_part = Job(name="b", state="Waiting", counts=PodCounts(wanted=2, running=1, waiting=1))
    assert states_of(in_part) == ("Waiting", "Running")
