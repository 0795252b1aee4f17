"""The nodes of the configuration follow the cluster's by themselves (`hived serve --sync-nodes`).

From time to time the leader looks at the nodes and brings the text in force up to date as `hived config sync` does. It
pushes the result like any author. It agrees to nothing: where running work would be affected, it waits and looks
again.
"""

import logging
import threading
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from hived.values.errors import UserError
from hived_config.document import ConfigError
from hived_config.generating.nodes import Reading
from hived_config.generating.sync import synced
from hived_extender.api.configuration import ConfigPushArgs
from hived_extender.kube.answers import Listing
from hived_extender.kube.client import NODES, KubeError
from hived_extender.machine.service import Service
from hived_extender.reconfiguration.change import nodes_in_use
from hived_extender.reconfiguration.configurations import Configurations, Refused

log = logging.getLogger(__name__)

AUTHOR = "hived node sync"
MESSAGE_LIMIT = 500
"""Characters of the changes in a version's message."""


class NodeSyncing(msgspec.Struct, frozen=True):
    """The interval in seconds, how nodes are read, and the wanted places by cell type."""

    interval_s: float
    reading: Reading = msgspec.field(default_factory=Reading)
    at_least: Mapping[str, int] = msgspec.field(default_factory=dict)


class NodesApi(Protocol):
    """The API server's part; `kube.KubeClient` is one."""

    def list_objects(self, path: str, item_type: type[dict[str, Any]]) -> Listing[dict[str, Any]]:
        """All objects under a path. Raises KubeError."""


class NodeSync:
    """Syncs nodes from `start` to `stop`."""

    def __init__(self, service: Service, configurations: Configurations, kube: NodesApi, syncing: NodeSyncing) -> None:
        self._service = service
        self._configurations = configurations
        self._kube = kube
        self._syncing = syncing
        self._told = ""
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="node sync", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more; waits for a push under way."""
        self._is_stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def sync(self) -> bool:
        """Look once, on a replica that leads; returns whether something was pushed. Raises UserError or KubeError."""
        if not self._service.is_ready:
            return False
        version = self._configurations.in_force
        result = synced(
            version.text,
            self._kube.list_objects(NODES, dict).items,
            self._syncing.reading,
            file=f"version {version.version}",
            at_least=self._syncing.at_least,
            in_use=nodes_in_use(self._service),
        )
        if not result.changes:
            return False
        message = "; ".join(result.changes)
        if len(message) > MESSAGE_LIMIT:
            message = message[: MESSAGE_LIMIT - 3] + "..."
        self._configurations.push(
            ConfigPushArgs(result.text, "the synced configuration", message, AUTHOR, version.version), is_own=True
        )
        return True

    def _run(self) -> None:
        while not self._is_stopping.wait(self._syncing.interval_s):
            problem = ""
            try:
                self.sync()
            except Refused as error:
                problem = f"nodes are not synced: {error.message}"
            except (UserError, ConfigError, KubeError) as error:
                problem = f"nodes cannot be synced: {error}"
            except Exception:
                log.exception("nodes cannot be synced")
            if problem and problem != self._told:
                log.warning(problem)
            self._told = problem
