"""Queues over HTTP for two tenants: names of others are hidden, and owners hold and release their own jobs alone."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from hived_extender.api.queues import QueueArgs
from hived_extender.api.waiting import MASKED
from hived_extender.http.access import Gate, Reviews
from hived_extender.http.app import create_app
from hived_extender.http.change_rights import ConfigPushes
from hived_extender.jobs.kinds.gates import GATE
from hived_extender.jobs.kinds.marks import USER
from hived_extender.kube.metrics import Metrics
from hived_extender.queues.answering import QueueAnswers
from hived_extender.reconfiguration.stores import ConfigMapStore
from tests.extender.http.pages.test_cluster_pages import BROWSER, text_of
from tests.extender.http.secured import ReviewServer, bearer
from tests.extender.queues.embedded_jobs import JOBS, Jobs, jobs_on, template
from tests.extender.stored_config import api_server, begun, configurations_of

ANN, EVE, BOSS = "token-of-ann", "token-of-eve", "token-of-the-boss"
USERS = {
    token: {"username": name, "groups": ["viewers"]} for token, name in ((ANN, "ann"), (EVE, "eve"), (BOSS, "boss"))
}
PATHS = {("viewers", verb, path) for verb in ("get", "post") for path in ("/v1/*", "/page/*")}
OWN, OTHERS, RUNS = "Job/cv/train", "Job/finance/merger-model", "Job/finance/merger-first"


class Rights(ReviewServer):
    """Ann has the namespace cv, Eve sees it alone, and the boss may do everything."""

    def review_access(self, spec: dict[str, Any]) -> dict[str, Any]:
        what = spec.get("resourceAttributes")
        if what is None:
            return super().review_access(spec)
        asked = (what["verb"], what.get("group", ""), what["resource"], what.get("namespace"))
        viewer = ("get", "", "pods", "cv")
        rights = {"ann": {viewer, ("update", "batch", "jobs", "cv")}, "eve": {viewer}}
        return {"allowed": spec["user"] == "boss" or asked in rights.get(spec["user"], ())}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """A job of another tenant's that runs in queue b; then one of theirs and one of Ann's that wait."""
    with jobs_on(tmp_path_factory.mktemp("tenants")) as found:
        answers = QueueAnswers(found.running.extender.queues)
        found.expect(lambda: found.running.extender.queues.turns is not None)
        for namespace in ("cv", "finance"):
            found.kube.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        for name in (RUNS, OTHERS, OWN):
            _, namespace, short = name.split("/")
            spec = {"suspend": True, "parallelism": 1, "completions": 1, "template": template("b", 8, "10", "100000")}
            labels = {} if name == RUNS else {"app": "train"}
            meta = {"name": short, "labels": labels, "annotations": {USER: f"{namespace}-boss"}}
            found.kube.create(JOBS.replace("default", namespace), {"metadata": meta, "spec": spec})
            found.expect(lambda: any(job.position == 0 for job in answers.jobs()))  # the first one runs
        found.expect(lambda: len(answers.jobs("b")) == 3)
        answers.act(QueueArgs(OTHERS, "move", "front"))
        yield found


@pytest.fixture(scope="module")
def client(jobs: Jobs) -> Iterator[FlaskClient]:
    extender = jobs.running.extender
    with Rights.running(USERS, PATHS) as reviews, api_server() as kube:
        gate = Gate(None, Reviews(reviews.kube))
        store = begun(ConfigMapStore(kube, "kube-system", "hived-config", Metrics()))
        pushes = ConfigPushes(configurations_of(extender.service, store), gate.may_do, is_private=False)
        yield create_app(
            extender.service, gate, pushes, insight=extender.insight, queues=QueueAnswers(extender.queues)
        ).test_client()


def get(client: FlaskClient, path: str, token: str = ANN, status: int = 200, **headers: str) -> Any:
    answer = client.get(path, headers=bearer(token) | headers)
    assert answer.status_code == status, answer.text
    return answer


def items(client: FlaskClient, query: str = "", token: str = ANN) -> list[str]:
    return [job["name"] for job in get(client, f"/v1/inspect/queues/jobs/b{query}", token).json["items"]]


def change(client: FlaskClient, token: str, **args: str) -> tuple[int, Any]:
    answer = client.post("/v1/queues", json=args, headers=bearer(token))
    return answer.status_code, answer.json


def page(client: FlaskClient, path: str, token: str = ANN, status: int = 200) -> str:
    return str(get(client, path, token, status, Accept=BROWSER).text)


# Names


def test_the_jobs_of_others_are_masked_and_keep_their_places(client: FlaskClient) -> None:
    assert items(client) == [MASKED, OWN, MASKED]
    assert items(client, token=BOSS) == [OTHERS, OWN, RUNS]


def test_labels_choose_jobs_of_queues_but_none_that_are_masked(client: FlaskClient) -> None:
    assert items(client, "?selector=app%3Dtrain", BOSS) == [OTHERS, OWN]
    assert items(client, "?selector=app%3Dtrain") == [OWN]
    assert items(client, "?selector=!app", BOSS) == [RUNS]
    assert items(client, "?namespace=cv&namespace=finance", BOSS) == [OTHERS, OWN, RUNS]
    for token, found in ((BOSS, [OTHERS, OWN]), (ANN, [OWN])):
        listed = get(client, "/v1/inspect/jobs?queued=9&selector=app%3Dtrain", token).json["items"]
        assert [job["name"] for job in listed] == found
    assert get(client, "/v1/inspect/queues/jobs/b?selector=a=b=c", status=400).json.startswith("selector 'a=b=c'")


@pytest.mark.parametrize("name", [OTHERS, "finance/merger-model", "merger-model", "Job/finance/none"])
def test_a_hidden_job_is_as_unknown_as_one_that_does_not_exist(client: FlaskClient, name: str) -> None:
    assert get(client, f"/v1/inspect/queues/job/{name}", status=404).json.startswith(f"no job {name!r} is in a queue")
    told = unescape(text_of(page(client, f"/page/jobs/{name}", status=404)))
    assert f"No job, pod or affinity group {name} waits" in told
    status, said = change(client, ANN, job=name, action="hold")
    assert (status, said.startswith(f"no job {name!r} is in a queue")) == (404, True)


def test_no_answer_names_a_hidden_job(client: FlaskClient) -> None:
    paths = (
        "/v1/inspect/queues",
        "/v1/inspect/queues/jobs",
        f"/v1/inspect/queues/job/{OWN}",
    )
    pages = ("/page/queues", "/page/queues/b", f"/page/jobs/{OWN}")
    texts = [get(client, path).text for path in paths] + [page(client, path) for path in pages]
    assert [text for text in texts if "merger" in text or "finance" in text] == []


def test_nobody_finds_a_hidden_job_by_a_part_of_its_name(client: FlaskClient) -> None:
    for query in ("?prefix=merger", "?prefix=Job/fin", "?namespace=finance", "?user=finance-boss"):
        assert items(client, query) == []
        assert items(client, query, BOSS) != []


def test_names_that_are_nearly_right_are_told_to_those_alone_who_see_them(client: FlaskClient) -> None:
    assert "nearest: train" in change(client, ANN, job="trian", action="hold")[1]
    assert "nearest: merger-model" in change(client, BOSS, job="merger-modle", action="hold")[1]
    assert "merger-model" not in change(client, ANN, job="merger-modle", action="hold")[1].replace("merger-modle", "")


# Parts of a list


def test_a_list_comes_in_parts_that_follow_each_other(client: FlaskClient) -> None:
    first = get(client, "/v1/inspect/queues/jobs/b?limit=2", BOSS).json
    assert ([job["name"] for job in first["items"]], first["total"]) == ([OTHERS, OWN], 3)
    last = get(client, f"/v1/inspect/queues/jobs/b?limit=2&continue={first['continue']}", BOSS).json
    assert ([job["name"] for job in last["items"]], last["continue"]) == ([RUNS], "")


def test_a_list_that_has_not_changed_is_not_sent_again(client: FlaskClient) -> None:
    for path in ("/v1/inspect/queues", "/v1/inspect/queues/jobs/b?limit=2"):
        tag = get(client, path).headers["ETag"]
        assert get(client, path, status=304, **{"If-None-Match": tag}).data == b""


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("limit=0", "expected a number of jobs, such as 500"),
        ("limit=-3", "limit='-3': expected a number of jobs"),
        ("limit=many", "limit='many': expected a number of jobs"),
        ("continue=x", "continue='x': expected the \"continue\" of the answer before"),
        ("from=3", "'from' means nothing here; the query may have limit, continue"),
    ],
)
def test_a_question_with_a_mistake_is_refused(client: FlaskClient, query: str, said: str) -> None:
    assert said in get(client, f"/v1/inspect/queues/jobs/b?{query}", status=400).json


# Changes


def test_an_owner_holds_and_releases_their_own_job_and_no_other_one(client: FlaskClient) -> None:
    status, job = change(client, ANN, job="train", action="hold")
    assert (status, job["name"], job["state"]) == (200, OWN, "Held")
    status, job = change(client, ANN, job=OWN, action="release")
    assert (status, job["state"]) == (200, "Waiting")


def test_an_owner_moves_nothing(client: FlaskClient) -> None:
    status, said = change(client, ANN, job=OWN, action="move", to="front")
    assert (status, f"ann may not move {OWN}: no role of theirs allows 'update' on " in said) == (403, True)
    assert items(client, token=BOSS) == [OTHERS, OWN, RUNS]


def test_who_sees_a_job_but_may_not_update_it_changes_nothing(client: FlaskClient) -> None:
    status, said = change(client, EVE, job=OWN, action="hold")
    assert (status, said) == (
        403,
        f"eve may not hold {OWN}: no role of theirs allows 'update' on it, or on the configuration",
    )


def test_an_administrator_holds_and_moves_all_jobs(client: FlaskClient) -> None:
    assert change(client, BOSS, job=OWN, action="move", to="front")[1]["position"] == 1
    assert change(client, BOSS, job=OTHERS, action="move", to=OWN)[1]["position"] == 1


def buttons(client: FlaskClient, token: str) -> list[str]:
    return re.findall(r'name="change" value="(\w+)"', page(client, f"/page/jobs/{OWN}", token))


def test_a_move_without_a_place_is_a_mistake(client: FlaskClient) -> None:
    status, said = change(client, BOSS, job=OWN, action="move")
    assert (status, said) == (
        400, '"to" is missing: a move expects "front", "back", or the name of the job that it goes before'
    )  # fmt: skip


def test_a_page_has_the_buttons_that_somebody_may_press(client: FlaskClient) -> None:
    assert buttons(client, ANN) == ["hold"]
    assert buttons(client, EVE) == []
    assert buttons(client, BOSS) == ["hold", "front", "back"]


def test_the_form_of_an_owner_holds_and_does_not_move(client: FlaskClient) -> None:
    found = re.search(r'name="token" value="([0-9a-f]+)"', page(client, f"/page/jobs/{OWN}"))
    assert found is not None
    headers = bearer(ANN) | {"Host": "localhost", "Origin": "http://localhost", "Accept": BROWSER}
    statuses = [
        client.post(
            "/page/queue-changes", data={"token": found[1], "job": OWN, "change": each}, headers=headers
        ).status_code
        for each in ("hold", "release", "front")
    ]
    assert statuses == [303, 303, 403]


def test_a_set_waits_as_its_first_part_does_and_names_no_hidden_job_that_took_its_cells_back(tmp_path: Path) -> None:
    with jobs_on(tmp_path) as jobs, Rights.running(USERS, PATHS) as reviews:
        extender, answers = jobs.running.extender, QueueAnswers(jobs.running.extender.queues)
        jobs.expect(lambda: extender.queues.turns is not None)
        for namespace in ("cv", "finance"):
            jobs.kube.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        pod = template("a", 8, "10", "100000")
        pod["metadata"]["labels"] = labels = {"app": "web"}
        pod["spec"] |= {"restartPolicy": "Always", "schedulingGates": [{"name": GATE}]}
        spec = {"replicas": 3, "podManagementPolicy": "Parallel", "selector": {"matchLabels": labels}, "template": pod}
        sets = "/apis/apps/v1/namespaces/cv/statefulsets"
        jobs.kube.create(sets, {"metadata": {"name": "web"}, "spec": spec})
        jobs.expect(lambda: [job.state for job in answers.jobs("a")] == ["Waiting", "Running", "Running"])
        owner = {"suspend": True, "template": template("b", 8, "10", "100000")}
        jobs.kube.create(JOBS.replace("default", "finance"), {"metadata": {"name": "merger"}, "spec": owner})
        jobs.expect(lambda: [job.state for job in answers.jobs("a")] == ["Waiting", "Waiting", "Running"])
        gate, name = Gate(None, Reviews(reviews.kube)), "StatefulSet/cv/web"
        client = create_app(extender.service, gate, insight=extender.insight, queues=answers).test_client()
        left, stays = (job.name for job in answers.jobs("a") if job.position)  # the one that had cells is first
        for first, by in ((stays, ""), (left, "Job/finance/merger")):
            answers.act(QueueArgs(first, "move", "front"))
            for token, winner in ((BOSS, by), (ANN, by and MASKED)):
                rows = {job["name"]: job for job in get(client, "/v1/inspect/jobs?queued=9&new", token).json["items"]}
                why = get(client, f"/v1/inspect/why/{name}", token).json["job"]
                told = [(job["place"], job.get("preempted", {}).get("by", "")) for job in (rows[name], why)]
                assert told == [(1, winner)] * 2
                words = unescape(text_of(page(client, f"/page/jobs/{name}", token)))
                assert [part in words for part in ("at place 1", f" for {by and winner}.")] == [True, bool(by)]
