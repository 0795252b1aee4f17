"""The way to the API server: where it is, connections to it, and the identity that calls have there."""

import base64
import math
import ssl
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment

import msgspec
import urllib3
from msgspec.structs import replace
from urllib3.util import parse_url

from hived_extender.kube.answers import KubeError
from hived_extender.kube.configuration import Configuration, Identity
from hived_extender.kube.connections import Connections

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


def load_configuration(api_server: str = "", kubeconfig: str = "") -> Configuration:
    """Find the API server and the credentials for it.

    `kubeconfig` is a path ("" = $KUBECONFIG, else ~/.kube/config, if it is there). An `api_server` overrides the
    address found in it. With neither, the service account of the pod is used. Raises KubeError if nothing usable is
    found.
    """
    if api_server:
        _check_address(api_server)
    if api_server and not kubeconfig:
        return Configuration(api_server.rstrip("/"))
    from hived_extender.kube import kubeconfig as kubeconfigs  # noqa: PLC0415  # the official client, 15 MB

    try:
        files = [Path(kubeconfig)] if kubeconfig else kubeconfigs.default_files()
        configuration = kubeconfigs.read_kubeconfig(files) if files else kubeconfigs.read_service_account()
    except Exception as error:  # a broken kubeconfig makes its readers fail in many ways
        wanted = "kubeApiServerAddress or KUBE_APISERVER_ADDRESS, a kubeconfig file or a service account"
        found = f"kubeconfig {kubeconfig}: {error}" if kubeconfig else str(error)
        message = f"cannot find a Kubernetes API server: expected {wanted}, found none that is usable ({found})"
        raise KubeError(0, "ConfigError", message) from error
    return replace(configuration, host=api_server.rstrip("/")) if api_server else configuration


def _check_address(api_server: str) -> None:
    try:
        url = parse_url(api_server)
        is_usable = url.scheme in ("http", "https", None) and bool(url.host)
    except urllib3.exceptions.LocationParseError:
        is_usable = False
    if not is_usable:
        raise KubeError(0, "ConfigError", f"address of the API server {api_server!r}: expected http[s]://host:port")


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
        """Ask for the identity anew: the API server has refused it."""
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
        # The server knows a certificate by the connection: those with the last one are of no use any more.
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
    from kubernetes.client.rest import should_bypass_proxies  # noqa: PLC0415  # 15 MB

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
