"""Forms that change something are taken only from our own pages.

A browser sends along whatever lets a user in, the token that a proxy adds or a client certificate, for any page that
posts here; to a loopback address every page on the machine can post. So three things have to agree. The browser says
that the page is of this very host (`Origin`). The form has a token that only a page of ours could show to this caller.
And where nobody asks who calls, the host is a loopback address by name, so that no name of somebody else's leads here.
"""

import hashlib
import hmac
import ipaddress
import secrets
import time
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from hived.values.errors import UserError
from hived_extender.http.identities import Identity

FORBIDDEN = 403
WINDOW_S = 3 * 3600
"""A token is taken for this long at least, and twice as long at most."""

ELSEWHERE = "a form from another site was refused: open this page here, and send the form from it"


class FormGuard:
    """Makes and checks tokens of forms. Another process makes other ones."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self._key = secrets.token_bytes(32)
        self._clock = clock

    def token(self, caller: Identity | None) -> str:
        """The token for the forms of a caller."""
        return self._token(caller, self._window())

    def check(self, headers: Mapping[str, str], token: str, caller: Identity | None, *, is_open: bool) -> None:
        """Raises UserError (403) unless the form is of our own page. `is_open`: nobody asks who calls."""
        host = headers.get("Host", "")
        origin = urlsplit(headers.get("Origin", ""))
        if not host or origin.netloc.lower() != host.lower() or origin.scheme not in {"http", "https"}:
            raise UserError(ELSEWHERE, FORBIDDEN)
        if headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            raise UserError(ELSEWHERE, FORBIDDEN)
        if is_open and not _is_loopback(host):
            raise UserError(f"{host} is no loopback address: this service does not ask who calls", FORBIDDEN)
        good = [self._token(caller, self._window() - age) for age in (0, 1)]
        if not any(hmac.compare_digest(each.encode(), token.encode("utf-8", "replace")) for each in good):
            raise UserError("the form is too old, or another replica has made it: load the page again", FORBIDDEN)

    def _window(self) -> int:
        return int(self._clock() // WINDOW_S)

    def _token(self, caller: Identity | None, window: int) -> str:
        who = "" if caller is None else f"{caller.name}\n{caller.uid}"
        return hmac.new(self._key, f"{window}\n{who}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def _is_loopback(host: str) -> bool:
    """Whether `host[:port]` is a loopback address, or localhost."""
    name = urlsplit(f"//{host}").hostname or ""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
