"""The history and the record over HTTP: queries and refusals, and lines that make a trace."""

import gzip
import json
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from flask.testing import FlaskClient

from hived.values.errors import UserError
from hived_extender.http.app import create_app
from hived_extender.http.past_routes import DAY_S, Span, read_span
from hived_extender.insight.history import HistoryRings
from hived_extender.insight.store import Store
from hived_extender.machine.recording.record import Recorder
from hived_simulator.traces.reading import read_trace
from tests.extender.machine.small_cluster import CONFIG, SmallCluster, spec_text

NOW = 1_790_000_000.0
PATH = "/v1/inspect/history"


@pytest.fixture
def client(tmp_path: Path) -> FlaskClient:
    rings = HistoryRings(Store(tmp_path / "past.db"))
    at = time.time() // 3600 * 3600 - 3600
    for minute in range(10):
        rings.record(
            at + 60 * minute, {("leaf_cells_used", "a"): minute, ("leaf_cells_used", "b"): 1, ("leaf_cells",): 8}
        )
    rings.flush()
    return create_app(SmallCluster().service, history=rings).test_client()


def test_the_series_of_the_last_day_are_there_without_a_query(client: FlaskClient) -> None:
    found = client.get(PATH).json
    assert found is not None
    assert (found["step"], len(found["times"]), found["is_kept"]) == (300, 2, True)
    assert {one["metric"]: one["values"] for one in found["series"] if one["labels"].get("vc") != "b"} == {
        "leaf_cells": [8.0, 8.0],
        "leaf_cells_used": [2.0, 7.0],
    }


def test_a_query_chooses_series_steps_and_a_virtual_cluster(client: FlaskClient) -> None:
    found = client.get(f"{PATH}?step=60&series=leaf_cells_used,free_cells&vc=b&from=-7200").json
    assert found is not None
    assert (found["step"], len(found["times"])) == (60, 10)
    assert [one["labels"] for one in found["series"]] == [{"vc": "b"}]


@pytest.mark.parametrize(
    ("query", "span"),
    [
        ("", Span(NOW - DAY_S, NOW)),
        ("from=-3600", Span(NOW - 3600, NOW)),
        ("from=100&to=200.5&step=60", Span(100, 200.5, 60)),
        ("to=" + quote("2026-09-21T12:26:40Z"), Span(1_789_993_600 - DAY_S, 1_789_993_600)),
        ("series=free_cells,waiting_pods&series=leaf_cells&vc=a%2Fb", Span(
            NOW - DAY_S, NOW, None, ("free_cells", "waiting_pods", "leaf_cells"), "a/b"
        )),
    ],
)  # fmt: skip
def test_a_query_is_read(query: str, span: Span) -> None:
    assert read_span(query, NOW) == span


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("from=yesterday", "from='yesterday': expected seconds since 1970, a time such as"),
        ("to=nan", "to='nan': expected"),
        ("to=inf", "to='inf': expected"),
        ("from=1e300", "from='1e300': expected"),
        ("from=200&to=100", "from='200' is later than to='100'"),
        ("step=5m", "step='5m': expected seconds, such as 300"),
        ("step=-60", "step='-60': expected seconds"),
        ("form=100", "there is no field 'form' in a query of the history; there are from, to, series, step, vc"),
        ("&".join(["vc=a"] * 40), "the query has more than 32 fields"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(query: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        read_span(query, NOW)
    assert message in caught.value.message


def test_an_unknown_step_or_series_is_a_bad_request(client: FlaskClient) -> None:
    answer = client.get(f"{PATH}?step=61")
    assert (answer.status_code, answer.json) == (400, "step is 61; there are series in steps of 60, 300, 3600 seconds")
    assert client.get(f"{PATH}?series=free").status_code == 400


def test_a_service_without_a_history_says_so() -> None:
    answer = create_app(SmallCluster().service).test_client().get(PATH)
    assert (answer.status_code, answer.json) == (404, "this service keeps no history")


@pytest.fixture
def recorded(tmp_path: Path) -> SmallCluster:
    return SmallCluster(recorder=Recorder(tmp_path / "record", CONFIG, run="run"))


def client_of(cluster: SmallCluster) -> FlaskClient:
    return create_app(cluster.service).test_client()


def test_the_lines_are_a_trace(recorded: SmallCluster, tmp_path: Path) -> None:
    recorded.place("p", spec_text("a", 1, 5, "g", 1))
    answer = client_of(recorded).get("/v1/inspect/record?since=0")
    assert (answer.status_code, answer.content_type) == (200, "application/x-ndjson")
    lines = [json.loads(line) for line in answer.data.splitlines()]
    assert [line["op"] for line in lines][:2] == ["new", "schedule"]
    (tmp_path / "lines").write_bytes(answer.data + b'{"op":"time","now":%d}\n' % 2**31)
    assert read_trace(tmp_path / "lines").jobs[0].tenant == "a"


def test_it_is_packed_for_those_who_ask(recorded: SmallCluster) -> None:
    client = client_of(recorded)
    plain = client.get("/v1/inspect/record")
    packed = client.get("/v1/inspect/record", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.data) == plain.data


@pytest.mark.parametrize("since", ["x", "-1", "nan", "inf", "1e99", ""])
def test_a_moment_that_is_none_is_refused(recorded: SmallCluster, since: str) -> None:
    answer = client_of(recorded).get(f"/v1/inspect/record?since={since}")
    assert (answer.status_code, "expected seconds since 1970" in answer.json) == (400, True)


def test_nothing_that_young_is_told(recorded: SmallCluster) -> None:
    assert client_of(recorded).get("/v1/inspect/record?since=99999999999").status_code == 404


def test_a_service_without_a_record_says_how_to_keep_one() -> None:
    answer = client_of(SmallCluster()).get("/v1/inspect/record")
    assert (answer.status_code, "hived serve --record DIR" in answer.json) == (404, True)
