"""Queues as pages: the order of jobs, names for those alone who may see them, and changes from our own forms alone."""

import re
from collections.abc import Iterator

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from hived_extender.http.app import create_app
from hived_extender.http.change_rights import ConfigPushes, MayDo
from hived_extender.queues.answering import QueueAnswers
from tests.extender.http.pages.test_cluster_pages import BROWSER, page, text_of
from tests.extender.machine.small_cluster import SmallCluster
from tests.extender.queues.embedded_jobs import Jobs, jobs_on

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
def client(jobs: Jobs) -> FlaskClient:
    return client_of(jobs)


def token_of(client: FlaskClient, job: str = SECOND) -> str:
    return re.findall(r'name="token" value="([0-9a-f]+)"', page(client, f"/page/queued/{job}"))[0]


def post(client: FlaskClient, **form: str) -> TestResponse:
    return client.post(CHANGES, data={"token": token_of(client), "job": SECOND, **form}, headers=HERE)


def places(client: FlaskClient) -> list[str]:
    return re.findall(r'<a href="/page/queued/Job/default/(\w+)">', page(client, "/page/queues/b"))


def test_queues_are_listed_with_links_to_their_jobs(client: FlaskClient) -> None:
    html = page(client, "/page/queues")
    assert "b b hived 2 1 0" in text_of(html)
    assert 'href="/page/queues/b"' in html


def test_jobs_of_a_queue_are_in_their_order_with_reasons(client: FlaskClient) -> None:
    assert places(client) == ["second", "third", "first"]
    words = text_of(page(client, "/page/queues/b"))
    assert "2 wait, 1 run, 0 of them on borrowed cells" in words
    assert "2 Job/default/third Waiting 10 8" in words
    assert "1 job before it in its queue." in words


def test_the_page_of_a_job_has_its_place_and_its_gang(client: FlaskClient) -> None:
    words = text_of(page(client, f"/page/queued/{SECOND}"))
    assert "Waiting at place 1" in words
    assert "Asks for 1 pod of 8 GPU" in words


def test_the_page_of_a_job_without_pods_says_who_has_its_cells_and_what_would_help(client: FlaskClient) -> None:
    html = page(client, f"/page/queued/{SECOND}")
    words = text_of(html)
    assert "in its queue: is first, and the cells of its virtual cluster are in use" in words
    assert "b has 1 of 1 in use by first (" in words.lower()
    assert 'href="/page/jobs/Job/default/first"' in html
    assert "ends=Job/default/first" in words
    assert "Unknown: not every job that it waits for says when it ends" in words


def test_the_page_of_a_later_job_says_that_others_come_first(client: FlaskClient) -> None:
    words = text_of(page(client, "/page/queued/Job/default/third"))
    assert "1 job before it in its queue." in words
    assert "Unknown: 1 job of its queue comes first" in words


def test_a_job_with_a_mistake_says_so_and_has_no_buttons(client: FlaskClient) -> None:
    html = page(client, "/page/queued/Job/default/wrong")
    assert "set it to a virtual cluster: a, b" in text_of(html)
    assert CHANGES not in html


def test_a_job_without_pods_is_found_among_jobs(client: FlaskClient) -> None:
    response = client.get("/page/jobs/second", headers={"Accept": BROWSER})
    assert (response.status_code, response.headers["Location"]) == (303, f"/page/queued/{SECOND}")


def test_the_page_of_a_virtual_cluster_leads_to_its_queues(client: FlaskClient) -> None:
    assert 'href="/page/queues?vc=b"' in page(client, "/page/vcs/b")
    assert 'href="/page/queues/b"' in page(client, "/page/queues?vc=b")
    assert 'href="/page/queues/b"' not in page(client, "/page/queues?vc=a")
    assert "There is no queue of nobody" in text_of(page(client, "/page/queues?vc=nobody"))


def test_a_job_is_held_and_released_and_its_page_says_so(client: FlaskClient) -> None:
    answer = post(client, change="hold")
    assert (answer.status_code, answer.headers["Location"]) == (303, f"/page/queued/{SECOND}")
    html = page(client, f"/page/queued/{SECOND}")
    assert "Held" in text_of(html)
    assert 'value="release"' in html
    assert 'value="hold"' not in html
    assert post(client, change="release").status_code == 303
    assert "Waiting at place 1" in text_of(page(client, f"/page/queued/{SECOND}"))


def test_a_job_is_moved_back_and_before_another_one(client: FlaskClient) -> None:
    assert post(client, change="back").status_code == 303
    assert places(client) == ["third", "second", "first"]
    assert post(client, before="Job/default/third").status_code == 303
    assert places(client) == ["second", "third", "first"]


@pytest.mark.parametrize(
    ("form", "status", "said"),
    [
        ({"change": "delete"}, 400, "hold, release, front, back"),
        ({"change": "hold", "job": "Job/default/nobody"}, 404, "name it Kind/namespace/name"),
        ({"before": "Job/default/first"}, 400, "cannot be moved before"),
        ({"change": "hold", "token": "0" * 64}, 403, "load the page again"),
    ],
)
def test_a_form_with_a_mistake_changes_nothing(
    client: FlaskClient, form: dict[str, str], status: int, said: str
) -> None:
    answer = post(client, **form)
    assert (answer.status_code, said in text_of(answer.text)) == (status, True), text_of(answer.text)
    assert places(client) == ["second", "third", "first"]


def test_a_form_of_another_site_is_refused(client: FlaskClient) -> None:
    form = {"token": token_of(client), "job": SECOND, "change": "hold"}
    answer = client.post(CHANGES, data=form, headers=HERE | {"Origin": "http://elsewhere"})
    assert answer.status_code == 403
    assert "Waiting at place 1" in text_of(page(client, f"/page/queued/{SECOND}"))


def test_people_without_the_right_to_push_see_no_form_and_change_nothing(jobs: Jobs, client: FlaskClient) -> None:
    others = client_of(jobs, is_private=False)
    assert CHANGES not in page(others, f"/page/queued/{SECOND}")
    form = {"token": token_of(client), "job": SECOND, "change": "hold"}
    assert others.post(CHANGES, data=form, headers=HERE).status_code == 403
    assert "Waiting at place 1" in text_of(page(others, f"/page/queued/{SECOND}"))


def test_a_page_beyond_the_last_one_is_the_last_one(client: FlaskClient) -> None:
    assert page(client, "/page/queues/b?rows=9").count("/page/queued/") == 3


def test_an_unknown_queue_is_not_found(client: FlaskClient) -> None:
    response = client.get("/page/queues/none", headers={"Accept": BROWSER})
    assert response.status_code == 404
    assert "there are a, b" in text_of(response.text)


def test_without_queues_there_is_no_tab_of_them() -> None:
    plain = create_app(SmallCluster().service).test_client()
    assert 'href="/page/queues' not in page(plain, "/page/vcs/a")


def test_pages_of_queues_have_nothing_that_the_policy_forbids(client: FlaskClient) -> None:
    for path in ("/page/queues", "/page/queues/b", f"/page/queued/{SECOND}"):
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", page(client, path))
