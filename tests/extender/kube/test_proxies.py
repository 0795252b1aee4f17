"""The proxies of the environment, and servers that are reached without one."""

import pytest

from hived_extender.kube.proxies import environment_proxy, is_bypassed


@pytest.mark.parametrize(
    "listed",
    ["*", "host.example.com", ".example.com", "example.com", "a, EXAMPLE.com", "host.example.com:6443", "com:6443"],
)
def test_a_server_that_is_listed_is_reached_without_a_proxy(listed: str) -> None:
    assert is_bypassed("https://host.example.com:6443", listed)


@pytest.mark.parametrize("listed", ["", " ,", "ample.com", "other", "host.example.com:1", "10.0.0.0/8"])
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


def test_the_proxy_is_the_one_of_the_servers_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http", "https", "no", "all"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name.upper()}_PROXY", raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://secure:1")
    monkeypatch.setenv("HTTP_PROXY", "http://plain:1")
    monkeypatch.setenv("NO_PROXY", "inside")
    found = [environment_proxy(url) for url in ("https://host", "http://host", "https://inside")]
    assert found == ["http://secure:1", "http://plain:1", ""]
