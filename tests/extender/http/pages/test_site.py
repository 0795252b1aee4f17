"""Forms are taken from our own pages alone."""

import pytest

from hived.values.errors import UserError
from hived_extender.http.answers import Identity
from hived_extender.http.pages.site import WINDOW_S, FormGuard

ANN, BOB = Identity("ann"), Identity("bob")
OURS = {"Host": "hived.example:8080", "Origin": "https://hived.example:8080", "Sec-Fetch-Site": "same-origin"}
LOCAL = {"Host": "127.0.0.1:9096", "Origin": "http://127.0.0.1:9096"}


def test_a_form_of_our_own_page_is_taken() -> None:
    guard = FormGuard()
    guard.check(OURS, guard.token(ANN), ANN, is_open=False)
    guard.check(LOCAL, guard.token(None), None, is_open=True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "https://hived.example"},
        {"Origin": "https://hived.example:8080.evil.example"},
        {"Origin": "file://hived.example:8080"},
        {"Host": ""},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_form_of_another_site_is_refused_even_with_a_token(wrong: dict[str, str]) -> None:
    guard = FormGuard()
    with pytest.raises(UserError, match="another site") as error:
        guard.check(OURS | wrong, guard.token(ANN), ANN, is_open=False)
    assert error.value.code == 403


@pytest.mark.parametrize("token", ["", "0" * 64, "ü"])
def test_a_form_without_our_token_is_refused(token: str) -> None:
    with pytest.raises(UserError, match="load the page again"):
        FormGuard().check(OURS, token, ANN, is_open=False)


def test_a_token_is_the_callers_own_and_that_of_the_process() -> None:
    guard = FormGuard()
    for token, caller in ((guard.token(BOB), ANN), (FormGuard().token(ANN), ANN), (guard.token(None), ANN)):
        with pytest.raises(UserError, match="load the page again"):
            guard.check(OURS, token, caller, is_open=False)


def test_a_token_ends() -> None:
    now_s = 7.0 * WINDOW_S
    guard = FormGuard(lambda: now_s)
    token = guard.token(ANN)
    now_s += WINDOW_S
    guard.check(OURS, token, ANN, is_open=False)
    now_s += WINDOW_S
    with pytest.raises(UserError, match="too old"):
        guard.check(OURS, token, ANN, is_open=False)


@pytest.mark.parametrize("host", ["rebound.example", "10.0.0.1:80", "127.0.0.1.evil.example", "localhost.evil.example"])
def test_a_service_that_asks_nobody_takes_forms_at_loopback_addresses_alone(host: str) -> None:
    guard = FormGuard()
    with pytest.raises(UserError, match="no loopback address"):
        guard.check({"Host": host, "Origin": f"http://{host}"}, guard.token(None), None, is_open=True)


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "127.1.2.3:9", "[::1]:9096", "lab.localhost"])
def test_loopback_addresses_have_many_names(host: str) -> None:
    guard = FormGuard()
    guard.check({"Host": host, "Origin": f"http://{host}"}, guard.token(None), None, is_open=True)
