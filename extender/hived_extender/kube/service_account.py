"""Reading the service account of a pod, by the official client.

Only the module that reads it is imported, 1 MB. The package around it, and that of its configurations, would import
16 MB more, 0.11 s of CPU.
"""

import sys
import time
from collections.abc import Callable
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any

from hived_extender.kube.endpoint import Configuration, Credentials, Identity, Tls

_NOT_YET = [name for name in ("kubernetes", "kubernetes.config") if name not in sys.modules]
for _name in _NOT_YET:
    sys.modules[_name] = module_from_spec(find_spec(_name))  # type: ignore[arg-type]  # it is installed
from kubernetes.client import Configuration as Loaded  # noqa: E402  # without those around it
from kubernetes.config.incluster_config import InClusterConfigLoader  # noqa: E402  # without those around it

for _name in _NOT_YET:
    del sys.modules[_name]  # whoever imports the whole package gets it

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

REREAD_S = 60.0
"""Files of tokens are read anew after this time: kubelet replaces a token long before it expires."""


def read_service_account(folder: Path = SERVICE_ACCOUNT) -> Configuration:
    """The API server of the cluster that this process is a pod of. Raises what the official client raises."""

    def load() -> tuple[Any, float]:
        loaded = Loaded(proxy="")
        files = str(folder / "token"), str(folder / "ca.crt")
        InClusterConfigLoader(*files, try_refresh_token=False).load_and_set(loaded)
        return loaded, time.time() + REREAD_S

    return configuration_of(load)


def configuration_of(load: Callable[[], tuple[Any, float]]) -> Configuration:
    """Convert a configuration of the official client; `load` returns it, and when its credentials expire."""
    loaded, expires_at = load()

    def renew() -> tuple[Identity, float]:
        renewed, until = load()
        return _identity(renewed), until

    return Configuration(
        host=loaded.host,
        tls=Tls(loaded.ssl_ca_cert or "", loaded.tls_server_name or "", loaded.verify_ssl),
        proxy=loaded.proxy or None,
        credentials=Credentials(renew, _identity(loaded), expires_at),
    )


def _identity(loaded: Any) -> Identity:
    return Identity(loaded.api_key.get("BearerToken", "").strip(), loaded.cert_file or "", loaded.key_file or "")
