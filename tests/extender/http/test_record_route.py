"""The record over HTTP: only of a service that keeps one and leads, in lines that make a trace."""

import gzip
import json
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from hived_extender.http.app import create_app
from hived_extender.recording.record import Recorder
from hived_simulator.traces.reading import read_trace
from tests.extender.machine.small_cluster import CONFIG, SmallCluster, spec_text


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
