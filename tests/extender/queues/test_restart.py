"""A service starts beside the objects of an earlier one, as after a crash or an upgrade (rules 30.10, 32.11)."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from hived_config.loader import load
from hived_extender.api.queues import QueueArgs
from hived_extender.jobs.bind_info import Prover
from hived_extender.kube.client import KubeClient
from hived_extender.queues.table import STATE
from hived_lab.embedded.cluster import EmbeddedCluster
from hived_lab.start import Embedded
from tests.extender.queues.embedded_jobs import CONFIG, JOBS, PODS, Jobs
from tests.extender.replica import start

SECRET = b"a secret that outlives a process"


@contextmanager
def service(file: Path, cluster: EmbeddedCluster, kube: KubeClient) -> Iterator[Jobs]:
    """An extender of its own, and the scheduler loop that asks it."""
    with start(file, cluster, serves_every_name=True, prover=Prover([SECRET])) as extender:
        assert extender.wait_ready()
        cluster.start_scheduler(extender.url)
        try:
            yield Jobs(Embedded(cluster, extender), kube)
        finally:
            cluster.stop_scheduler()


def kept(kube: KubeClient, name: str) -> str:
    """The state that is kept on a job."""
    return str(kube.get(f"{JOBS}/{name}")["metadata"].get("annotations", {}).get(STATE, ""))


def places(jobs: Jobs) -> list[tuple[str, str]]:
    """The jobs of queue b with their states: those that wait in their order, then the others."""
    return [(one.name.rpartition("/")[2], one.state) for one in jobs.inspector.queued_jobs("b").items]


def test_a_new_service_goes_on_with_the_order_and_the_runs_of_an_earlier_one(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(CONFIG)
    with (
        EmbeddedCluster(load(file).cluster) as cluster,
        closing(KubeClient.connect(kubeconfig=str(cluster.hived_kubeconfig))) as kube,
    ):
        with service(file, cluster, kube) as jobs:
            jobs.create("runs", "b")
            jobs.expect(lambda: jobs.runs("runs"))
            for name in ("x", "y", "z"):
                jobs.create(name, "b")
            jobs.expect(lambda: len(places(jobs)) == 4)
            jobs.inspector.change_queue(QueueArgs("z", "move", "front"))
            jobs.inspector.change_queue(QueueArgs("x", "hold"))
            assert ("place" in kept(kube, "z"), "is_held" in kept(kube, "x")) == (True, True)
            expected = [("z", "Waiting"), ("x", "Held"), ("y", "Waiting"), ("runs", "Running")]
            jobs.expect(lambda: places(jobs) == expected)
            uids = [pod["metadata"]["uid"] for pod in kube.get(PODS)["items"]]
        with service(file, cluster, kube) as jobs:
            desk = jobs.running.extender.queues
            jobs.expect(lambda: desk.turns is not None, lambda: places(jobs) == expected)
            assert [pod["metadata"]["uid"] for pod in kube.get(PODS)["items"]] == uids
            jobs.delete("runs")
            jobs.expect(lambda: jobs.runs("z"))
            jobs.delete("z")
            jobs.expect(lambda: jobs.runs("y"))
            assert jobs.waits("x")
