"""Jobs that pages write, try, create and delete for their viewers: by the viewers' own tokens, and by nothing else."""

import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
import yaml
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from hived.values.errors import UserError
from hived_config.access import Access, AccessRules, NamespaceEntry, VirtualClusterAccess
from hived_config.rules import PodRules
from hived_extender.api.waiting import Job
from hived_extender.http.access import ACCESS_REVIEWS, TOKEN_REVIEWS, Gate, Reviews
from hived_extender.http.app import create_app
from hived_extender.http.pages.jobs_pages import object_path
from hived_extender.http.pages.submit_page import Cluster, Fields, pods_of, read, written
from hived_extender.insight.answering import Answering
from hived_extender.insight.listing import ListedJob
from hived_extender.jobs.kinds.marks import USER
from hived_extender.kube.client import KubeClient, load_configuration
from tests.extender.http.pages.test_cluster_pages import BROWSER, text_of
from tests.extender.http.secured import bearer
from tests.extender.machine.small_cluster import SmallCluster, spec_text
from tests.stub_server import Request, StubServer

HERE = {"Host": "localhost", "Origin": "http://localhost", "Accept": BROWSER}
ANN, EVE, OURS = "token-of-ann", "token-of-eve", "token-of-hived"
USERS = {ANN: "ann", EVE: "eve"}
JOBS = "/apis/batch/v1/namespaces/team/jobs"
FIELDS = {
    "name": "train", "namespace": "team", "vc": "a", "leaf_type": "GPU", "gpus": "4", "pods": "2", "priority": "5",
    "image": "pytorch:2", "command": "python train.py", "limit": "2h", "gang": "yes",
}  # fmt: skip
JOB = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\n"
SMALL = Cluster(("a", "b"), {"GPU": "nvidia.com/gpu"}, has_queues=False)


class Kube(StubServer):
    """An API server where Ann may do everything in the namespace team, and Eve nothing; `done` has what was done."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.done: list[tuple[str, str]] = []
        self.shown: set[str] = set()

    def _answer(self, request: Request) -> tuple[int, Any]:
        if request.target in (TOKEN_REVIEWS, ACCESS_REVIEWS):
            review = json.loads(request.body)
            return 201, {**review, "status": self._review(request.target, review["spec"])}
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.shown.add(token)
        if token != ANN:
            return 403, {"reason": "Forbidden", "message": "jobs is forbidden: User eve cannot do this", "code": 403}
        self.done.append((request.method, request.target))
        if request.target.partition("?")[0].endswith("/log"):
            return 200, b"epoch 1\nepoch 2 <b>\n"
        return (201, json.loads(request.body)) if request.method == "POST" else (200, {"kind": "Status"})

    @staticmethod
    def _review(path: str, spec: dict[str, Any]) -> dict[str, Any]:
        if path == TOKEN_REVIEWS:
            user = USERS.get(spec["token"])
            return {"authenticated": True, "user": {"username": user}} if user else {}
        what = spec.get("resourceAttributes")
        is_hers = spec["user"] == "ann" and what is not None and what.get("namespace") != "nlp"
        return {"allowed": what is None or what["verb"] == "get" or is_hers}


@contextmanager
def running(small: SmallCluster | None = None) -> Iterator[tuple[Kube, FlaskClient, SmallCluster]]:
    with Kube() as kube, closing(KubeClient(load_configuration(kube.url))) as ours:
        small = small or SmallCluster()
        with closing(ours.as_bearer(OURS, 30.0)) as service:
            gate = Gate(None, Reviews(service))
            app = create_app(small.service, gate, as_bearer=lambda token: ours.as_bearer(token, 30.0))
            yield kube, app.test_client(), small


@pytest.fixture
def own() -> Iterator[tuple[Kube, FlaskClient, SmallCluster]]:
    with running() as found:
        yield found


def token_in(html: str) -> str:
    found = re.search(r'name="token" value="([0-9a-f]+)"', html)
    return "" if found is None else found[1]


def submit(client: FlaskClient, token: str, **form: str) -> TestResponse:
    headers = HERE | (bearer(token) if token else {})
    shown = client.get("/page/submit", headers=headers)
    return client.post("/page/submit", data={"token": token_in(shown.text), **form}, headers=headers)


def yaml_in(html: str) -> str:
    found = re.search(r"<textarea[^>]*>(.*?)</textarea>", html, re.DOTALL)
    assert found is not None
    return found[1].replace("&#39;", "'").replace("&#34;", '"').lstrip("\n")


def test_a_form_becomes_a_job_that_is_tried_and_created_by_its_author(
    own: tuple[Kube, FlaskClient, SmallCluster],
) -> None:
    kube, client, _ = own
    tried = submit(client, ANN, do="write", **FIELDS)
    assert tried.status_code == 200, tried.text
    words = text_of(tried.text)
    assert "The API server would take it from you." in words
    assert "team/train-0 would start now on n" in words
    assert kube.done == [("POST", f"{JOBS}?dryRun=All&fieldValidation=Strict")]
    job = yaml.safe_load(yaml_in(tried.text))
    assert job["spec"]["activeDeadlineSeconds"] == 7200
    assert job["spec"]["template"]["spec"]["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": 4}}
    made = submit(client, ANN, do="create", yaml=yaml_in(tried.text))
    assert (made.status_code, made.headers["Location"]) == (303, "/page/jobs/Job/team/train")
    assert kube.done[1:] == [("POST", f"{JOBS}?fieldValidation=Strict")]
    assert kube.shown == {ANN}, "the service's own token is shown for nothing of it"


def test_who_may_not_create_jobs_is_told_so_by_the_api_server(own: tuple[Kube, FlaskClient, SmallCluster]) -> None:
    kube, client, _ = own
    for each in ("write", "create"):
        text = written(Fields(**FIELDS), SMALL)
        refused = submit(client, EVE, do=each, yaml=text, **FIELDS)
        assert refused.status_code == 403
        assert "User eve cannot do this" in text_of(refused.text)
    assert kube.done == []


@pytest.mark.parametrize("knows_callers", [False, True])
def test_pages_act_without_a_token_where_nobody_has_one(knows_callers: bool) -> None:
    with Kube() as kube, closing(KubeClient(load_configuration(kube.url))) as ours:
        gate = Gate(None, Reviews(ours)) if knows_callers else None
        app = create_app(SmallCluster().service, gate, as_anyone=lambda: ours.as_bearer(ANN, 30.0))
        made = submit(app.test_client(), "", do="create", yaml=JOB)
        assert (made.status_code, [each for each, _ in kube.done]) == ((401, []) if knows_callers else (303, ["POST"]))


def test_a_job_is_that_of_the_user_in_the_form(own: tuple[Kube, FlaskClient, SmallCluster]) -> None:
    _, client, _ = own
    shown = client.get("/page/submit", headers=HERE | bearer(ANN))
    assert '<input name="user" value="ann"' in shown.text
    tried = submit(client, ANN, do="write", **FIELDS, user="ann")
    assert yaml.safe_load(yaml_in(tried.text))["metadata"]["annotations"] == {USER: "ann"}


def test_without_a_token_the_commands_stand_there_and_nothing_is_created() -> None:
    small = SmallCluster()
    client = create_app(small.service).test_client()
    tried = submit(client, "", do="write", **FIELDS)
    assert "hived submit job.yaml" in text_of(tried.text)
    assert 'value="create"' not in tried.text
    assert "team/train-1 would start now" in text_of(tried.text)
    refused = submit(client, "", do="create", yaml=yaml_in(tried.text))
    assert refused.status_code == 403
    for html in (tried.text, refused.text):
        assert "come through a proxy that adds the header" in text_of(html)


@pytest.mark.parametrize("do", ["submit", ""])
def test_a_word_that_a_form_does_not_have_is_refused_and_nothing_is_tried(
    own: tuple[Kube, FlaskClient, SmallCluster], do: str
) -> None:
    kube, client, _ = own
    refused = submit(client, ANN, do=do, yaml=JOB)
    assert refused.status_code == 400
    assert ": expected one of write, try, create; nothing was tried or created" in text_of(refused.text)
    assert kube.done == []


def test_a_pod_without_devices_is_left_to_kube_scheduler(own: tuple[Kube, FlaskClient, SmallCluster]) -> None:
    _, client, _ = own
    job = yaml.safe_load(written(Fields(**FIELDS), SMALL))
    for container in job["spec"]["template"]["spec"]["containers"]:
        container["resources"] = {"limits": {"cpu": "1"}}
    words = text_of(submit(client, ANN, do="try", yaml=yaml.safe_dump(job)).text)
    assert "would be left to kube-scheduler: it takes no cells: kube-scheduler chooses its node" in words


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("gpu: 4", "gpu: 8", "says that 2 of 2 pods can never run"),
        ("virtual-cluster: a", "virtual-cluster: c", "refuses 2 of 2 pods"),
    ],
)
def test_what_hived_submit_refuses_is_not_created(
    own: tuple[Kube, FlaskClient, SmallCluster], old: str, new: str, says: str
) -> None:
    kube, client, _ = own
    text = written(Fields(**FIELDS), SMALL).replace(old, new)
    refused = submit(client, ANN, do="create", yaml=text)
    assert (refused.status_code, kube.done) == (422, [])
    assert f"nothing was created, because hived {says}: hived submit --unchecked creates it" in text_of(refused.text)
    assert yaml_in(refused.text) == text


def test_the_form_has_a_namespace_and_a_virtual_cluster_that_the_viewer_may_use() -> None:
    listed = {"a": VirtualClusterAccess((NamespaceEntry("nlp"),)), "b": VirtualClusterAccess((NamespaceEntry("team"),))}
    small = SmallCluster(rules=PodRules(access=AccessRules(Access.NAMESPACES, listed)))
    with running(small) as (_, client, _):
        ann, eve = (client.get("/page/submit", headers=HERE | bearer(who)).text for who in (ANN, EVE))
    assert 'name="namespace" value="team"' in ann
    assert "<option selected>b</option>" in ann
    assert 'name="namespace" value="default"' in eve
    assert " selected" not in eve.partition("GPU type")[0]


def test_a_form_of_another_site_creates_nothing(own: tuple[Kube, FlaskClient, SmallCluster]) -> None:
    kube, client, _ = own
    text = written(Fields(**FIELDS), SMALL)
    for headers, token in ((HERE | {"Origin": "https://evil.example"}, ""), (HERE, "0" * 64)):
        form = {"do": "create", "yaml": text, "token": token}
        assert client.post("/page/submit", data=form, headers=headers | bearer(ANN)).status_code == 403
        assert client.post("/page/cancel", data=form, headers=headers | bearer(ANN)).status_code == 403
    assert kube.done == []


def test_what_hived_says_of_a_job_without_room(own: tuple[Kube, FlaskClient, SmallCluster]) -> None:
    _, client, _ = own
    words = text_of(submit(client, ANN, do="write", **FIELDS | {"gpus": "8", "pods": "1"}).text)
    assert "could never start" in words


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "Train 1"}, "name: expected small letters"),
        ({"namespace": "../kube-system"}, "namespace: expected"),
        ({"vc": "none"}, "virtual cluster: expected one of a, b"),
        ({"leaf_type": "T4"}, "GPU type: expected one of GPU"),
        ({"gpus": "many"}, "GPUs per pod: expected a number"),
        ({"pods": "0"}, "pods: expected a number"),
        ({"priority": "2000"}, "priority '2000'"),
        ({"image": ""}, "image: expected"),
        ({"limit": "soon"}, "time limit: expected a length of time"),
        ({"limit": "UNLIMITED"}, "time limit: a limit without end is none: leave it out"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, str], said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        written(Fields(**FIELDS | change), SMALL)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "found 0 documents"),
        ("a: &x [1]\nb: *x", "aliases"),
        ("- " * 30_000, "at most 64 levels"),
        ("? " * 30_000, "at most 64 levels"),
        ("[" * 900 + "]" * 900, "at most 64 levels"),
        ("a: [", "YAML: "),
        ("a: 1\n---\nb: 2", "found 2 documents"),
        ("apiVersion: v1\nkind: Secret\nmetadata: {name: s}", "no job that is known"),
        ("apiVersion: batch/v1\nkind: Job", "and metadata"),
        ("protocolVersion: 2\nname: a\ntype: job", "hived submit job.yaml"),
        ("apiVersion: batch/v1\nkind: Job\nmetadata: {namespace: a/../b}", "no name of a namespace"),
    ],
)
def test_yaml_that_is_no_job_is_refused(text: str, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        read(text)


@pytest.mark.parametrize("metadata", ["[1]", "text", "5"])
def test_a_template_with_other_metadata_is_refused(metadata: str) -> None:
    job = read(f"{JOB}spec: {{template: {{metadata: {metadata}, spec: {{containers: []}}}}}}")
    with pytest.raises(UserError, match=r"spec.template.metadata is .*: expected an object"):
        pods_of(job)


def test_half_a_second_is_a_limit_of_one() -> None:
    assert yaml.safe_load(written(Fields(**FIELDS | {"limit": "0.5s"}), SMALL))["spec"]["activeDeadlineSeconds"] == 1


def test_the_gang_the_queue_and_the_type_are_written_where_they_count() -> None:
    alone = yaml.safe_load(written(Fields(**FIELDS | {"gang": ""}), SMALL))
    assert list(alone["spec"]["template"]["metadata"]["annotations"].values()) == ["a", "5"]
    gang = yaml.safe_load(written(Fields(**FIELDS), SMALL))
    assert gang["spec"]["template"]["metadata"]["annotations"]["gang.scheduling.koordinator.sh/min-available"] == "2"
    several = Cluster(("a",), {"GPU": "nvidia.com/gpu", "T4": "example.com/t4"}, has_queues=True)
    queued = yaml.safe_load(written(Fields(**FIELDS | {"leaf_type": "T4"}), several))
    assert queued["spec"]["suspend"] is True
    assert queued["spec"]["template"]["spec"]["containers"][0]["resources"] == {"limits": {"example.com/t4": 4}}
    assert list(queued["spec"]["template"]["metadata"]["annotations"].values()) == ["a", "5", "T4"]


def test_pods_of_every_kind_are_tried() -> None:
    large = read(written(Fields(**FIELDS | {"pods": "300"}), SMALL))
    assert pods_of(large) == ([], "its 300 pods are too many to be tried here: hived submit --dry-run does")
    template = "{template: {metadata: {labels: {app: a}}, spec: {containers: []}}"
    workers = f"{{Master: {template}}}, Worker: {template}, replicas: 2}}}}"
    head = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: p, namespace: vision}\n"
    several = pods_of(read(f"{head}spec: {{pytorchReplicaSpecs: {workers}}}"))[0]
    assert [f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in several] == [f"vision/p-{at}" for at in range(3)]
    assert all(pod.metadata.labels == {"app": "a"} for pod in several)
    other = read("apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: p}\nspec: {}")
    assert pods_of(other) == ([], "a TrainJob names no pods of its own: its controller makes them elsewhere")
    none = read("apiVersion: batch/v1\nkind: Job\nmetadata: {name: p}\nspec: {parallelism: 0, template: {spec: {}}}")
    assert pods_of(none) == ([], "a Job runs no pods as it is")
    one = read("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: []}")
    assert [(pod.metadata.namespace, pod.metadata.name) for pod in pods_of(one)[0]] == [("default", "p")]


def test_logs_are_read_by_the_viewers_own_rights(own: tuple[Kube, FlaskClient, SmallCluster]) -> None:
    kube, client, small = own
    small.place("p", spec_text())
    shown = client.get("/page/jobs/ns/p", headers=HERE | bearer(ANN)).text
    assert "kubectl logs -n ns p" in text_of(shown)
    assert 'href="/page/log?pod=ns/p"' in shown
    log = client.get("/page/log?pod=ns/p", headers=HERE | bearer(ANN))
    assert "epoch 2 &lt;b&gt;" in log.text
    assert kube.done == [("GET", "/api/v1/namespaces/ns/pods/p/log?tailLines=200&limitBytes=1048576")]
    refused = client.get("/page/log?pod=ns/p", headers=HERE | bearer(EVE))
    assert refused.status_code == 403
    assert "epoch" not in refused.text
    open_client = create_app(small.service).test_client()
    alone = open_client.get("/page/jobs/ns/p", headers=HERE).text
    assert "kubectl logs -n ns p" in text_of(alone)
    assert "/page/log" not in alone
    assert open_client.get("/page/log?pod=ns/p", headers=HERE).status_code == 403


def test_a_job_object_is_deleted_by_the_viewers_own_rights(own: tuple[Kube, FlaskClient, SmallCluster]) -> None:
    kube, client, _ = own
    token = token_in(client.get("/page/submit", headers=HERE | bearer(ANN)).text)
    form = {"token": token, "job": "Job/team/train", "version": "batch/v1"}
    gone = client.post("/page/cancel", data=form, headers=HERE | bearer(ANN))
    assert (gone.status_code, gone.headers["Location"]) == (303, "/page/jobs?q=train")
    assert kube.done == [("DELETE", f"{JOBS}/train")]
    others = token_in(client.get("/page/submit", headers=HERE | bearer(EVE)).text)
    refused = client.post("/page/cancel", data=form | {"token": others}, headers=HERE | bearer(EVE))
    assert refused.status_code == 403
    no_job = client.post("/page/cancel", data=form | {"job": "ns/p"}, headers=HERE | bearer(ANN))
    assert no_job.status_code == 404
    assert len(kube.done) == 1


@pytest.mark.parametrize(
    "name", ["ns/p", "podgroup/ns/g", "Job/team", "Secret/team/s", "Job//x", "", "Job/team/.", "Job/../x"]
)
def test_what_is_no_job_object_has_no_path_to_be_deleted_at(name: str) -> None:
    assert object_path(name, "batch/v1") is None


def test_who_may_not_delete_a_job_finds_the_command(
    own: tuple[Kube, FlaskClient, SmallCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, client, small = own
    small.place("p", spec_text())
    real = Answering.find

    def as_object(self: Answering, name: str) -> Any:
        view, found = real(self, "ns/p")
        job: Job = found.job
        job = Job(name="Job/ns/p", state=job.state, namespace="ns", vc=job.vc, pods=job.pods, api_version="batch/v1")
        return view, ListedJob(job, found.groups)

    monkeypatch.setattr(Answering, "find", as_object)
    ann = client.get("/page/jobs/Job/ns/p", headers=HERE | bearer(ANN)).text
    eve = client.get("/page/jobs/Job/ns/p", headers=HERE | bearer(EVE)).text
    assert 'action="/page/cancel"' in ann
    assert 'action="/page/cancel"' not in eve
    assert "hived delete Job/ns/p" in text_of(eve)
