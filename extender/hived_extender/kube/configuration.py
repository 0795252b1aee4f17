"""The way to an API server as plain values: its address, TLS, proxy, and who we are there."""

import base64
from collections.abc import Callable

import msgspec


def basic(name: str, password: str) -> str:
    """The header of a name and a password, in UTF-8."""
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"


def nobody() -> str:
    """The Authorization header of a caller without a token."""
    return ""


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

    `authorization` gives the value of the Authorization header and renews it when it has expired. As it reads files and
    runs programs, it may raise anything. `proxy` is a URL, "" for none, None for that of the environment.
    """

    host: str
    tls: Tls = Tls()
    proxy: str | None = None
    authorization: Callable[[], str] = nobody
