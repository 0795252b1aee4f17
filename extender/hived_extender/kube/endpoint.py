"""The way to the API server: where it is, connections to it, and the identity that calls have there."""

import base64
import math
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment

import msgspec
import urllib3
from msgspec.structs import replace
from urllib3.util import parse_url

from hived_extender.kube.answers import KubeError
from hived_extender.kube.connections import Connections

BEFORE_EXPIRY_S = 30.0
"""A token is renewed so long before it expires: a call may be under way for that time (rule 34.4)."""

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


POOL_SIZE = 32
TOKEN_S = 1.0
"""For so long an identity is not asked for anew: some tokens are read from a file each time."""


class Way(msgspec.Struct, frozen=True):
    """A call goes this way: `token` is the value of its Authorization header, "" for none.

    `connections` are ours, None where a proxy is on the way; `pool` is urllib3's. Both show the identity's certificate.
    """

    identity: Identity
    token: str
    pool: urllib3.PoolManager
    connections: Connections | None

    def __repr__(self) -> str:
        """Without the token, which logs and tracebacks must not show."""
        return f"Way({self.identity!r})"


class Endpoint:
    """An API server with the identity that we have there. Thread-safe."""

    def __init__(self, configuration: Configuration) -> None:
        """Raises KubeError for a proxy that cannot be used."""
        self.configuration = configuration
        self.host = configuration.host
        self._lock = threading.Lock()
        self._known = _way(configuration, Identity(), ""), -math.inf  # and until when it is good

    def way(self) -> Way:
        """The way for a call. Expired credentials are renewed. Raises KubeError."""
        way, until = self._known
        if time.monotonic() <= until:
            return way
        with self._lock:
            way, until = self._known  # another thread may have renewed it
            if time.monotonic() > until:
                way = self._renewed(way)
                self._known = way, time.monotonic() + TOKEN_S
            return way

    def forget(self, refused: Way) -> None:
        """Ask for the identity anew: the API server has refused it (rule 34.4)."""
        self.configuration.credentials.forget(refused.identity)
        with self._lock:
            way, _ = self._known
            if way.identity is refused.identity:
                self._known = way, -math.inf

    def close(self) -> None:
        """Drop idle connections."""
        way, _ = self._known
        way.pool.clear()
        if way.connections is not None:
            way.connections.clear()

    def _renewed(self, last: Way) -> Way:
        try:
            identity = self.configuration.credentials.identity()
        except Exception as error:  # renewing reads files and runs programs, which fail in many ways
            message = f"the credentials for the API server cannot be renewed: {error}"
            raise KubeError(0, "ConfigError", message) from error
        token = _sendable(identity.header)
        if _certificate(identity) == _certificate(last.identity):
            return replace(last, identity=identity, token=token)
        # The server knows a certificate by the connection, so connections with the last one are closed.
        way = _way(self.configuration, identity, token)
        last.pool.clear()
        if last.connections is not None:
            last.connections.retire()
        return way


def _certificate(identity: Identity) -> tuple[str, str]:
    return identity.certificate_file, identity.key_file


def _sendable(header: str) -> str:
    """A header as urllib3 and `Connections` write it. Raises KubeError, which does not quote it."""
    # Files of tokens end in a line break, at which http.client would stumble, quoting the token.
    token = header.strip()
    if not token.isprintable():
        raise KubeError(0, "ConfigError", "the token for the API server has a control character in it")
    # Headers are written in Latin-1; kubectl sends tokens in UTF-8.
    return token.encode().decode("latin-1")


def _way(configuration: Configuration, identity: Identity, token: str) -> Way:
    pool = _pool(configuration, identity)
    if type(pool) is not urllib3.PoolManager:
        return Way(identity, token, pool, None)
    options = {name: value for name, value in pool.connection_pool_kw.items() if name not in {"maxsize", "retries"}}
    return Way(identity, token, pool, Connections(configuration.host, options, most_idle=POOL_SIZE))


def _pool(configuration: Configuration, identity: Identity) -> urllib3.PoolManager:
    tls = configuration.tls
    options: dict[str, Any] = {
        "cert_reqs": ssl.CERT_REQUIRED if tls.is_verified else ssl.CERT_NONE,
        "ca_certs": tls.ca_file or None,
        "cert_file": identity.certificate_file or None,
        "key_file": identity.key_file or None,
        "maxsize": POOL_SIZE,
    }
    if tls.server_name:
        options["server_hostname"] = tls.server_name
    proxy = environment_proxy(configuration.host) if configuration.proxy is None else configuration.proxy
    if not proxy:
        return urllib3.PoolManager(**options)
    try:
        return urllib3.ProxyManager(proxy, proxy_headers=login_headers(proxy), **options)
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        raise KubeError(0, "ConfigError", f"proxy for the API server: {error}") from error


def environment_proxy(url: str) -> str:
    """The URL of the proxy that the environment names for a server, "" for none. One without a scheme speaks HTTP.

    `*.example.com` in `NO_PROXY` counts as `.example.com`.
    """
    proxies = getproxies_environment()
    proxy = proxies.get(urlsplit(url).scheme) or proxies.get("all", "")
    if not proxy:
        return ""
    from kubernetes.client.rest import should_bypass_proxies  # noqa: PLC0415  # 17 MB

    if should_bypass_proxies(url, proxies.get("no", "").replace("*.", ".")):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def login_headers(proxy: str) -> dict[str, str] | None:
    """Headers with the name and the password of a proxy's URL, where these are percent-encoded; None without.

    Raises ValueError or urllib3's LocationParseError if `proxy` is no URL.
    """
    login = parse_url(proxy).auth
    if not login:
        return None
    name, _, password = login.partition(":")
    encoded = base64.b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()
    return {"proxy-authorization": f"Basic {encoded}"}
