"""Tokens that are renewed: by an identity provider, and at most once for calls of many threads."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs

import pytest

from hived_extender.kube.configuration import Identity
from hived_extender.kube.credentials import IdentityProvider, Renewed
from tests.stub_server import Request, StubServer

FAR = 32503680000
"""The year 3000."""


def token(expiry: int, mark: str = "") -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": expiry, "mark": mark}).encode()).decode().rstrip("=")
    return f"head.{claims}.signature"


class Provider(StubServer):
    """Answers as an identity provider does, and keeps the forms that it gets."""

    def __init__(self) -> None:
        super().__init__(self._answer_one)
        self.forms: list[tuple[dict[str, list[str]], str]] = []
        self.status = 200
        self.renewed: dict[str, Any] = {"id_token": token(FAR, "new"), "refresh_token": "next"}

    def _answer_one(self, request: Request) -> tuple[int, Any]:
        if request.method == "GET":
            return 200, {"token_endpoint": f"{self.url}/token"}
        self.forms.append((parse_qs(request.body.decode()), request.headers.get("Authorization", "")))
        return self.status, self.renewed


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as running:
        yield running


def identity(provider: Provider, expiry: int = 1) -> IdentityProvider:
    return IdentityProvider(
        id_token=token(expiry), idp_issuer_url=provider.url, client_id="hived", client_secret="s", refresh_token="r"
    )


def test_a_token_that_is_good_is_used_as_it_is(provider: Provider) -> None:
    assert identity(provider, FAR).renew() == (Identity(f"Bearer {token(FAR)}"), FAR)


def test_an_expired_token_is_renewed_by_its_provider(provider: Provider) -> None:
    assert identity(provider).renew() == (Identity(f"Bearer {token(FAR, 'new')}"), FAR)


def test_the_provider_is_told_who_asks_with_which_token(provider: Provider) -> None:
    identity(provider).renew()
    form, header = provider.forms[0]
    assert form == {"grant_type": ["refresh_token"], "refresh_token": ["r"], "client_id": ["hived"]}
    assert base64.b64decode(header.removeprefix("Basic ")) == b"hived:s"


def test_the_next_token_is_renewed_by_what_came_with_the_last(provider: Provider) -> None:
    provider.renewed["id_token"] = token(1)
    expired = identity(provider)
    expired.renew()
    expired.renew()
    assert [form["refresh_token"] for form, _ in provider.forms] == [["r"], ["next"]]


def test_a_refusal_of_the_provider_is_an_error(provider: Provider) -> None:
    provider.status = 401
    with pytest.raises(ValueError, match="the identity provider answered 401"):
        identity(provider).renew()


def test_a_provider_without_an_answer_is_an_error(provider: Provider) -> None:
    provider.renewed = {}
    with pytest.raises(ValueError, match="gave no id_token"):
        identity(provider).renew()


def test_an_expired_token_that_cannot_be_renewed_is_an_error() -> None:
    with pytest.raises(ValueError, match="there is no refresh-token"):
        IdentityProvider(id_token=token(1)).renew()


def test_many_calls_at_once_renew_a_token_once() -> None:
    renewals = []

    def renew() -> tuple[Identity, float]:
        renewals.append(1)
        time.sleep(0.02)
        return Identity("Bearer x"), time.time() + 3600

    renewed = Renewed(renew)
    threads = [threading.Thread(target=renewed.identity) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(renewals) == 1
