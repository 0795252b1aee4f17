"""A cluster that pages show: 22 nodes in two chains, three virtual clusters, jobs in every state that cells have."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from hived_extender.kube.client import NODES, KubeClient, pod_path
from hived_extender.service.cluster_nodes import USER_LABEL
from hived_lab.embedded.lifetimes import STOP_SECONDS
from hived_lab.start import start_embedded
from tests.e2e.pods import POD_LIST, pod
from tests.expecting import expect_soon

BAD = "h100-05"
DURATION = "hivedscheduler.microsoft.com/expected-duration"
NOT_READY = {"embedded.hived/ready": "false"}

CONFIG = f"""\
rules: 2
physicalCluster:
  skuTypes:
    H100: {{gpu: 1, cpu: 12, memory: 128Gi}}
    A10: {{gpu: 1, cpu: 8, memory: 64Gi}}
  cellTypes:
    H100-SWITCH: {{childCellType: H100, childCellNumber: 4}}
    H100-NODE: {{childCellType: H100-SWITCH, childCellNumber: 2, isNodeLevel: true}}
    H100-RACK: {{childCellType: H100-NODE, childCellNumber: 4}}
    A10-NODE: {{childCellType: A10, childCellNumber: 4, isNodeLevel: true}}
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
}virtualClusters:
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
