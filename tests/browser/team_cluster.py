"""A cluster that pages show: 26 nodes in three chains, four virtual clusters, jobs in every state that cells have.

The jobs of one virtual cluster wait in the queues of two quotas: as jobs, without pods.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from hived_extender.api.queues import QueueArgs
from hived_extender.jobs.kinds.marks import USER_LABEL
from hived_extender.kube.client import NODES, KubeClient, pod_path
from hived_extender.queues.answering import QueueAnswers
from hived_lab.embedded.nodes import STOP_SECONDS
from hived_lab.start import Embedded, start_embedded
from tests.e2e.pods import POD_LIST, pod
from tests.expecting import expect_soon
from tests.extender.queues.embedded_jobs import GPU, TREES, template

BAD = "h100-05"
DURATION = "hivedscheduler.microsoft.com/expected-duration"
NOT_READY = {"embedded.hived/ready": "false"}

CONFIG = f"""\
rules: 2
queues: {{enabled: true}}
physicalCluster:
  skuTypes:
    H100: {{gpu: 1, cpu: 12, memory: 128Gi}}
    A10: {{gpu: 1, cpu: 8, memory: 64Gi}}
    V100: {{gpu: 1, cpu: 6, memory: 48Gi}}
  cellTypes:
    H100-SWITCH: {{childCellType: H100, childCellNumber: 4}}
    H100-NODE: {{childCellType: H100-SWITCH, childCellNumber: 2, isNodeLevel: true}}
    H100-RACK: {{childCellType: H100-NODE, childCellNumber: 4}}
    A10-NODE: {{childCellType: A10, childCellNumber: 4, isNodeLevel: true}}
    V100-NODE: {{childCellType: V100, childCellNumber: 4, isNodeLevel: true}}
  physicalCells:
{
    "".join(
        f"  - cellType: H100-RACK{chr(10)}    cellAddress: rack-{rack}{chr(10)}    cellChildren: ["
        + ", ".join(f"{{cellAddress: h100-{4 * rack + node:02}}}" for node in range(4))
        + "]"
        + chr(10)
        for rack in range(4)
    )
}{
    "".join(
        f"  - {{cellType: A10-NODE, cellAddress: a10-{node:02}{', pinnedCellId: DEMO' if not node else ''}}}{chr(10)}"
        for node in range(6)
    )
}{"".join(f"  - {{cellType: V100-NODE, cellAddress: v100-{node:02}}}{chr(10)}" for node in range(4))}virtualClusters:
  vision:
    virtualCells:
    - {{cellType: H100-RACK, cellNumber: 1}}
    - {{cellType: H100-RACK.H100-NODE, cellNumber: 2}}
    pinnedCells:
    - {{pinnedCellId: DEMO}}
  speech:
    virtualCells:
    - {{cellType: H100-RACK, cellNumber: 1}}
    - {{cellType: A10-NODE, cellNumber: 2}}
  genomics:
    virtualCells:
    - {{cellType: V100-NODE, cellNumber: 3}}
  research:
    virtualCells:
    - {{cellType: H100-RACK.H100-NODE, cellNumber: 4}}
    - {{cellType: A10-NODE, cellNumber: 2}}
"""

Json = dict[str, Any]


def gang(
    name: str, pods: int, vc: str, gpus: int, *, leaf: str = "H100", user: str = "", hours: int = 0, **wishes: Any
) -> list[Json]:
    """The pods of a group, each with the same wishes; `hours` is how long each says that it runs, 0 for no word."""
    group = {"name": name, "members": [{"podNumber": pods, "leafCellNumber": gpus}]}
    wishes = {"affinityGroup": group, "leafCellType": leaf} | wishes
    base = name.rpartition("/")[2]
    told = {DURATION: f"{hours}h"} if hours else {}
    made = [pod(f"{base}-{i}" if pods > 1 else base, vc=vc, gpus=gpus, annotations=told, **wishes) for i in range(pods)]
    for each in made:
        each["metadata"]["labels"] = {USER_LABEL: user} if user else {}
    return made


RUNNING = (
    *gang("llm-pretrain", 4, "vision", 8, priority=100, user="ann"),
    *gang("segmentation", 1, "vision", 8, priority=50, user="ben"),
    *gang("whisper-large", 2, "speech", 8, priority=100, user="eve", hours=6),
    *gang("notebook-ana", 1, "speech", 2, leaf="A10", user="ana"),
    *gang("protein-fold", 2, "research", 8, priority=10, user="raj", hours=30),
    *gang("bert-probe", 1, "research", 1, leaf="A10"),
    *gang("team/sweep", 3, "research", 4, priority=-1, user="raj"),
)
LEAVING = gang("spot", 4, "vision", 4, leaf="A10", priority=-1, user="ben")
"""Lent cells; the pods take an hour to stop."""

OWNER = gang("asr-eval", 1, "speech", 4, leaf="A10", priority=100, user="eve")
"""Wants some of them back, so that they are reserved."""

WAITING = (
    *gang("detector", 1, "vision", 8, priority=50, pinnedCellId="DEMO", leaf="H100", user="ann"),
    *gang("too-large", 1, "speech", 16, priority=100),
    *gang("retrieval", 4, "research", 8, priority=10, user="raj"),
    *gang("tts-batch", 3, "speech", 8, priority=20, user="eve"),
)


TREE = {
    "metadata": {"name": "elasticquotatree", "namespace": "kube-system"},
    "spec": {
        "root": {
            "name": "root",
            "min": {GPU: 16},
            "max": {GPU: 16},
            "attributes": {"hivedscheduler.microsoft.com/virtual-cluster": "genomics"},
            "children": [
                {"name": "assembly", "namespaces": ["assembly"], "min": {GPU: 8}, "max": {GPU: 8}},
                {"name": "folding", "namespaces": ["folding"], "min": {GPU: 4}, "max": {GPU: 16}},
            ],
        }
    },
}
QUEUED: tuple[tuple[str, str, int, int], ...] = (
    ("assembly", "align-first", 1, 6),
    ("assembly", "align-second", 1, 2),
    ("folding", "fold-own", 1, 9),
    ("folding", "fold-borrowed", 1, 0),
)
"""Jobs of queues that run: namespace, name, pods of 4 GPUs, and hours that they declare; the last one borrows."""

QUEUED_WAITING = (
    ("assembly", "align-wide", 2, 12),
    ("assembly", "align-narrow", 1, 1),
    ("assembly", "align-later", 2, 0),
    ("default", "survey", 1, 1),
    ("default", "survey-later", 2, 0),
    ("folding", "fold-more", 1, 0),
    ("folding", "fold-held", 1, 0),
    ("folding", "fold-wrong", 1, 0),
)
"""Jobs of queues that wait; the last one has a mistake, and those of no quota have their virtual cluster's queue."""


def queue(kube: KubeClient, jobs: Iterable[tuple[str, str, int, int]]) -> None:
    """Create jobs that are held back, in this order of their places."""
    for namespace, name, pods, hours in jobs:
        made = template("genomics" if name != "fold-wrong" else "genomix", 4, "10", "100000")
        spec = {"suspend": True, "parallelism": pods, "completions": pods, "template": made}
        limit = {"activeDeadlineSeconds": hours * 3600} if hours else {}
        path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        kube.create(path, {"metadata": {"name": name}, "spec": spec | limit})


def fill_queues(on: Embedded, kube: KubeClient) -> None:
    """Two queues with jobs that run, one of them on borrowed cells, and jobs that wait for several reasons."""
    for namespace in ("assembly", "folding"):
        kube.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    kube.create(TREES, TREE)
    desk, answers = on.extender.queues, QueueAnswers(on.extender.queues)
    expect_soon(lambda: desk.turns is not None and desk.quotas.tree is not None)
    for job in QUEUED:
        queue(kube, [job])
        _expect_running(answers, job[1])
    queue(kube, QUEUED_WAITING)
    expect_soon(lambda: len(answers.jobs()) == len(QUEUED) + len(QUEUED_WAITING))
    for name in ("align-later", "align-narrow", "align-wide", "survey"):
        answers.act(QueueArgs(name, "move", "front"))
    answers.act(QueueArgs("fold-held", "hold"))


def _expect_running(answers: QueueAnswers, name: str) -> None:
    def runs() -> bool:
        job = answers.job(name)
        return job is not None and job.state == "Running"

    expect_soon(runs)


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """The address of a service whose cluster has run for a moment; gone at the end."""
    file = folder / "hivedscheduler.yaml"
    file.write_text(CONFIG)
    with start_embedded(file) as on, closing(KubeClient.connect(on.cluster.api_url)) as kube:
        for each in LEAVING:
            each["metadata"]["annotations"][STOP_SECONDS] = "3600"
            each["spec"]["terminationGracePeriodSeconds"] = 3600
        for each in (*RUNNING, *LEAVING):
            kube.create(POD_LIST, each)
        names = [each["metadata"]["name"] for each in (*RUNNING, *LEAVING)]
        expect_soon(lambda: all(_node_of(kube, name) for name in names))
        kube.create(POD_LIST, OWNER[0])
        expect_soon(lambda: any(_is_leaving(kube, each["metadata"]["name"]) for each in LEAVING))
        kube.patch(f"{NODES}/{BAD}", {"metadata": {"annotations": NOT_READY}})
        for each in WAITING:
            kube.create(POD_LIST, each)
        expect_soon(lambda: all(_is_told(kube, each["metadata"]["name"]) for each in WAITING))
        fill_queues(on, kube)
        yield on.extender.url


def _node_of(kube: KubeClient, name: str) -> str:
    found: Json = kube.get(pod_path("default", name))
    return str(found["spec"].get("nodeName") or "")


def _is_told(kube: KubeClient, name: str) -> bool:
    found: Json = kube.get(pod_path("default", name))
    return any(each["status"] == "False" for each in found["status"].get("conditions", ()))


def _is_leaving(kube: KubeClient, name: str) -> bool:
    found: Json = kube.get(pod_path("default", name))
    return bool(found["metadata"].get("deletionTimestamp"))
