"""The cluster's configuration, for submission: from a file, or published by a running embedded cluster."""

from pathlib import Path

from hived_config.loader import Configuration, load, load_text
from hived_extender.kube.client import KubeClient, KubeError

DEFAULT_FILE = "hivedscheduler.yaml"
CONFIG_MAP_NAMESPACE = "kube-system"
CONFIG_MAP_NAME = "hived-config"
CONFIG_MAP_KEY = "hivedscheduler.yaml"
CONFIG_MAPS = f"/api/v1/namespaces/{CONFIG_MAP_NAMESPACE}/configmaps"


def find_configuration(config: str, kube: KubeClient | None) -> Configuration | None:
    """The configuration of `config`, else of the running cluster, else of ./hivedscheduler.yaml; None without any.

    Raises ConfigError if the one found cannot be used, KubeError if the cluster does not answer.
    """
    if config:
        return load(config)
    published = _published(kube) if kube else None
    if published is not None:
        return load_text(published, f"ConfigMap {CONFIG_MAP_NAMESPACE}/{CONFIG_MAP_NAME}")
    return load(DEFAULT_FILE) if Path(DEFAULT_FILE).is_file() else None


def publish(kube: KubeClient, file: Path) -> None:
    """Put a configuration where `find_configuration` finds it, in place of the one there now. Raises KubeError."""
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP_NAME, "namespace": CONFIG_MAP_NAMESPACE},
        "data": {CONFIG_MAP_KEY: file.read_text(encoding="utf-8")},
    }
    try:
        kube.create(CONFIG_MAPS, config_map)
    except KubeError as error:
        if not error.is_conflict:
            raise
        kube.replace(f"{CONFIG_MAPS}/{CONFIG_MAP_NAME}", config_map)


def is_embedded(kube: KubeClient) -> bool:
    """True if this is the API server of an embedded cluster, which runs job controllers. Raises KubeError."""
    return str(kube.get("/version").get("platform", "")).startswith("hived/")


def _published(kube: KubeClient) -> str | None:
    try:
        found = kube.get(f"{CONFIG_MAPS}/{CONFIG_MAP_NAME}")
    except KubeError as error:
        if error.status == 0:
            raise
        return None  # no such object, no right to read it: creating the pods will tell
    text = (found.get("data") or {}).get(CONFIG_MAP_KEY)
    return text if isinstance(text, str) else None
