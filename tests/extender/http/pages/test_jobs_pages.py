"""Jobs and queues as pages: search, reasons, remedies and places; no names of other tenants; forms of our own alone."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from hived_extender.api.waiting import MASKED, CauseName, Certificate, Job, Unblock, When
from hived_extender.http.access import Gate, Reviews
from hived_extender.http.answers import Identity
from hived_extender.http.app import create_app
from hived_extender.http.change_rights import ConfigPushes, MayDo, QueueChanges
from hived_extender.http.pages.jobs_pages import Filters, _may_help
from hived_extender.jobs.kinds.marks import BEGIN
from hived_extender.queues.answering import QueueAnswers
from tests.expecting import expect_soon
from tests.extender.http.pages.test_cluster_pages import BROWSER, page, text_of
from tests.extender.http.secured import ReviewServer
from tests.extender.machine.small_cluster import SmallCluster, node, spec_text
from tests.extender.machine.test_quota_bound import cluster_with, leaf
from tests.extender.queues.embedded_jobs import PODS, Jobs, jobs_on, template

pytestmark = pytest.mark.sample(12)


def crowded() -> SmallCluster:
    """VC a is full: two jobs have its two nodes, and a third one waits."""
    small = SmallCluster()
    small.place("p", spec_text(group="first"))
    small.place("q", spec_text(group="second", priority=5))
    pod = small.create("r", spec_text(group="third"))
    small.filter(pod)
    return small


@pytest.fixture
def client() -> FlaskClient:
    return create_app(crowded().service).test_client()


def unescaped(text: str) -> str:
    return text.replace("&#34;", '"').replace("&#39;", "'").replace("&amp;", "&")


def test_waiting_jobs_come_first_with_their_reason(client: FlaskClient) -> None:
    words = text_of(page(client, "/page/jobs"))
    assert "3 of 3 jobs · 1 Waiting" in words
    assert words.index("ns:third Waiting a 0") < words.index("ns:first")
    assert "a has 2 of 2 in use" in words


def test_a_job_with_a_mistake_has_no_virtual_cluster_and_priority_that_anybody_knows() -> None:
    small = SmallCluster()
    small.create("p", "virtualCluster: [")
    client = create_app(small.service).test_client()
    words = text_of(page(client, "/page/jobs"))
    assert "ns/p Waiting " in words
    assert "ns/p Waiting opportunistic" not in words
    assert "Virtual cluster unknown" in text_of(page(client, "/page/jobs/ns/p"))


def test_a_pod_that_its_quota_refuses_is_said_to_have_no_change_that_could_be_tried() -> None:
    small = cluster_with(leaf(3))
    small.pod("z", 4)
    small.ask("z")
    words = text_of(page(create_app(small.service).test_client(), "/page/jobs/ns/z"))
    assert "No change could be tried: it asks for cells only once its quota has room." in words


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("q=third", {"ns:third"}),
        ("q=THIRD", {"ns:third"}),
        ("q=ns/p", {"ns:first"}),
        ("q=in+use", {"ns:third"}),
        ("state=Waiting", {"ns:third"}),
        ("state=waiting", {"ns:third"}),
        ("vc=a", {"ns:first", "ns:second", "ns:third"}),
        ("vc=b", set()),
        ("namespace=ns&q=ns/q", {"ns:second"}),
        ("namespace=other", set()),
        ("user=ann", set()),
        ("q=%3Cscript%3E", set()),
    ],
)
def test_the_list_is_limited_by_what_is_asked_for(client: FlaskClient, query: str, names: set[str]) -> None:
    html = page(client, f"/page/jobs?{query}")
    assert set(re.findall(r'<a id="job-\w+" href="/page/jobs/[^"]+">([^<]+)</a>', html)) == names
    assert f"{len(names)} of 3 jobs" in text_of(html)


def test_an_unknown_state_is_answered_with_those_that_there_are(client: FlaskClient) -> None:
    response = client.get("/page/jobs?state=bogus", headers={"Accept": BROWSER})
    assert response.status_code == 400
    assert ", expected one of Waiting, " in text_of(response.text)


def test_a_node_leads_to_its_jobs(client: FlaskClient) -> None:
    (node,) = {re.findall(r"ns:first .*? on (n\d)", text_of(page(client, "/page/jobs")))[0]}
    assert "ns:first" in page(client, f"/page/jobs?node={node}")
    assert "ns:second" not in page(client, f"/page/jobs?node={node}")


def test_filters_are_kept_in_the_form_and_in_links_to_further_pages() -> None:
    small = SmallCluster()
    for number in range(60):
        small.create(f"w{number}", spec_text(leaf_cells=4))
    html = page(create_app(small.service).test_client(), "/page/jobs?q=w&vc=a")
    assert 'name="q" value="w"' in html
    assert "<option selected>a</option>" in html
    assert 'href="/page/jobs?q=w&amp;vc=a&amp;rows=2"' in html


def test_the_page_of_a_waiting_job_says_why_and_what_helps(client: FlaskClient) -> None:
    words = text_of(page(client, "/page/jobs/ns:third"))
    assert "Why it waits Needs 1 node of 4 GPUs; a has 2 of 2 in use by" in words
    assert "priority=1" in words
    assert "ends=ns:first" in words
    assert "Who has the cells" in words


def test_a_job_is_found_by_a_pod_of_it(client: FlaskClient) -> None:
    moved = client.get("/page/jobs/ns/p", headers={"Accept": BROWSER})
    assert (moved.status_code, moved.headers["Location"]) == (303, "/page/jobs/ns%3Afirst")


def test_a_change_of_the_users_own_is_tried_and_nothing_happens() -> None:
    small = crowded()
    client = create_app(small.service).test_client()
    before = small.snapshot()
    assert "With priority=7 it starts at once" in text_of(page(client, "/page/jobs/ns:third?if=priority%3D7"))
    assert "it still waits" in text_of(page(client, "/page/jobs/ns:third?if=priority%3D0"))
    assert 'role="alert"' in page(client, "/page/jobs/ns:third?if=magic")
    assert small.snapshot() == before


def test_the_cells_of_a_job_and_of_those_in_its_way_are_marked(client: FlaskClient) -> None:
    def marks(job: str) -> list[tuple[int, int]]:
        (found,) = re.findall(r'data-marks="([^"]*)"', page(client, f"/page/jobs/{job}"))
        return [(end - first, kind) for _, first, end, kind in json.loads(unescaped(found))]

    assert marks("ns:first") == [(4, 0)]
    assert sorted(marks("ns:third")) == [(4, 3), (4, 3)]


def test_a_job_that_runs_has_no_certificate(client: FlaskClient) -> None:
    words = text_of(page(client, "/page/jobs/ns%3Afirst"))
    assert "Why it waits" not in words
    assert "Started" in words


@pytest.mark.parametrize("name", ["none", "ns/none", "%2E%2E", "%3Cimg%3E"])
def test_a_job_that_does_not_exist_is_not_found(client: FlaskClient, name: str) -> None:
    response = client.get(f"/page/jobs/{name}", headers={"Accept": BROWSER})
    assert response.status_code == 404
    assert "<img>" not in response.text


def test_names_of_other_tenants_are_masked_and_their_pages_do_not_exist() -> None:
    users = {"t": {"username": "stranger"}}
    rights = {("stranger", "get", "/page*")}
    with ReviewServer.running(users, rights) as server:
        gate = Gate(None, Reviews(server.kube))
        gate.may_do = lambda caller, resource: False  # type: ignore[method-assign]  # no pods of any namespace
        client = create_app(crowded().service, gate).test_client()
        headers = {"Authorization": "Bearer t"}
        for query in ("", "?q=third", "?namespace=ns", "?q=ns"):
            html = page(client, f"/page/jobs{query}", **headers)
            assert not re.search(r"third|first|second|ns:|ns/", html.split("<tbody>")[1])
        assert MASKED in unescaped(page(client, "/page/jobs", **headers))
        hidden = client.get("/page/jobs/ns:third", headers={"Accept": BROWSER, **headers})
        absent = client.get("/page/jobs/ns:never", headers={"Accept": BROWSER, **headers})
        assert hidden.status_code == absent.status_code == 404
        assert hidden.text.replace("ns:third", "") == absent.text.replace("ns:never", "")


def test_nobody_finds_a_masked_job_by_a_text() -> None:
    masked = Job(name=MASKED, state="Waiting", vc="a", cause="in-use")
    assert Filters().takes(masked)
    assert Filters(vc="a").takes(masked)
    assert not Filters(q="tenant").takes(masked)
    assert not Filters(namespace="n").takes(masked)


def test_a_job_that_can_never_run_says_so_alone() -> None:
    small = crowded()
    small.filter(small.create("huge", spec_text(group="huge", leaf_cells=32)))
    client = create_app(small.service).test_client()
    html = page(client, "/page/jobs/ns:huge")
    words = text_of(html)
    assert "It can never start as it is" in words
    assert "When it starts" not in words
    assert "Who has the cells" not in words
    assert 'id="picture"' not in html
    assert "Waiting never" in text_of(page(client, "/page/jobs?q=huge"))


def test_a_suggested_change_leads_to_its_outcome(client: FlaskClient) -> None:
    html = page(client, "/page/jobs/ns:third")
    (link,) = re.findall(r'<a class="change" href="([^"]+)#helps"><code>ends=ns:first</code>', html)
    assert "With ends=ns:first it starts at once" in text_of(page(client, unescaped(link)))


def test_a_column_that_nobody_fills_is_left_out(client: FlaskClient) -> None:
    assert '<th scope="col">User</th>' not in page(client, "/page/jobs")


def test_the_page_names_every_change_that_can_be_tried(client: FlaskClient) -> None:
    words = text_of(page(client, "/page/jobs/ns:third"))
    names = ("priority=", "opportunistic", "pods=", "leafType=", "vc=", "ends=", "heal=", "move=", "cells=")
    assert [name for name in names if name not in words.partition("Such as")[2]] == []


def test_bad_nodes_are_named_as_by_the_command() -> None:
    small = crowded()
    small.service.node_seen(node("n3", is_ready=False))
    client = create_app(small.service).test_client()
    named = client.get("/v1/inspect/why/ns:third").json["certificate"].get("bad_nodes", [])
    words = text_of(page(client, "/page/jobs/ns:third"))
    assert ("Bad nodes" in words) == bool(named)
    assert all(f"{each['node']} NotReady" in words for each in named)


def test_a_job_without_a_guarantee_is_told_of_none() -> None:
    small = crowded()
    small.place("o", spec_text(group="other", vc="b"))
    pod = small.create("s", spec_text(group="spare", priority=-1, leaf_cells=4, pods=2))
    small.filter(pod)
    assert "the guarantee" not in text_of(page(create_app(small.service).test_client(), "/page/jobs/ns:spare"))


@pytest.mark.parametrize(
    ("cause", "kind", "may_help"),
    [
        ("in-use", "unknown", True), ("in-use", "certain", False), ("in-use", "now", False),
        ("lent", "unknown", False), ("never", "never", True),
    ],
)  # fmt: skip
def test_nothing_is_said_to_help_in_vain_where_the_start_is_near(cause: CauseName, kind: Any, may_help: bool) -> None:
    found = Certificate(sentence="", cause=cause)
    assert _may_help(found, When(kind=kind)) is may_help
    assert _may_help(msgspec.structs.replace(found, unblock=[Unblock(change="vc=b", text="")]), When(kind=kind))


def test_a_start_that_is_being_worked_out_is_no_gap(client: FlaskClient) -> None:
    assert 'title="When it starts is being worked out">…<' in page(client, "/page/jobs")


HERE = {"Host": "localhost", "Origin": "http://localhost", "Accept": BROWSER}
CHANGES = "/page/queue-changes"
SECOND = "Job/default/second"


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """A job that runs in queue b, two that wait, and one with a mistake."""
    with jobs_on(tmp_path_factory.mktemp("pages")) as found:
        found.create("first", "b")
        found.expect(lambda: found.runs("first"))
        for name in ("second", "third"):
            found.create(name, "b")
        found.create("wrong", "nowhere")
        found.expect(lambda: found.queued("b") == ["second", "third"])
        yield found


def client_of(jobs: Jobs, may_do: MayDo | None = None, *, is_private: bool = True) -> FlaskClient:
    """A client of the pages of the cluster."""
    extender = jobs.running.extender
    pushes = ConfigPushes(extender.configurations, may_do, is_private=is_private)
    app = create_app(extender.service, config_pushes=pushes, queues=QueueAnswers(extender.queues))
    return app.test_client()


@pytest.fixture(scope="module")
def queue_client(jobs: Jobs) -> FlaskClient:
    return client_of(jobs)


def token_of(queue_client: FlaskClient, job: str = SECOND) -> str:
    return re.findall(r'name="token" value="([0-9a-f]+)"', page(queue_client, f"/page/jobs/{job}"))[0]


def post(queue_client: FlaskClient, **form: str) -> TestResponse:
    return queue_client.post(CHANGES, data={"token": token_of(queue_client), "job": SECOND, **form}, headers=HERE)


def places(queue_client: FlaskClient) -> list[str]:
    return re.findall(r'<a href="/page/jobs/Job/default/(\w+)">', page(queue_client, "/page/queues/b"))


@pytest.mark.parametrize(
    ("vc", "pods", "said"),
    [
        ("a", 2, ""),
        ("a", 3, "could never start: It asks for 24 GPUs, and the cluster has 16"),
        ("b", 2, "could never start: It asks for 16 GPUs, and queue b does not borrow, and has 8"),
    ],
)
def test_a_job_in_a_form_is_judged_as_its_queue_would(
    jobs: Jobs, queue_client: FlaskClient, vc: str, pods: int, said: str
) -> None:
    form = {"name": "new", "namespace": "default", "leaf_type": "GPU", "gpus": "8", "priority": "5", "image": "x"}
    form |= {"vc": vc, "pods": str(pods), "token": token_of(queue_client), "do": "write"}
    words = text_of(queue_client.post("/page/submit", data=form, headers=HERE).text)
    assert said in words
    assert ("could never start" in words) == bool(said)


def test_queues_are_listed_with_links_to_their_jobs(queue_client: FlaskClient) -> None:
    html = page(queue_client, "/page/queues")
    assert "b b hived 2 1 0" in text_of(html)
    assert 'href="/page/queues/b"' in html


def test_jobs_of_a_queue_are_in_their_order_with_reasons(queue_client: FlaskClient) -> None:
    assert places(queue_client) == ["second", "third", "first"]
    words = text_of(page(queue_client, "/page/queues/b"))
    assert "2 wait, 1 runs, 0 of them on borrowed cells" in words
    assert "2 Job/default/third Waiting 10 8" in words
    assert "1 job is before it in its queue." in words


def test_the_page_of_a_job_has_its_place_and_its_gang(queue_client: FlaskClient) -> None:
    words = text_of(page(queue_client, f"/page/jobs/{SECOND}"))
    assert "Waiting at place 1" in words
    assert "Asks for 1 node of 8 GPUs" in words


def test_the_page_of_a_job_without_pods_says_who_has_its_cells_and_what_would_help(queue_client: FlaskClient) -> None:
    html = page(queue_client, f"/page/jobs/{SECOND}")
    words = text_of(html)
    assert "Queue b · is first, and the cells of its virtual cluster are in use" in words
    assert "b has 1 of 1 in use by first (" in words.lower()
    assert 'href="/page/jobs/Job/default/first"' in html
    assert "ends=Job/default/first" in words
    assert "Unknown: first, which has the cells, has no time limit" in words


def test_the_page_of_a_later_job_says_that_others_come_first(queue_client: FlaskClient) -> None:
    words = text_of(page(queue_client, "/page/jobs/Job/default/third"))
    assert "1 job is before it in its queue." in words
    assert "Unknown: 1 job of its queue comes first" in words


def test_a_job_with_a_mistake_says_so_and_has_no_buttons(queue_client: FlaskClient) -> None:
    html = page(queue_client, "/page/jobs/Job/default/wrong")
    assert "set it to a virtual cluster: a, b" in text_of(html)
    assert CHANGES not in html


def test_a_job_without_pods_is_found_among_jobs(queue_client: FlaskClient) -> None:
    response = queue_client.get("/page/jobs/second", headers={"Accept": BROWSER})
    assert (response.status_code, response.headers["Location"]) == (303, f"/page/jobs/{SECOND}")
    moved = queue_client.get(f"/page/queued/{SECOND}", headers={"Accept": BROWSER})
    assert (moved.status_code, moved.headers["Location"]) == (301, f"/page/jobs/{SECOND}")


@pytest.mark.parametrize("name", ["first", "default/first", "job/first", "Job/first", "Job/default/first", "second"])
def test_a_job_is_found_by_every_name_that_commands_take(queue_client: FlaskClient, name: str) -> None:
    found = queue_client.get(f"/page/jobs/{name}", headers={"Accept": BROWSER}, follow_redirects=True)
    assert (found.status_code, f"<h1>Job/default/{name.rpartition('/')[2]}</h1>" in found.text) == (200, True)


def test_a_pod_that_is_called_as_a_job_of_a_queue_has_its_own_page(queue_client: FlaskClient, jobs: Jobs) -> None:
    """Its full name and its kind count first; the name of both leads to the list of them."""
    pod = template("a", 1, "10", "100000")
    jobs.kube.create(PODS, pod | {"metadata": pod["metadata"] | {"name": "third"}})
    jobs.expect(lambda: 'href="/page/jobs/default/third"' in page(queue_client, "/page/jobs?q=third"))
    for name in ("default/third", "Job/default/third"):
        assert f"<h1>{name}</h1>" in page(queue_client, f"/page/jobs/{name}")
    meant = {"third": "?q=third", "job/third": "/Job/default/third", "pod/third": "/default/third"}
    for name, place in meant.items():
        moved = queue_client.get(f"/page/jobs/{name}", headers={"Accept": BROWSER})
        assert (moved.status_code, moved.headers["Location"]) == (303, f"/page/jobs{place}")
    jobs.kube.delete(f"{PODS}/third", grace_period_s=0)
    jobs.expect(lambda: "/page/jobs/default/third" not in page(queue_client, "/page/jobs?q=third"))


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["second", "third", "wrong", "first"]),
        ("q=second", ["second"]),
        ("state=waiting", ["second", "third"]),
        ("state=refused", ["wrong"]),
        ("vc=b", ["second", "third", "first"]),
        ("namespace=default&q=is+first", ["second"]),
        ("vc=a", []),
    ],
)
def test_the_list_has_the_rows_of_the_command_with_jobs_that_wait_in_queues(
    queue_client: FlaskClient, query: str, names: list[str]
) -> None:
    html = page(queue_client, f"/page/jobs?{query}")
    found = re.findall(r'<a id="job-\w+" href="/page/jobs/Job/default/(\w+)">', html)
    assert found == names
    if not query:
        told = queue_client.get("/v1/inspect/jobs?queued=500").json["items"]
        assert [job["name"] for job in told] == [f"Job/default/{name}" for name in found]


def test_the_page_of_a_job_of_a_queue_that_runs_has_its_pods_and_nodes(queue_client: FlaskClient) -> None:
    html = page(queue_client, "/page/jobs/Job/default/first")
    assert re.search(r"kubectl logs -n default first-\w+", html)
    assert re.search(r'<dt>Nodes</dt><dd><a href="/page/nodes/', html)
    assert "Queue b · runs" in text_of(html)
    assert 'data-marks="[[' in unescaped(html)


def test_a_change_is_tried_for_a_job_that_waits_in_a_queue(queue_client: FlaskClient) -> None:
    html = page(queue_client, f"/page/jobs/{SECOND}")
    (link,) = re.findall(r'<a class="change" href="([^"]+)#helps"><code>ends=Job/default/first</code>', html)
    assert "With ends=Job/default/first it starts at once" in text_of(page(queue_client, unescaped(link)))
    assert "it still waits" in text_of(page(queue_client, f"/page/jobs/{SECOND}?if=priority%3D1"))
    assert 'role="alert"' in page(queue_client, f"/page/jobs/{SECOND}?if=magic")
    assert places(queue_client) == ["second", "third", "first"]


def test_the_page_of_a_virtual_cluster_leads_to_its_queues(queue_client: FlaskClient) -> None:
    assert 'href="/page/queues?vc=b"' in page(queue_client, "/page/vcs/b")
    assert 'href="/page/queues/b"' in page(queue_client, "/page/queues?vc=b")
    assert 'href="/page/queues/b"' not in page(queue_client, "/page/queues?vc=a")
    assert "There is no queue of nobody" in text_of(page(queue_client, "/page/queues?vc=nobody"))


def test_a_job_is_held_and_released_and_its_page_says_so(queue_client: FlaskClient, jobs: Jobs) -> None:
    answer = post(queue_client, change="hold")
    assert (answer.status_code, answer.headers["Location"]) == (303, f"/page/jobs/{SECOND}")
    html = page(queue_client, f"/page/jobs/{SECOND}")
    assert "Held" in text_of(html)
    assert 'value="release"' in html
    assert 'value="hold"' not in html
    expect_soon(lambda: "1 job waits , 1 of them in queues" in text_of(page(queue_client, "/page/cluster")))
    now = jobs.inspector.status()
    assert (now.jobs.now, now.queues.waiting) == ({"Waiting": 1, "Held": 1, "Refused": 1, "Running": 1}, 1)
    assert post(queue_client, change="release").status_code == 303
    assert "Waiting at place 1" in text_of(page(queue_client, f"/page/jobs/{SECOND}"))


def test_a_job_that_begins_later_is_released_to_this_moment_by_a_button_of_its_own(
    jobs: Jobs, queue_client: FlaskClient
) -> None:
    jobs.create("later", "b", annotations={BEGIN: "2100-01-01T00:00:00Z"})
    jobs.expect(lambda: jobs.state("later") == "Held", jobs.rest)
    states = []
    for change in ("release", "now"):
        assert post(queue_client, job="Job/default/later", change=change).status_code == 303
        states.append(jobs.state("later"))
    jobs.delete("later")
    jobs.expect(lambda: not jobs.state("later"), jobs.rest)
    assert states == ["Held", "Waiting"]


def test_a_job_is_moved_back_and_before_another_one(queue_client: FlaskClient) -> None:
    assert post(queue_client, change="back").status_code == 303
    assert places(queue_client) == ["third", "second", "first"]
    assert post(queue_client, before="Job/default/third").status_code == 303
    assert places(queue_client) == ["second", "third", "first"]


@pytest.mark.parametrize(
    ("form", "status", "said"),
    [
        ({"change": "delete"}, 400, "hold, release, now, front, back"),
        ({"change": "hold", "job": "Job/default/nobody"}, 404, "name it Kind/namespace/name"),
        ({"before": "Job/default/first"}, 400, "cannot be moved before"),
        ({"change": "hold", "token": "0" * 64}, 403, "load the page again"),
    ],
)
def test_a_form_with_a_mistake_changes_nothing(
    queue_client: FlaskClient, form: dict[str, str], status: int, said: str
) -> None:
    answer = post(queue_client, **form)
    assert (answer.status_code, said in text_of(answer.text)) == (status, True), text_of(answer.text)
    assert places(queue_client) == ["second", "third", "first"]


def test_a_form_of_another_site_is_refused(queue_client: FlaskClient) -> None:
    form = {"token": token_of(queue_client), "job": SECOND, "change": "hold"}
    answer = queue_client.post(CHANGES, data=form, headers=HERE | {"Origin": "http://elsewhere"})
    assert answer.status_code == 403
    assert "Waiting at place 1" in text_of(page(queue_client, f"/page/jobs/{SECOND}"))


def test_people_without_the_right_to_push_see_no_form_and_change_nothing(jobs: Jobs, queue_client: FlaskClient) -> None:
    others = client_of(jobs, is_private=False)
    assert CHANGES not in page(others, f"/page/jobs/{SECOND}")
    form = {"token": token_of(queue_client), "job": SECOND, "change": "hold"}
    assert others.post(CHANGES, data=form, headers=HERE).status_code == 403
    assert "Waiting at place 1" in text_of(page(others, f"/page/jobs/{SECOND}"))


def test_a_page_beyond_the_last_one_is_the_last_one(queue_client: FlaskClient) -> None:
    assert page(queue_client, "/page/queues/b?rows=9").count("/page/jobs/Job/") == 3


def test_an_unknown_queue_is_not_found(queue_client: FlaskClient) -> None:
    response = queue_client.get("/page/queues/none", headers={"Accept": BROWSER})
    assert response.status_code == 404
    assert "there are a, b" in text_of(response.text)


def test_without_queues_there_is_no_tab_of_them() -> None:
    plain = create_app(SmallCluster().service).test_client()
    assert 'href="/page/queues' not in page(plain, "/page/vcs/a")


def test_pages_of_queues_have_nothing_that_the_policy_forbids(queue_client: FlaskClient) -> None:
    for path in ("/page/queues", "/page/queues/b", f"/page/jobs/{SECOND}"):
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", page(queue_client, path))


def test_a_page_that_is_refreshed_does_not_ask_for_rights_each_time(jobs: Jobs) -> None:
    asked: list[str] = []

    def may_do(caller: Identity, resource: Mapping[str, str]) -> bool:
        asked.append(resource["resource"])
        return False

    pushes = ConfigPushes(jobs.running.extender.configurations, may_do, is_private=False)
    changes = QueueChanges(QueueAnswers(jobs.running.extender.queues), pushes)
    assert [changes.allowed(SECOND, Identity("ann")) for _ in range(5)] == [()] * 5
    assert sorted(asked) == ["configmaps", "jobs"]
