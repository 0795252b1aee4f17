"""Pages of other sites cannot use a browser to call an open service."""

import pytest

from hived_extender.http.access import ALLOWED_HOSTS, browser_refusal


@pytest.mark.parametrize(
    "host",
    ["hived:9096", "127.0.0.1:9096", "[::1]:9096", "localhost", "10.0.0.7", "hived.hived-system.svc:9096",
     "hived.hived-system.svc.cluster.local", "gpus.internal", ""],
)  # fmt: skip
def test_kube_scheduler_and_command_lines_are_answered(host: str) -> None:
    assert browser_refusal("POST", [(b"host", host.encode())]) == ""


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9096", "hived.evil.example.", "127.0.0.1.evil.example"])
def test_a_public_name_is_no_name_of_the_service(host: str) -> None:
    assert "is no name of this service" in browser_refusal("GET", [(b"host", host.encode())], {})
    assert browser_refusal("GET", [(b"host", b"gpus.example:80")], {ALLOWED_HOSTS: "a.example,gpus.example"}) == ""


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
def test_a_page_of_another_site_changes_nothing(origin: str) -> None:
    headers = [(b"host", b"127.0.0.1:9096"), (b"origin", origin.encode())]
    assert "Origin is not this host" in browser_refusal("POST", headers)
    assert browser_refusal("GET", headers) == ""


def test_a_page_of_the_service_may_send_its_form() -> None:
    assert browser_refusal("POST", [(b"host", b"127.0.0.1:9096"), (b"origin", b"http://127.0.0.1:9096")]) == ""
