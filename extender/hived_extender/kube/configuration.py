"""The way to an API server as plain values: its address, TLS, proxy, and who we are there."""

import base64
from collections.abc import Callable
from typing import Protocol

import msgspec


def basic(name: str, password: str) -> str:
    """The header of a name and a password, in UTF-8."""
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"


class Identity(msgspec.Struct, frozen=True):
    """A caller: the value of the Authorization header, paths of a client certificate (PEM) and its key; "" for none."""

    header: str = ""
    certificate_file: str = ""
    key_file: str = ""

    def __repr__(self) -> str:
        """Without the header, which logs and tracebacks must not show."""
        return f"Identity(certificate_file={self.certificate_file!r}, key_file={self.key_file!r})"


class Credentials(Protocol):
    """The means by which a caller gets an identity. Thread-safe."""

    def identity(self) -> Identity:
        """The identity that is good now. It reads files and runs programs, and may raise any Exception."""

    def forget(self, refused: Identity) -> None:
        """Renew the identity before its next use, as the API server has refused it. An older one changes nothing."""


class Header:
    """Credentials that are a header alone, which is read for each call."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read

    def identity(self) -> Identity:
        """Raises what reading raises."""
        return Identity(self._read())

    def forget(self, refused: Identity) -> None:
        """Nothing: it is read anew in any case."""


NOBODY = Header(str)
"""A caller without a token."""


class Tls(msgspec.Struct, frozen=True):
    """Paths of PEM files, "" for none; `ca_data` is PEM itself. Without either the system's authorities count.

    `server_name` is the name that the server's certificate has to have, "" for that of the address.
    """

    ca_file: str = ""
    ca_data: str = ""
    certificate_file: str = ""
    key_file: str = ""
    server_name: str = ""
    is_verified: bool = True


class Configuration(msgspec.Struct, frozen=True):
    """An API server as somebody with a certificate or a token reaches it.

    A certificate of `tls` counts more than one of `credentials`. `proxy` is a URL, "" for none, None for that of the
    environment.
    """

    host: str
    tls: Tls = Tls()
    proxy: str | None = None
    credentials: Credentials = NOBODY
