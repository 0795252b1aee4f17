"""Long answers: their pieces, their tags, and compressed."""

import gzip

import pytest
from flask.testing import FlaskClient

from hived_extender.http.answers import Question
from hived_extender.http.app import create_app
from hived_extender.http.dumps import PIECE, dump
from tests.extender.machine.small_cluster import SmallCluster

INSPECT = "/v1/inspect"
PATHS = (
    f"{INSPECT}/affinitygroups/",
    f"{INSPECT}/clusterstatus",
    f"{INSPECT}/clusterstatus/physicalcluster",
    f"{INSPECT}/clusterstatus/virtualclusters/",
    f"{INSPECT}/clusterstatus/virtualclusters/a",
)


@pytest.fixture
def small() -> SmallCluster:
    return SmallCluster()


@pytest.fixture
def client(small: SmallCluster) -> FlaskClient:
    return create_app(small.service).test_client()


@pytest.mark.parametrize("path", PATHS)
def test_whoever_has_the_answer_already_is_told_so(client: FlaskClient, path: str) -> None:
    tag = client.get(path).headers["ETag"]
    again = client.get(path, headers={"If-None-Match": f'"other", {tag}'})
    assert (again.status_code, again.data, again.headers["ETag"]) == (304, b"", tag)


def test_nobody_has_the_answer_about_an_unknown_vc(client: FlaskClient) -> None:
    path = f"{INSPECT}/clusterstatus/virtualclusters/none"
    assert client.get(path, headers={"If-None-Match": "*"}).status_code == 400


@pytest.mark.parametrize("path", PATHS)
def test_after_a_change_there_is_another_answer(small: SmallCluster, client: FlaskClient, path: str) -> None:
    tag = client.get(path).headers["ETag"]
    small.place("p")
    assert client.get(path, headers={"If-None-Match": tag}).status_code == 200


def test_no_answer_of_a_former_term_or_process_counts(small: SmallCluster, client: FlaskClient) -> None:
    tags = {client.get(PATHS[1]).headers["ETag"]}
    small.service.follow("another leads")
    small.lead()
    tags.add(client.get(PATHS[1]).headers["ETag"])
    tags.add(create_app(SmallCluster().service).test_client().get(PATHS[1]).headers["ETag"])
    assert len(tags) == 3


@pytest.mark.parametrize("path", PATHS)
def test_a_compressed_answer_is_the_same(small: SmallCluster, client: FlaskClient, path: str) -> None:
    small.place("p")
    packed = client.get(path, headers={"Accept-Encoding": "br, gzip"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.data) == client.get(path).data


def test_nothing_is_compressed_for_whoever_refuses_it(client: FlaskClient) -> None:
    answer = client.get(PATHS[1], headers={"Accept-Encoding": "gzip;q=0"})
    assert "Content-Encoding" not in answer.headers


def test_pieces_are_large_and_hold_everything_in_order() -> None:
    parts = [bytes([number % 256]) * 10_000 for number in range(100)]
    body = dump(Question(), "1", parts).body
    assert not isinstance(body, bytes)
    pieces = list(body)
    assert b"".join(pieces) == b"".join(parts)
    assert all(PIECE <= len(piece) < PIECE + 10_000 for piece in pieces[:-1])
