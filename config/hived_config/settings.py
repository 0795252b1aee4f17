"""The server's settings: from the configuration file, else from the environment, else their defaults (SEMANTICS 2.6)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SETTING_KEYS = (
    "kubeApiServerAddress",
    "kubeConfigFilePath",
    "webServerAddress",
    "forcePodBindThreshold",
    "waitingPodSchedulingBlockMilliSec",
)


@dataclass(frozen=True, slots=True)
class Settings:
    """How the server listens, whom it talks to, and how patient it is.

    Attributes
    ----------
    kube_api_server_address : `http[s]://host:port`; overrides the address in the kube config file. Without an address
        and a file, the credentials of the pod that the server runs in are used.
    kube_config_file_path : a kubeconfig file; "" for none
    web_server_address : `[host]:port` to listen on; without a host, on every interface
    force_pod_bind_threshold : after that many filter calls for a pod that is being bound, the scheduler binds it itself
    waiting_pod_block_ms : how long a filter call whose pod has to wait is held back, for a stricter order of arrival
    """

    kube_api_server_address: str = ""
    kube_config_file_path: str = ""
    web_server_address: str = ":9096"
    force_pod_bind_threshold: int = 3
    waiting_pod_block_ms: int = 0


def config_path(environ: Mapping[str, str]) -> Path:
    """The configuration file: ${CONFIG}, else `./hivedscheduler.yaml`."""
    return Path(environ.get("CONFIG") or "hivedscheduler.yaml")
