"""The past as a page: with a table for readers without scripts, and the values that the script draws."""

import re
import time
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from hived_extender.http.app import create_app
from hived_extender.http.pages.site import POLICY
from hived_extender.http.pages.time_pages import KINDS, SPANS
from hived_extender.insight.history import RINGS, HistoryRings
from hived_extender.insight.store import Store
from tests.extender.http.pages.test_cluster_pages import BROWSER, page, text_of
from tests.extender.machine.small_cluster import SmallCluster

pytestmark = pytest.mark.sample(6)


@pytest.fixture
def client(tmp_path: Path) -> FlaskClient:
    rings = HistoryRings(Store(tmp_path / "past.db"))
    at = time.time() // 300 * 300 - 1200
    for minute in range(15):
        rings.record(at + 60 * minute, {
            ("leaf_cells",): 16, ("leaf_cells_used", "a"): 4, ("leaf_cells_promised", "a"): 8,
            ("free_cells", "a", "RACK", "NODE"): 1, ("waiting_pods", "a", "in-use"): 3,
        })  # fmt: skip
    rings.flush()
    return create_app(SmallCluster().service, history=rings).test_client()


def test_every_chart_is_there_with_its_table(client: FlaskClient) -> None:
    html = page(client, "/page/time?span=hours")
    drawn, empty = (re.findall(rf'<{tag} id="([a-z]+)">(?!Nothing)', html) for tag in ("h2", "dt"))
    assert drawn == [kind.name for kind in KINDS if kind.name not in empty]
    assert empty == [kind.name for kind in KINDS if kind.name not in drawn]
    assert empty
    words = text_of(html)
    assert "Utilisation as a table Utilisation, in % Since all jobs guaranteed jobs" in words
    assert "Waiting pods by cause as a table Waiting pods by cause, in pods Since in-use" in words
    assert html.count("<details") == html.count("data-source=") == 6
    assert '<details class="twin" id="use-table" open>' in html


def test_the_navigation_has_the_page_only_where_there_is_a_history(client: FlaskClient) -> None:
    assert '<a href="/page/time" aria-current="page">Time</a>' in page(client, "/page/time")
    bare = create_app(SmallCluster().service).test_client()
    assert "/page/time" not in page(bare, "/page/vcs")
    answer = bare.get("/page/time", headers={"Accept": BROWSER})
    assert answer.status_code == 404
    assert "This service keeps no history" in answer.text


def test_a_chart_has_the_values_that_its_table_has(client: FlaskClient) -> None:
    found = client.get("/page/time/series?chart=causes&span=hours").json
    assert found is not None
    assert (found["unit"], found["step"], found["is_stacked"]) == ("pods", 60, True)
    assert [(line["name"], line["values"]) for line in found["lines"]] == [("in-use", [3.0] * 15)]


def test_each_chart_of_the_page_can_be_asked_for_and_is_not_sent_twice(client: FlaskClient) -> None:
    sources = re.findall(r'data-source="([^"]+)"', page(client, "/page/time?vc=a&span=day"))
    assert sources
    for source in sources:
        first = client.get(source.replace("&amp;", "&"))
        assert first.status_code == 200
        assert first.headers["Content-Security-Policy"] == POLICY
        again = client.get(source.replace("&amp;", "&"), headers={"If-None-Match": first.headers["ETag"]})
        assert again.status_code == 304


def test_the_page_of_a_virtual_cluster_has_its_free_cells_over_day_and_week(client: FlaskClient) -> None:
    html = page(client, "/page/vcs/a")
    sources = [one.replace("&amp;", "&") for one in re.findall(r'data-source="([^"]+)"', html)]
    assert sources == [f"/page/time/series?chart=free&span={span}&vc=a" for span in ("day", "week")]
    found = client.get(sources[0]).json
    assert found is not None
    assert [(line["name"], set(line["values"])) for line in found["lines"]] == [("NODE (RACK)", {1.0})]


def test_nothing_is_there_that_the_policy_forbids(client: FlaskClient) -> None:
    for path in ("/page/time", "/page/vcs/a"):
        html = page(client, path)
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:|https?://(?!www\.w3\.org)", html)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("span=year", "There is no span &#39;year&#39;; there are: hours, day, week, month, quarter"),
        ("vc=%3Cb%3E", "There is no virtual cluster &#39;&lt;b&gt;&#39;; there are: a, b, empty"),
    ],
)
def test_an_unknown_span_or_virtual_cluster_is_not_found(client: FlaskClient, query: str, message: str) -> None:
    answer = client.get(f"/page/time?{query}", headers={"Accept": BROWSER})
    assert answer.status_code == 404
    assert message in answer.text


def test_an_unknown_chart_is_not_found(client: FlaskClient) -> None:
    answer = client.get("/page/time/series?chart=none")
    assert answer.status_code == 404


def test_a_past_without_samples_says_so() -> None:
    client = create_app(SmallCluster().service, history=HistoryRings()).test_client()
    assert "Nothing was sampled in this time." in text_of(page(client, "/page/time"))


def test_a_replica_that_does_not_lead_shows_its_own_past() -> None:
    small = SmallCluster(is_leading=False)
    client = create_app(small.service, history=HistoryRings()).test_client()
    assert page(client, "/page/time")


def test_every_span_is_in_a_step_that_is_kept_for_so_long() -> None:
    rows = dict(RINGS)
    assert all(span.seconds <= span.step * rows[span.step] for span in SPANS)


def test_moments_are_in_utc_as_in_sentences(client: FlaskClient) -> None:
    moments = re.findall(r'<time datetime="([^"]+)">([^<]+)</time>', page(client, "/page/time?span=hours"))
    assert moments
    assert all(text == f"{each[:10]} {each[11:16]} UTC" for each, text in moments)
