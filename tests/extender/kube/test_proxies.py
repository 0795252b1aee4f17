"""The proxies of the environment, and servers that are reached without one."""

import base64

import pytest
from msgspec.structs import replace

from hived_extender.kube.client import KubeClient
from hived_extender.kube.endpoint import load_configuration
from hived_extender.kube.proxies import environment_proxy, is_bypassed
from tests.expecting import PATIENCE_S
from tests.stub_server import Request, StubServer


@pytest.mark.parametrize(
    "listed",
    [
        "*",
        "host.example.com",
        ".example.com",
        "example.com",
        "a, EXAMPLE.com",
        "host.example.com:6443",
        "com:6443",
        "*.example.com",
        "*.com:6443",
    ],
)
def test_a_server_that_is_listed_is_reached_without_a_proxy(listed: str) -> None:
    assert is_bypassed("https://host.example.com:6443", listed)


@pytest.mark.parametrize(
    "listed",
    ["", " ,", "ample.com", "other", "host.example.com:1", "10.0.0.0/8", "*.host.example.com", "*ample.com", "*.com:1"],
)
def test_any_other_server_is_reached_by_the_proxy(listed: str) -> None:
    assert not is_bypassed("https://host.example.com:6443", listed)


@pytest.mark.parametrize(
    ("url", "listed", "expected"),
    [
        ("https://10.96.0.1", "10.0.0.0/8", True),
        ("https://11.96.0.1", "10.0.0.0/8", False),
        ("https://[fd00::1]:443", "fd00::/8", True),
        ("https://10.96.0.1:443", "10.96.0.1", True),
    ],
)
def test_addresses_may_be_listed_by_networks(url: str, listed: str, expected: bool) -> None:
    assert is_bypassed(url, listed) is expected


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """One without proxies."""
    for name in ("http", "https", "no", "all"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name.upper()}_PROXY", raising=False)
    return monkeypatch


def test_the_proxy_is_the_one_of_the_servers_scheme(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("HTTPS_PROXY", "http://secure:1")
    environment.setenv("HTTP_PROXY", "http://plain:1")
    environment.setenv("NO_PROXY", "inside")
    found = [environment_proxy(url) for url in ("https://host", "http://host", "https://inside")]
    assert found == ["http://secure:1", "http://plain:1", ""]


def test_a_proxy_without_a_scheme_speaks_http(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("HTTPS_PROXY", "proxy:3128")
    assert environment_proxy("https://host") == "http://proxy:3128"


@pytest.mark.parametrize(
    ("login", "expected"),
    [("me:p%40ss%3A", "me:p@ss:"), ("m%C3%A9:p%E2%82%AC", "m\u00e9:p\u20ac"), ("me", "me:")],
)
def test_the_login_of_a_proxy_is_sent_as_it_was_before_it_was_encoded(login: str, expected: str) -> None:
    sent = []

    def answer(request: Request) -> tuple[int, dict[str, str]]:
        sent.append(request.headers["proxy-authorization"].removeprefix("Basic "))
        return 200, {}

    with StubServer(answer) as server:
        proxy = f"http://{login}@127.0.0.1:{server.server_port}"
        configuration = replace(load_configuration("http://nowhere.example:1"), proxy=proxy)
        KubeClient(configuration, request_timeout_s=PATIENCE_S).get("/api")
    assert base64.b64decode(sent[0]).decode() == expected
