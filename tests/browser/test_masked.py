"""Names of other tenants' jobs on pages, behind TLS and a gate that asks an API server who may see whose pods."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.cdp import Browser, Page
from tests.browser.walk import Link, site
from tests.extender.http.secured import Files, ReviewServer, Secured, bearer
from tests.extender.machine.small_cluster import SmallCluster, pod_json, spec_text, to_pod

ANN, BOSS = "token-of-ann", "token-of-the-boss"
USERS: dict[str, dict[str, Any]] = {
    ANN: {"username": "ann", "uid": "1", "groups": ["viewers"]},
    BOSS: {"username": "boss", "uid": "2", "groups": ["viewers", "admins"]},
}
SEEN = {("viewers", "get", "/"), ("viewers", "get", "/page/*"), ("viewers", "get", "/v1/inspect/*")}
OWN, OTHERS = "ann-train", ("merger-model", "merger-eval")


class Reviews(ReviewServer):
    """Ann may see the pods of the namespace cv, administrators those of all."""

    def review_access(self, spec: dict[str, Any]) -> dict[str, Any]:
        """The status of a SubjectAccessReview."""
        what = spec.get("resourceAttributes")
        if what is None:
            return super().review_access(spec)
        return {"allowed": "admins" in spec["groups"] or (spec["user"], what.get("namespace")) == ("ann", "cv")}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A job of Ann's and one of others that run, and one that waits for both."""
    files = Files(tmp_path_factory.mktemp("certificates"))
    with Reviews.running(USERS, SEEN) as reviews, Secured.running(files, reviews) as running:
        small = running.cluster
        for name, namespace in ((OWN, "cv"), (OTHERS[0], "finance")):
            pod = create(small, name, namespace)
            small.bind(pod, small.filter(pod)["NodeNames"][0])
            small.see(pod)
        small.filter(create(small, OTHERS[1], "finance"))
        small.filter(create(small, f"{OWN}-more", "cv"))
        yield running


def create(small: SmallCluster, name: str, namespace: str) -> dict[str, Any]:
    """A pod in a namespace that the service has seen."""
    pod = pod_json(name, spec_text("a"))
    pod["metadata"]["namespace"] = namespace
    small.kube.add(pod)
    small.service.pod_seen(to_pod(pod))
    return pod


def opened(browser: Browser, token: str) -> Page:
    """A page that shows a token, as a proxy with a login of its own would."""
    page = browser.page(headers=bearer(token))
    page.call("Security.setIgnoreCertificateErrors", ignore=True)
    return page


def sources(page: Page, url: str) -> dict[Link, str]:
    """Every page of the site, with its HTML."""
    found = {}
    for link in site(page, url):
        page.open(url + link.path)
        found[link] = page.evaluate("document.documentElement.outerHTML")
    return found


def test_a_tenant_reads_no_name_of_another_tenants_job(browser: Browser, secured: Secured) -> None:
    url = f"https://127.0.0.1:{secured.port}"
    with opened(browser, ANN) as page:
        shown = sources(page, url)
    told = {link.path: [name for name in OTHERS if name in text] for link, text in shown.items()}
    assert {path: names for path, names in told.items() if names} == {}
    assert any(OWN in text for text in shown.values())


def test_an_administrator_reads_all_names(browser: Browser, secured: Secured) -> None:
    url = f"https://127.0.0.1:{secured.port}"
    with opened(browser, BOSS) as page:
        everything = "\n".join(sources(page, url).values())
    assert all(name in everything for name in (OWN, *OTHERS))


def test_who_shows_no_token_reads_nothing(browser: Browser, secured: Secured) -> None:
    with browser.page() as page:
        page.call("Security.setIgnoreCertificateErrors", ignore=True)
        page.open(f"https://127.0.0.1:{secured.port}/page/cluster")
        text = page.evaluate("document.documentElement.outerHTML")
    assert not any(name in text for name in (OWN, *OTHERS))
    assert "<canvas" not in text
