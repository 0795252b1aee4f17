"""A whole cluster in this process: the embedded cluster and the extender that schedules it."""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hived.values.errors import UserError
from hived_config.document import read_text
from hived_config.loader import Configuration
from hived_config.openpai import cluster_id
from hived_extender.groundwork import LOOPBACK
from hived_extender.jobs.admission import Admission
from hived_extender.jobs.bind_info import Prover
from hived_extender.kube.client import KubeClient
from hived_extender.kube.metrics import Metrics
from hived_extender.machine.notices import Pace
from hived_extender.machine.writes.binding_secret import KEY_BYTES
from hived_extender.queues.removal import tree_warnings
from hived_extender.reconfiguration.stores import ConfigMapStore, Origin, file_origin
from hived_extender.reconfiguration.versions import Stored
from hived_extender.running import Extender, start_extender
from hived_jobs.configuration import CONFIG_MAP_NAME, CONFIG_MAP_NAMESPACE
from hived_jobs.controller import JobController
from hived_jobs.suspension import unwatched_jobs
from hived_lab.embedded.cluster import EmbeddedCluster

if TYPE_CHECKING:
    from hived_extender.reconfiguration.node_sync import NodeSyncing

PROMPT = Pace(hold_s=0.1, change_s=0.3)
"""On an embedded cluster people watch single pods, and there is no backlog."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """An embedded cluster and the extender that schedules it."""

    cluster: EmbeddedCluster
    extender: Extender


@contextmanager
def start_embedded(
    config_file: Path,
    *,
    listen: str = f"{LOOPBACK}:0",
    record_dir: Path | None = None,
    stop: threading.Event | None = None,
    has_webhook: bool = False,
    syncing: "NodeSyncing | None" = None,
    on_answering: Callable[[Embedded], None] = lambda running: None,
    is_served_elsewhere: bool = False,
) -> Iterator[Embedded]:
    """A whole cluster in this process: API server, nodes, extender, scheduler, and a controller for jobs.

    Ready when entered, gone at the end. With `has_webhook` pods and jobs are changed when they are created, as the
    admission webhook does. Once `stop` is set it is entered at once, ready or not. The file gives its first
    configuration, which is kept in a ConfigMap from then on. `on_answering` is called as soon as API server and
    extender answer; the extender may take a minute more to be ready. With `is_served_elsewhere` a WSGI server answers
    for the extender, at `listen`.
    Raises UserError for a configuration, an address or a record directory that cannot be used.
    """
    first = file_origin(config_file)
    cluster, admission = _cluster_of(first.configuration, has_webhook=has_webhook)

    def taken_up(configuration: Configuration) -> None:
        admission.configure(configuration.cluster, configuration.rules)
        cluster.add_machines(configuration.cluster, configuration.rules)

    with cluster:
        kube = cluster.connect(as_hived=True)
        with start_extender(
            _published(first, kube, config_file),
            kube,
            listen=listen,
            record_dir=record_dir,
            serves_every_name=True,
            on_configuration=taken_up,
            syncing=syncing,
            pace=PROMPT,
            prover=Prover([os.urandom(KEY_BYTES)]),
            is_served_elsewhere=is_served_elsewhere,
            as_anyone=cluster.connect,
            unwatched_jobs=unwatched_jobs,
        ) as extender:
            extender.start()
            running = Embedded(cluster, extender)
            admission.beside_tree = partial(tree_warnings, extender.queues)
            on_answering(running)
            if not extender.wait_ready(stop=stop) and not (stop and stop.is_set()):
                raise UserError("the extender has not become ready; see the log")
            with _at_work(running):
                yield running


def _cluster_of(configuration: Configuration, *, has_webhook: bool) -> tuple[EmbeddedCluster, Admission]:
    """A cluster that is not started, and the admission of its objects; each needs the other."""

    def labels_of(namespace: str) -> Mapping[str, str]:
        return cluster.namespace_labels(namespace)  # which needs the admission to begin with

    admission = Admission(configuration.cluster, configuration.rules, serves_every_name=True, labels_of=labels_of)
    cluster = EmbeddedCluster(
        configuration.cluster,
        rules=configuration.rules,
        admission=admission if has_webhook else None,
    )
    return cluster, admission


def _published(first: Origin, kube: KubeClient, file: Path) -> Origin:
    """The configuration of a file, from a ConfigMap of the cluster, which has the id that the file says."""
    store = ConfigMapStore(kube, CONFIG_MAP_NAMESPACE, CONFIG_MAP_NAME, Metrics())
    named = cluster_id(read_text(file, str(file)), str(file))
    store.create(Stored(first.version.text, (first.version,), named))
    return Origin(store, first.configuration, first.version)


@contextmanager
def _at_work(running: Embedded) -> Iterator[None]:
    """With a scheduler, and a controller for jobs."""
    running.cluster.start_scheduler(running.extender.url)
    try:
        with closing(running.cluster.connect()) as kube, JobController(kube):
            yield
    finally:
        running.cluster.stop_scheduler()
