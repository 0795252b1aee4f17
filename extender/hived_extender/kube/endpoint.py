"""The way to the API server: where it is, a pool of connections to it, and the token that calls carry."""

import math
import ssl
import time
from pathlib import Path
from typing import Any

import urllib3
from msgspec.structs import replace
from urllib3.util import parse_url

from hived_extender.kube.answers import KubeError
from hived_extender.kube.configuration import Configuration
from hived_extender.kube.connections import Connections
from hived_extender.kube.proxies import environment_proxy, login_headers

POOL_SIZE = 32
TOKEN_S = 1.0
"""For so long a token is not asked for anew: it is read from a file for each time."""


def load_configuration(api_server: str = "", kubeconfig: str = "") -> Configuration:
    """Find out where the API server is and how to authenticate.

    `kubeconfig` is a path ("" = $KUBECONFIG, else ~/.kube/config, if it is there). An `api_server` overrides the
    address found in it. With neither, the service account of the pod we run in is used. Raises KubeError if nothing
    usable is found.
    """
    if api_server:
        _check_address(api_server)
    if api_server and not kubeconfig:
        return Configuration(api_server.rstrip("/"))
    # Reading a kubeconfig takes YAML, which a plain address does without.
    from hived_extender.kube.kubeconfig import default_files, read_kubeconfig, read_service_account  # noqa: PLC0415

    try:
        files = [Path(kubeconfig)] if kubeconfig else default_files()
        configuration = read_kubeconfig(files) if files else read_service_account()
    except Exception as error:  # a broken kubeconfig makes its readers stumble in many ways
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
        self.pool = _pool(configuration)
        self._known_token = "", -math.inf  # and until when it is good

    def connections(self) -> Connections | None:
        """Connections of our own, with the options of the pool; None where it uses a proxy."""
        if type(self.pool) is not urllib3.PoolManager:
            return None
        options = self.pool.connection_pool_kw.items()
        kept = {name: value for name, value in options if name not in {"maxsize", "retries"}}
        return Connections(self.host, kept, most_idle=POOL_SIZE)

    def token(self) -> str:
        """The value of the Authorization header, "" without one. An expired token is renewed. Raises KubeError."""
        token, until = self._known_token
        if time.monotonic() > until:
            token = self._renewed_token()
            self._known_token = token, time.monotonic() + TOKEN_S
        return token

    def forget_token(self) -> None:
        """Ask for the token anew: the API server has refused it."""
        self._known_token = "", -math.inf

    def _renewed_token(self) -> str:
        try:
            given = self.configuration.authorization()
        except Exception as error:  # renewing reads files and runs programs, which fail in many ways
            raise KubeError(0, "ConfigError", f"the token for the API server cannot be renewed: {error}") from error
        # Files of tokens end in a line break, at which http.client would stumble, quoting the token.
        token = given.strip()
        if not token.isprintable():
            raise KubeError(0, "ConfigError", "the token for the API server has a control character in it")
        return token.encode().decode(
            "latin-1"
        )  # headers are written in Latin-1; tokens go in UTF-8, as kubectl sends them


def _pool(configuration: Configuration) -> urllib3.PoolManager:
    tls = configuration.tls
    options: dict[str, Any] = {
        "cert_reqs": ssl.CERT_REQUIRED if tls.is_verified else ssl.CERT_NONE,
        "ca_certs": tls.ca_file or None,
        "ca_cert_data": tls.ca_data or None,
        "cert_file": tls.certificate_file or None,
        "key_file": tls.key_file or None,
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
