"""The way to the API server: its address, TLS, proxies and tokens. The only file that imports `kubernetes`.

The official client supplies this part, which is tedious to get right (kubeconfig, renewal of tokens).
"""

import math
import time
from pathlib import Path

import kubernetes.client
import kubernetes.config
import urllib3
from urllib3.util import parse_url

from hived_extender.kube.answers import KubeError
from hived_extender.kube.connections import Connections

POOL_SIZE = 32
TOKEN_S = 1.0
"""For so long a token is not asked for anew. The client would read the whole environment for each call."""

Configuration = kubernetes.client.Configuration


def load_configuration(api_server: str = "", kubeconfig: str = "") -> kubernetes.client.Configuration:
    """Find out where the API server is and how to authenticate.

    `kubeconfig` is a path ("" = ~/.kube/config if it is there); `api_server`, if given, overrides the address found in
    it. With neither, the service account of the pod we run in is used. Raises KubeError if nothing usable is found.
    """
    configuration = kubernetes.client.Configuration()
    default_file = Path(kubernetes.config.KUBE_CONFIG_DEFAULT_LOCATION).expanduser()
    try:
        if kubeconfig or (not api_server and default_file.is_file()):
            kubernetes.config.load_kube_config(
                config_file=kubeconfig or str(default_file), client_configuration=configuration, persist_config=False
            )
        elif not api_server:
            kubernetes.config.load_incluster_config(client_configuration=configuration)
    except Exception as error:  # a broken kubeconfig makes the client stumble in many ways
        wanted = "kubeApiServerAddress or KUBE_APISERVER_ADDRESS, a kubeconfig file or a service account"
        found = f"kubeconfig {kubeconfig}: {error}" if kubeconfig else str(error)
        message = f"cannot find a Kubernetes API server: expected {wanted}, found none that is usable ({found})"
        raise KubeError(0, "ConfigError", message) from error
    if api_server:
        _check_address(api_server)
        configuration.host = api_server.rstrip("/")
    configuration.connection_pool_maxsize = POOL_SIZE
    return configuration


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
        self.configuration = configuration
        # The host is kept apart: renewing a token resets the configuration to the kubeconfig.
        self.host = str(configuration.host)
        self.pool: urllib3.PoolManager = kubernetes.client.ApiClient(configuration).rest_client.pool_manager
        self._known_token = "", -math.inf  # and until when it is good

    def connections(self) -> Connections | None:
        """Connections of our own, with the options of the client's pool; None where it uses a proxy."""
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
            given = self.configuration.get_api_key_with_prefix("BearerToken", alias="authorization") or ""
        except Exception as error:  # renewing reads files and runs programs, which fail in many ways
            raise KubeError(0, "ConfigError", f"the token for the API server cannot be renewed: {error}") from error
        # Files of tokens end in a line break, at which http.client would stumble, quoting the token.
        token = given.strip()
        if not token.isprintable():
            raise KubeError(0, "ConfigError", "the token for the API server has a control character in it")
        return token
