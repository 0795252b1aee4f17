"""The server's settings: from the file, else from the environment, else defaults (rule 1.12)."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeVar

import yaml

from hived_config.reader import INT32_MAX, INT64_MAX, Reader, describe, is_null

SETTING_KEYS = (
    "kubeApiServerAddress",
    "kubeConfigFilePath",
    "webServerAddress",
    "forcePodBindThreshold",
    "waitingPodSchedulingBlockMilliSec",
    "preemptionBy",
    "podDisruptionBudgets",
    "evictionGraceSeconds",
)

_API_SERVER = re.compile(r"((?i:https?)://)?(\[[0-9A-Fa-f:.]+\]|[^:\[\]/\s]+)(:[0-9]{1,5})?(/\S*)?", re.ASCII)
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]/\s]*):([0-9]{1,5})", re.ASCII)


E = TypeVar("E", bound=Enum)


class PreemptBy(Enum):
    """Who makes the victims of a preemption leave."""

    SERVICE = "service"
    KUBE_SCHEDULER = "kube-scheduler"


class Budgets(Enum):
    """What the service does when a PodDisruptionBudget protects a victim."""

    OVERRIDE = "override"
    RESPECT = "respect"


@dataclass(frozen=True, slots=True)
class Settings:
    """How the server listens, whom it talks to, and how patient it is.

    Attributes
    ----------
    kube_api_server_address : `http[s]://host:port`; goes before the address in the kubeconfig file. Without both, the
        service account of the pod that the server runs in is used.
    kube_config_file_path : a kubeconfig file, "" for none
    web_server_address : `[host]:port` to listen on; without a host, on every interface
    force_pod_bind_threshold : after so many filter calls a placed pod that ignores offers is bound by force
    waiting_pod_block_ms : how long the filter call of a pod that has to wait is held back, which trades throughput for
        a stricter order of arrival
    preempt_by : the service evicts victims itself, or kube-scheduler deletes those that the preempt verb names
    disruption_budgets : whether a PodDisruptionBudget can hold the service's evictions up for good, or only for
    eviction_grace_s : seconds, after which the victim is deleted
    """

    kube_api_server_address: str = ""
    kube_config_file_path: str = ""
    web_server_address: str = ":9096"
    force_pod_bind_threshold: int = 3
    waiting_pod_block_ms: int = 0
    preempt_by: PreemptBy = PreemptBy.SERVICE
    disruption_budgets: Budgets = Budgets.OVERRIDE
    eviction_grace_s: int = 30

    def listen_on(self) -> tuple[str, int]:
        """(host, port) of `web_server_address`; the host is "" for every interface."""
        host, _, port = self.web_server_address.rpartition(":")
        return host.strip("[]"), int(port)


def config_path(environ: Mapping[str, str]) -> Path:
    """Where the configuration file is: ${CONFIG}, else hivedscheduler.yaml in the working directory."""
    return Path(environ.get("CONFIG") or "hivedscheduler.yaml")


def read_settings(reader: Reader, fields: Mapping[str, yaml.Node], environ: Mapping[str, str]) -> Settings:
    """The settings among the top-level `fields` of a document; what it leaves out comes from `environ`."""
    defaults = Settings()
    api_server, kube_config, web_server, threshold, block_ms, by, budgets, grace = (
        _given(fields, key) for key in SETTING_KEYS
    )
    return Settings(
        _read_api_server(reader, api_server) if api_server else environ.get("KUBE_APISERVER_ADDRESS", ""),
        reader.text(kube_config, "the path of a file") if kube_config else _default_kube_config(environ),
        _read_address(reader, web_server) if web_server else defaults.web_server_address,
        _read_count(reader, threshold, INT32_MAX) if threshold else defaults.force_pod_bind_threshold,
        _read_count(reader, block_ms, INT64_MAX) if block_ms else defaults.waiting_pod_block_ms,
        _read_choice(reader, by, defaults.preempt_by),
        _read_choice(reader, budgets, defaults.disruption_budgets),
        _read_count(reader, grace, INT32_MAX) if grace else defaults.eviction_grace_s,
    )


def _given(fields: Mapping[str, yaml.Node], key: str) -> yaml.Node | None:
    node = fields.get(key)
    return None if node is None or is_null(node) else node


def _default_kube_config(environ: Mapping[str, str]) -> str:
    """${KUBECONFIG}, which may list several files, else ${HOME}/.kube/config; "" where there is no such file."""
    paths = environ.get("KUBECONFIG") or os.path.join(environ.get("HOME", ""), ".kube", "config")
    return paths if any(os.path.isfile(path) for path in paths.split(os.pathsep)) else ""


def _read_api_server(reader: Reader, node: yaml.Node) -> str:
    address = reader.text(node, "an address")
    if address and not _API_SERVER.fullmatch(address):
        reader.note(node, describe(node), "http[s]://host[:port], such as https://10.0.0.1:6443")
    return address


def _read_address(reader: Reader, node: yaml.Node) -> str:
    address = reader.text(node, "an address to listen on")
    match = _ADDRESS.fullmatch(address)
    is_text = bool(address) or node.value == ""  # anything else has been noted
    if is_text and (not match or int(match[2]) > 65535):
        reader.note(node, describe(node), "[host]:port, such as :9096 or 127.0.0.1:9096")
    return address


def _read_count(reader: Reader, node: yaml.Node, maximum: int) -> int:
    return reader.integer(node, "a whole number", 0, maximum) or 0


def _read_choice(reader: Reader, node: yaml.Node | None, default: E) -> E:
    if node is None:
        return default
    choices = {str(choice.value): choice for choice in type(default)}
    expected = " or ".join(choices)
    text = reader.text(node, expected)
    if text and text not in choices:
        reader.note(node, describe(node), expected)
    return choices.get(text, default)
