"""An API server as plain values: its address, TLS, proxy, and the identity that we have there."""

import threading
import time
from collections.abc import Callable

import msgspec

BEFORE_EXPIRY_S = 30.0
"""A token is renewed so long before it expires: a call may be under way for that time."""

NEVER = float("inf")


class Identity(msgspec.Struct, frozen=True):
    """A caller: the value of the Authorization header, paths of a client certificate (PEM) and its key; "" for none."""

    header: str = ""
    certificate_file: str = ""
    key_file: str = ""

    def __repr__(self) -> str:
        """Without the header, which logs and tracebacks must not show."""
        return f"Identity(certificate_file={self.certificate_file!r}, key_file={self.key_file!r})"


ANONYMOUS = Identity()


class Credentials:
    """An identity that is kept until shortly before it expires, or is refused. Thread-safe.

    `renew` gives a new one with the time when it expires, in s since 1970.
    """

    def __init__(
        self, renew: Callable[[], tuple[Identity, float]], identity: Identity = ANONYMOUS, expires_at: float = 0.0
    ) -> None:
        self._renew = renew
        self._lock = threading.Lock()
        self._identity, self._expires_at = identity, expires_at

    def identity(self) -> Identity:
        """The identity that is good now. One thread renews it, the others wait. Raises what `renew` raises."""
        with self._lock:
            if time.time() > self._expires_at - BEFORE_EXPIRY_S:
                self._identity, self._expires_at = self._renew()
            return self._identity

    def forget(self, refused: Identity) -> None:
        """Renew it at its next use. Many calls may be refused at once: only the first of them finds it unchanged."""
        with self._lock:
            if refused is self._identity:
                self._expires_at = 0.0


class Tls(msgspec.Struct, frozen=True):
    """The path of a PEM file with authorities, "" for the system's. `server_name` is "" for that of the address."""

    ca_file: str = ""
    server_name: str = ""
    is_verified: bool = True


class Configuration(msgspec.Struct, frozen=True):
    """An API server as one caller reaches it. `proxy` is a URL, "" for none, None for that of the environment."""

    host: str
    tls: Tls = Tls()
    proxy: str | None = None
    credentials: Credentials = Credentials(lambda: (ANONYMOUS, NEVER))
