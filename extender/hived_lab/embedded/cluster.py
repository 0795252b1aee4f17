"""A whole Kubernetes cluster in this process, as far as scheduling can tell: API server, nodes, scheduler loop."""

import os
import secrets
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import yaml

from hived.values.errors import UserError
from hived.values.specs import ClusterSpec
from hived_config.rules import PodRules
from hived_extender.jobs.admission import Admission
from hived_extender.jobs.namespaces import NAMESPACE_NAME
from hived_extender.kube import answers
from hived_extender.kube.client import KubeClient
from hived_extender.kube.endpoint import ANONYMOUS, NEVER, Configuration, Credentials, Identity
from hived_lab.embedded.apiserver.resources import NAMESPACES
from hived_lab.embedded.apiserver.server import ApiServer
from hived_lab.embedded.apiserver.store import Key
from hived_lab.embedded.job_controllers import JobControllers
from hived_lab.embedded.labelled_groups import LabelledGroups
from hived_lab.embedded.nodes import NO_RULES, Nodes, Timing, machines_of
from hived_lab.embedded.scheduler import Pace, Scheduler

CONTEXT = "hived-embedded"
# An order of magnitude livelier than kube-scheduler: here people watch, and no cluster has to be protected.
LIVELY = Pace(backoff_initial_s=0.1, backoff_longest_s=1.0, flush_s=10.0)


class EmbeddedCluster:
    """An embedded cluster with the nodes of a configuration, from `start` to `stop` or as a context manager.

    Parameters
    ----------
    spec : the configuration; each of its nodes becomes a Ready node
    rules : which devices nodes have, and the labels that pods choose them by
    api_port : port of the API server on 127.0.0.1; 0 chooses a free one
    kubeconfig_path : where to write the kubeconfig; by default a file in a temporary folder that `stop` removes
    admission : changes pods and jobs that are created, and judges quota trees; by default none
    """

    def __init__(
        self,
        spec: ClusterSpec,
        *,
        rules: PodRules = NO_RULES,
        api_port: int = 0,
        kubeconfig_path: Path | None = None,
        admission: Admission | None = None,
    ) -> None:
        self._machines = machines_of(spec, rules)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._kubeconfig_path = kubeconfig_path
        self._hived_token = secrets.token_urlsafe()
        self._server = ApiServer(api_port, admission=admission, hived_token=self._hived_token)
        self._nodes = Nodes(self._server.registry, Timing())
        self._jobs = JobControllers(self._server.registry)
        self._labelled_groups = LabelledGroups(self._server.registry)
        self._scheduler: Scheduler | None = None
        self._scheduler_kube: KubeClient | None = None

    @property
    def api_url(self) -> str:
        """The URL of the API server."""
        return self._server.url

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig file; it exists between `start` and `stop`."""
        if self._kubeconfig_path is None:
            raise UserError("the embedded cluster has not been started")
        return self._kubeconfig_path

    @property
    def hived_kubeconfig(self) -> Path:
        """The kubeconfig of hived's own clients: only its bearer may write bindings onto pods."""
        if self._folder is None:
            raise UserError("the embedded cluster has not been started")
        return Path(self._folder.name) / "hived-kubeconfig"

    def connect(self, *, as_hived: bool = False) -> KubeClient:
        """A client in this process, by no proxy; `as_hived` it has the rights of the bearer of `hived_kubeconfig`."""
        identity = Identity(f"Bearer {self._hived_token}") if as_hived else ANONYMOUS
        return KubeClient(Configuration(self.api_url, proxy="", credentials=Credentials(lambda: (identity, NEVER))))

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        """The labels of a namespace, its name among them; none if it does not exist. For the admission alone."""
        found = self._server.registry.collection(NAMESPACES).revisions.get(Key("", namespace))
        return {} if found is None else {**found.view.metadata.labels, NAMESPACE_NAME: namespace}

    def start(self) -> None:
        """Start the API server and the nodes, all Ready when this returns, and write the kubeconfigs.

        Raises UserError if a kubeconfig cannot be written; then nothing runs.
        """
        answers.prepare()
        self._write_kubeconfigs()
        self._server.start()
        self._server.call(lambda: self._nodes.register(self._machines))
        self._server.spawn(self._nodes.run)
        self._server.spawn(self._jobs.run)
        self._server.spawn(self._labelled_groups.run)

    def start_scheduler(self, extender_url: str) -> None:
        """Start the scheduler loop with the extender at `extender_url`; a loop that runs already is stopped first.

        Raises UserError if that is no http address.
        """
        self.stop_scheduler()
        self._scheduler_kube = self.connect()
        self._scheduler = Scheduler(self._scheduler_kube, extender_url, LIVELY)
        self._scheduler.start()

    def add_machines(self, spec: ClusterSpec, rules: PodRules = NO_RULES) -> None:
        """Give the cluster the nodes of a configuration that it does not have yet; it keeps those it has."""
        known = {machine.name for machine in self._machines}
        for machine in machines_of(spec, rules):
            if machine.name not in known:
                self._server.call(partial(self._nodes.register, [machine]))
                self._machines.append(machine)

    def stop(self) -> None:
        """Stop everything; harmless when repeated."""
        scheduler = self._scheduler
        if scheduler is not None:
            scheduler.stop()
        self._server.stop()
        self.stop_scheduler()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __enter__(self) -> "EmbeddedCluster":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop_scheduler(self) -> None:
        """Stop deciding where pods go; pods that run go on. Nothing happens if no scheduler runs."""
        if self._scheduler is not None:
            self._scheduler.stop()
            if self._scheduler_kube is not None:
                self._scheduler_kube.close()
            self._scheduler.join()
            self._scheduler = self._scheduler_kube = None

    def _write_kubeconfigs(self) -> None:
        self._folder = self._folder or tempfile.TemporaryDirectory(prefix="hived-embedded-")
        if self._kubeconfig_path is None:
            self._kubeconfig_path = Path(self._folder.name) / "kubeconfig"
        try:
            self._kubeconfig_path.write_text(kubeconfig_text(self.api_url))
            _write_secret(self.hived_kubeconfig, kubeconfig_text(self.api_url, self._hived_token))
        except OSError as error:
            raise UserError(f"cannot write the kubeconfig {self._kubeconfig_path}: {error.strerror}") from error


def _write_secret(file: Path, text: str) -> None:
    """Write a new file that only its owner can read."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as secret:
        secret.write(text)


def kubeconfig_text(api_url: str, token: str = "") -> str:
    """Return a kubeconfig whose only context is the API server at `api_url`, for the bearer of `token` if given."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": CONTEXT, "cluster": {"server": api_url}}],
            "users": [{"name": CONTEXT, "user": {"token": token} if token else {}}],
            "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT, "namespace": "default"}}],
            "current-context": CONTEXT,
        },
        sort_keys=False,
    )
