"""The past as charts and tables with the same numbers: the right lines, and no gap that is hidden."""

import re
import time
from pathlib import Path
from typing import get_args

import pytest
from flask.testing import FlaskClient

from hived_extender.api.past import History, MetricName, Series
from hived_extender.api.waiting import CauseName
from hived_extender.http.app import create_app
from hived_extender.http.browsers import POLICY
from hived_extender.http.pages.time_pages import (
    CAUSES,
    KIND_OF,
    KINDS,
    MOST_LINES,
    MOST_ROWS,
    NOTHING,
    SPANS,
    Chart,
    Shown,
    make_chart,
    metrics_of,
    table,
)
from hived_extender.insight.history import LABELS, RINGS, HistoryRings
from hived_extender.insight.store import Store
from tests.extender.http.pages.test_cluster_pages import BROWSER, page, text_of
from tests.extender.machine.small_cluster import SmallCluster

ALL = Shown("", ("a", "b"), ("RACK", "NODE", "PAIR"), frozenset({"NODE"}))
ONE = Shown("a", ("a", "b"), ("RACK", "NODE", "PAIR"), frozenset({"NODE"}))


def history(*series: tuple[MetricName, dict[str, str], list[float | None]], times: list[int] | None = None) -> History:
    given = [Series(metric, labels, values) for metric, labels, values in series]
    return History(step=60, times=times or [60 * i for i in range(len(given[0].values))], series=given)


def chart(name: str, past: History, shown: Shown = ALL) -> Chart:
    return make_chart(KIND_OF[name], past, shown)


def lines(name: str, past: History, shown: Shown = ALL) -> dict[str, list[float | None]]:
    return {line.name: line.values for line in chart(name, past, shown).lines}


def test_causes_are_the_closed_set() -> None:
    assert set(CAUSES) == set(get_args(CauseName))


def test_charts_ask_for_metrics_that_are_kept_and_together_for_all() -> None:
    assert set(metrics_of(KINDS)) == LABELS.keys() - {"leaf_cells_bad"}


def test_pods_that_jobs_in_queues_will_have_count_as_waiting() -> None:
    past = history(
        ("waiting_pods", {"vc": "a", "cause": "bad"}, [1, 2]),
        ("queued_pods", {"vc": "a"}, [4, 0]),
        ("queued_pods", {"vc": "b"}, [1, 1]),
    )
    assert lines("waiting", past) == {"a": [5, 2], "b": [1, 1]}
    assert lines("causes", past) == {"bad": [1, 2], "in a queue": [5, 1]}


def test_intervals_without_samples_are_there_and_empty() -> None:
    past = history(("waiting_pods", {"vc": "a", "cause": "bad"}, [1, 2]), times=[600, 780])
    found = chart("causes", past)
    assert found.times == [600, 660, 720, 780]
    assert found.lines[0].values == [1, None, None, 2]


def test_a_past_without_samples_makes_charts_without_lines() -> None:
    for kind in KINDS:
        found = make_chart(kind, History(step=60, times=[]), ALL)
        assert (found.times, [one for one in found.lines if one.values], table(found, str)) == ([], [], [])


def test_utilisation_is_of_the_cluster_or_of_a_promise() -> None:
    past = history(
        ("leaf_cells", {}, [10, 10]),
        ("leaf_cells_used", {"vc": "a"}, [2, 3]),
        ("leaf_cells_used", {"vc": "b"}, [1, 0]),
        ("leaf_cells_borrowed", {"vc": "b"}, [1, None]),
        ("leaf_cells_promised", {"vc": "a"}, [4, 0]),
    )
    assert lines("utilisation", past) == {"all jobs": [40, 30], "guaranteed jobs": [30, 30]}
    assert lines("utilisation", past, ONE)["promise in use"] == [50, None]


def test_use_is_stacked_by_virtual_cluster_in_the_colours_of_all_pages() -> None:
    past = history(
        ("leaf_cells_used", {"vc": "b"}, [1]), ("leaf_cells_used", {"vc": "a"}, [2]),
        ("leaf_cells_borrowed", {"vc": "a"}, [3]), ("leaf_cells_borrowed", {"vc": "b"}, [1]),
    )  # fmt: skip
    found = chart("use", past)
    assert found.is_stacked
    assert [(one.name, one.number, one.values) for one in found.lines] == [
        ("a", 0, [2]), ("b", 1, [1]), ("opportunistic", 11, [4]),
    ]  # fmt: skip


def test_waits_are_summed_over_the_other_label() -> None:
    past = history(
        ("waiting_pods", {"vc": "a", "cause": "bad"}, [1]), ("waiting_pods", {"vc": "a", "cause": "in-use"}, [2]),
        ("waiting_pods", {"vc": "", "cause": "invalid"}, [4]),
    )  # fmt: skip
    assert lines("waiting", past) == {"a": [3], "(none)": [4]}
    assert lines("causes", past) == {"in-use": [2], "bad": [1], "invalid": [4]}


def test_a_delay_is_the_mean_in_minutes_and_nothing_where_nobody_started() -> None:
    past = history(
        ("start_delay_seconds", {"vc": "a"}, [240, 0]), ("started_pods", {"vc": "a"}, [2, 0]),
    )  # fmt: skip
    assert lines("delay", past) == {"a": [2, None]}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.5412, "0.54 s"), (59, "59 s"), (60, "1 min"), (754, "12.6 min"), (7200, "2 h"), (86400, "24 h")],
)
def test_a_delay_in_a_table_has_the_unit_that_fits(seconds: float, text: str) -> None:
    past = history(("start_delay_seconds", {"vc": "a"}, [seconds]), ("started_pods", {"vc": "a"}, [1]))
    assert [row.texts for row in table(chart("delay", past), str)] == [[text]]


def test_a_guarantee_is_kept_but_for_its_bad_cells() -> None:
    past = history(
        ("leaf_cells_promised", {"vc": "a"}, [8, 8]), ("leaf_cells_promised", {"vc": "b"}, [4, None]),
        ("leaf_cells_short", {"vc": "a"}, [0, 2]),
    )  # fmt: skip
    assert lines("kept", past) == {"a": [100, 75], "b": [100, None]}


def test_free_cells_are_nodes_of_all_or_every_level_of_one_larger_first() -> None:
    past = history(
        ("free_cells", {"vc": "a", "chain": "RACK", "level": "GPU"}, [8]),
        ("free_cells", {"vc": "a", "chain": "RACK", "level": "NODE"}, [2]),
        ("free_cells", {"vc": "a", "chain": "RACK", "level": "RACK"}, [1]),
        ("free_cells", {"vc": "a", "chain": "OTHER", "level": "NODE"}, [5]),
        ("free_cells", {"vc": "b", "chain": "RACK", "level": "NODE"}, [3]),
    )
    assert lines("free", past) == {"a": [7], "b": [3]}
    assert list(lines("free", past, ONE).items()) == [("RACK", [1]), ("NODE (OTHER)", [5]), ("NODE (RACK)", [2])]


def test_more_lines_than_can_be_told_apart_leave_out_the_smallest() -> None:
    vcs = tuple(f"v{number:02d}" for number in range(MOST_LINES + 3))
    past = history(*(("preempted_pods", {"vc": vc}, [number]) for number, vc in enumerate(vcs)))
    found = chart("preempted", past, Shown("", vcs, (), frozenset()))
    assert found.left_out == 3
    assert [line.name for line in found.lines] == list(vcs[3:])


@pytest.mark.parametrize(
    ("name", "metric", "expected"), [("waiting", "waiting_pods", "3"), ("lost", "preempted_gpu_hours", "12")]
)
def test_a_table_has_means_of_its_intervals_or_sums_newest_first(name: str, metric: MetricName, expected: str) -> None:
    values: list[float | None] = [2, 4, None, 3, 3] * MOST_ROWS
    labels = {"vc": "a", "cause": "bad"} if name == "waiting" else {"vc": "a"}
    found = chart(name, history((metric, labels, values)))
    rows = table(found, str)
    assert len(rows) == MOST_ROWS
    assert (rows[0].since, rows[-1].since) == (str(300 * (MOST_ROWS - 1)), "0")
    assert {text for row in rows for text in row.texts} == {expected}


def test_a_row_in_which_nothing_was_sampled_says_so() -> None:
    past = history(("waiting_pods", {"vc": "a", "cause": "bad"}, [1, 2]), times=[0, 60 * MOST_ROWS * 4])
    assert [row.texts for row in table(chart("waiting", past), str)][1] == [NOTHING]


pytestmark = pytest.mark.sample(21)


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
