"""Configurations as pages: versions, differences, a plan on the cells, and a push from our own form alone."""

import io
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from hived_extender.http.access import Gate, Reviews
from hived_extender.http.app import create_app
from hived_extender.http.change_rights import ConfigPushes, MayDo
from hived_extender.http.pages.configuration_pages import diff
from hived_extender.kube.client import KubeClient
from hived_extender.kube.metrics import Metrics
from hived_extender.reconfiguration.stores import ConfigMapStore
from tests.extender.http.pages.test_cluster_pages import BROWSER, text_of
from tests.extender.http.secured import ReviewServer
from tests.extender.machine.small_cluster import CONFIG, SmallCluster, spec_text
from tests.extender.stored_config import FIRST, api_server, begun, configurations_of

pytestmark = pytest.mark.sample(8)

WITHOUT_N3 = CONFIG.replace("{cellAddress: n3}", "{cellAddress: n9}")
HOME = "/page/configuration"
HERE = {"Host": "localhost", "Origin": "http://localhost", "Accept": BROWSER}


@pytest.fixture(scope="module")
def kube() -> Iterator[KubeClient]:
    with api_server() as client:
        yield client


class Pages:
    """A client of the pages of a small cluster whose configuration is in a ConfigMap."""

    def __init__(
        self, kube: KubeClient, may_do: MayDo | None = None, gate: Gate | None = None, is_private: bool = True
    ) -> None:
        self.small = SmallCluster()
        self.store = begun(ConfigMapStore(kube, "kube-system", "hived-config", Metrics()))
        pushes = ConfigPushes(configurations_of(self.small.service, self.store), may_do, is_private=is_private)
        self.client: FlaskClient = create_app(self.small.service, gate, pushes).test_client()

    def get(self, path: str = HOME, **headers: str) -> str:
        response = self.client.get(path, headers={"Accept": BROWSER, **headers})
        assert response.status_code == 200, response.text
        return response.text

    def token(self, **headers: str) -> str:
        return re.findall(r'name="token" value="([0-9a-f]+)"', self.get(**headers))[0]

    def plan(self, text: str, **headers: str) -> TestResponse:
        form = {"token": self.token(**headers), "file": (io.BytesIO(text.encode()), "new.yaml")}
        return self.client.post(f"{HOME}/plan", data=form, headers=HERE | headers)

    def push(self, plan: str, headers: dict[str, str] = HERE, **more: Any) -> TestResponse:
        form = {
            name: unescaped(value) for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', plan)
        }
        form["text"] = unescaped(
            re.findall(r'<textarea name="text" hidden aria-hidden="true">\n(.*?)</textarea>', plan, re.S)[0]
        )
        return self.client.post(f"{HOME}/push", data=form | more, headers=headers)


def unescaped(text: str) -> str:
    for escaped, plain in (("&#34;", '"'), ("&#39;", "'"), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
        text = text.replace(escaped, plain)
    return text


def test_without_a_configuration_there_is_no_page_of_it() -> None:
    client = create_app(SmallCluster().service).test_client()
    assert client.get(HOME).status_code == 404
    assert "Configuration" not in client.get("/page/cluster", headers={"Accept": BROWSER}).text


def test_the_page_has_the_version_in_force_and_those_that_are_kept(kube: KubeClient) -> None:
    words = text_of(Pages(kube).get())
    assert "version 1" in words
    assert "ConfigMap kube-system/hived-config" in words


def test_a_plan_changes_nothing_and_says_who_is_hit_on_which_cells(kube: KubeClient) -> None:
    pages = Pages(kube)
    pages.small.place("p", spec_text(group="g"))
    pages.small.place("q", spec_text(group="h"))
    before = pages.small.snapshot()
    response = pages.plan(WITHOUT_N3)
    words = text_of(response.text)
    assert response.status_code == 200
    assert "1 running or reserving job is affected; 1 is not" in words
    assert "ns:h 1 pod a 0 goes on, but its cells are no longer hived" in unescaped(words)
    assert "Nodes added: n9" in words
    assert "Nodes removed: n3" in words
    (marks,) = re.findall(r'data-marks="([^"]*)"', response.text)
    assert json.loads(unescaped(marks)) == [[0, 12, 16, 1]]
    assert pages.small.snapshot() == before
    assert pages.store.read().stored.versions == (FIRST,)


def test_a_plan_names_the_nodes_that_would_be_bad(kube: KubeClient) -> None:
    words = text_of(Pages(kube).plan(WITHOUT_N3).text)
    assert "Nodes that would be bad now" in words
    assert "RACK.NODE 1 bad of 4 (n9)" in words


def test_a_plan_is_pushed_and_the_version_before_it_comes_back(kube: KubeClient) -> None:
    pages = Pages(kube)
    pages.small.place("p", spec_text(group="g"))
    pages.small.place("q", spec_text(group="h"))
    plan = pages.plan(WITHOUT_N3).text
    assert 'name="allow_downgrade"' in plan
    assert pages.push(plan, message="n3 is gone").status_code == 422, "nobody has agreed that work loses its guarantee"
    answer = pages.push(plan, message="n3 is gone", allow_downgrade="yes")
    assert (answer.status_code, answer.headers["Location"]) == (303, f"{HOME}/versions/2")
    newest = pages.store.read().stored.newest
    assert newest is not None
    assert (newest.version, newest.why, newest.text) == (2, "n3 is gone", WITHOUT_N3)
    assert "-    cellChildren" in unescaped(pages.get(f"{HOME}/versions/2")) or "n9" in pages.get(f"{HOME}/versions/2")
    back = pages.client.post(
        f"{HOME}/plan", data={"token": pages.token(), "version": "1", "message": "return"}, headers=HERE
    )
    assert "Of version 1, against version 2" in text_of(back.text)
    assert pages.push(back.text).status_code == 303
    assert pages.store.read().stored.newest is not None
    assert pages.store.read().stored.text == CONFIG


def test_a_text_with_mistakes_is_shown_with_them_and_cannot_be_pushed(kube: KubeClient) -> None:
    response = Pages(kube).plan("physicalCluster: 7\n")
    assert response.status_code == 200
    assert "It cannot be pushed" in response.text
    assert 'class="error"' in response.text


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "localhost"},
        {**HERE, "Origin": "http://evil.example"},
        {**HERE, "Host": "evil.example", "Origin": "http://evil.example"},
    ],
)
def test_a_push_of_another_sites_page_is_refused(kube: KubeClient, headers: dict[str, str]) -> None:
    pages = Pages(kube)
    plan = pages.plan(CONFIG + "# other\n").text
    assert pages.push(plan, headers).status_code == 403
    assert pages.push(plan, token="0" * 64).status_code == 403
    assert pages.store.read().stored.versions == (FIRST,)


def test_a_plan_of_another_version_than_the_newest_is_refused(kube: KubeClient) -> None:
    pages = Pages(kube)
    old = pages.plan(CONFIG + "# old\n").text
    assert pages.push(pages.plan(CONFIG + "# new\n").text).status_code == 303
    response = pages.push(old)
    assert response.status_code == 409
    assert "after version 1" in response.text


def test_a_push_needs_the_right_to_change_the_config_map(kube: KubeClient) -> None:
    users = {"admin": {"username": "admin"}, "viewer": {"username": "viewer"}}
    rights = {
        ("admin", "get", "/page*"),
        ("admin", "post", "/page*"),
        ("viewer", "get", "/page*"),
        ("viewer", "post", "/page*"),
    }
    with ReviewServer.running(users, rights) as server:
        pages = Pages(kube, lambda caller, _: caller.name == "admin", Gate(None, Reviews(server.kube)))
        assert pages.client.get(HOME).status_code == 401
        viewer, admin = ({"Authorization": f"Bearer {name}"} for name in ("viewer", "admin"))
        seen = pages.plan(CONFIG + "# other\n", **viewer).text
        assert "You cannot push it: viewer may not push" in seen
        plan = pages.plan(CONFIG + "# other\n", **admin).text
        assert pages.push(plan, HERE | viewer).status_code == 403, "the token is the admin's"
        assert pages.push(plan, HERE | admin).status_code == 303
        newest = pages.store.read().stored.newest
    assert newest is not None
    assert newest.who == "admin"


def test_names_of_other_tenants_are_for_those_who_may_push(kube: KubeClient) -> None:
    users = {"admin": {"username": "admin"}, "viewer": {"username": "viewer"}}
    rights = {(name, verb, "/page*") for name in users for verb in ("get", "post")}
    with ReviewServer.running(users, rights) as server:
        gate = Gate(None, Reviews(server.kube))
        gate.may_do = lambda caller, resource: False  # type: ignore[method-assign]  # no pods of any namespace
        pages = Pages(kube, lambda caller, _: caller.name == "admin", gate)
        pages.small.place("q", spec_text(group="g"))
        pages.small.place("p", spec_text(group="hidden"))
        seen, known = (pages.plan(WITHOUT_N3, Authorization=f"Bearer {name}").text for name in ("viewer", "admin"))
    assert "1 running or reserving job is affected" in text_of(seen)
    assert "hidden" not in text_of(seen)
    assert "ns:hidden" in text_of(known)


def test_an_open_service_that_others_can_reach_takes_no_push(kube: KubeClient) -> None:
    pages = Pages(kube, is_private=False)
    assert "You cannot push it" in pages.plan(CONFIG + "# other\n").text


@pytest.mark.parametrize("number", ["x", "-1", "99", "1?against=7", "1" * 30])
def test_a_version_that_is_not_kept_is_not_found(kube: KubeClient, number: str) -> None:
    assert Pages(kube).client.get(f"{HOME}/versions/{number}").status_code == 404


def test_a_file_that_is_no_text_is_refused(kube: KubeClient) -> None:
    pages = Pages(kube)
    form = {"token": pages.token(), "file": (io.BytesIO(b"\xff\xfe"), "x.yaml")}
    response = pages.client.post(f"{HOME}/plan", data=form, headers=HERE)
    assert response.status_code == 400
    assert "is not UTF-8" in response.text


def test_a_comparison_has_the_lines_that_differ() -> None:
    assert [(line.kind, line.text) for line in diff("a\nb\n", "a\nc\n")] == [
        ("at", "@@ -1,2 +1,2 @@"),
        ("", " a"),
        ("minus", "-b"),
        ("plus", "+c"),
    ]
