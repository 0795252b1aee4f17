"""One API server per test module, one namespace per test."""

import itertools
from collections.abc import Iterator

import pytest

from hived_lab.embedded.apiserver.server import ApiServer
from tests.lab.embedded.helpers import Http, api_server

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    """A server with a history of the usual length."""
    with api_server(bookmark_interval_s=0.1) as running:
        yield running


@pytest.fixture
def http(server: ApiServer) -> Http:
    """A bare client of `server`."""
    return Http(server.port)


@pytest.fixture
def namespace(http: Http) -> str:
    """A namespace that only this test uses."""
    name = f"test-{next(_numbers)}"
    http.ok("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return name


@pytest.fixture
def pods(namespace: str) -> str:
    """The path of the pods of that namespace."""
    return f"/api/v1/namespaces/{namespace}/pods"


@pytest.fixture
def config_maps(namespace: str) -> str:
    """The path of the config maps of that namespace."""
    return f"/api/v1/namespaces/{namespace}/configmaps"
