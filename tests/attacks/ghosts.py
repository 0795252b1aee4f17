"""Tenants whose gangs say more than there is: no cell waits for members that do not exist, or never come."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.kube.client import pod_path
from hived_lab.embedded.nodes import RUN_SECONDS
from tests.attacks.attack import Run
from tests.attacks.clusters import EVIL, GPUS, MORE, NAMESPACES, VICTIM, Cluster, Deed, Hostile, Made, job, pod

START_S = 12
"""So long may cells be held for pods that do not come."""

NODES = 3
"""Of which the victim has two."""

KOORDINATOR, COSCHEDULING = "gang.scheduling.koordinator.sh/", "pod-group.scheduling.sigs.k8s.io/"


def attack(cluster: Cluster, run: Run) -> None:
    """Each deed in turn."""
    deeds = [deed for deed in DEEDS if cluster.is_real or not deed.title.endswith(OF_A_REAL_ONE)]
    for deed in deeds[: run.count(len(deeds))]:
        cluster.carry_out(deed)


def _group(name: str, priority: int) -> dict[str, Any]:
    members = [{"podNumber": NODES if priority < 0 else 2, "leafCellNumber": GPUS}]
    asked = {"virtualCluster": EVIL, "priority": priority, "leafCellNumber": GPUS}
    return {"notes": {SCHEDULING_SPEC: json.dumps(asked | {"affinityGroup": {"name": name, "members": members}})}}


def _ways(name: str, priority: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each way to say that a pod belongs to a gang of all nodes, or of two for a guaranteed one."""
    size = str(NODES if priority < 0 else 2)
    said = {"name": name, "min-available": size}
    yield "an affinity group", _group(name, priority)
    yield "Koordinator's words", {"notes": {f"{KOORDINATOR}{key}": text for key, text in said.items()}}
    yield "PodGroup's labels", {"labels": {f"{COSCHEDULING}{key}": text for key, text in said.items()}}


def _honest(count: int, priority: int = -1, vc: str = VICTIM) -> Callable[[Cluster], str]:
    """So many pods of the victim start."""

    def breach(cluster: Cluster) -> str:
        honest = [pod(f"honest-{number}", VICTIM, vc=vc, priority=priority) for number in range(count)]
        return "" if cluster.starts(*honest) else f"{count} honest pods do not start"

    return breach


def _run_all(cluster: Cluster) -> None:
    cluster.await_so("the whole gang runs", lambda: len(cluster.started()) == NODES)


def _delete_most(cluster: Cluster) -> None:
    _run_all(cluster)
    for name in sorted(cluster.started())[1:]:
        cluster.tenant.delete(pod_path(EVIL, name), grace_period_s=0)


def _deeds() -> Iterator[Deed]:
    for number, (way, words) in enumerate(_ways("ghosts", -1)):
        one = [pod(f"ghost-{number}", priority=-1, **words)]
        yield Deed(f"declares a gang by {way} and creates one pod", one, _honest(NODES))
    for number, (way, words) in enumerate(_ways("own", 0)):
        one = [pod(f"own-{number}", priority=0, **words)]
        yield Deed(f"does so with guaranteed pods, by {way}", one, _honest(1, 0, EVIL))
    never: Mapping[str, Any] = {
        "are gated": {"schedulingGates": [{"name": "example.com/never"}]},
        "fit nowhere": {"nodeSelector": {"kubernetes.io/hostname": "nowhere"}},
        "are of another scheduler": {"schedulerName": "nobody"},
    }
    for kind, spec in never.items():
        for number, (way, words) in enumerate(_ways(f"never-{kind[:3]}", -1)):
            name = f"never-{kind.replace(' ', '-')}-{number}"
            rest = [pod(f"{name}-{each}", priority=-1, **words, **spec) for each in range(1, NODES)]
            made = [pod(f"{name}-0", priority=-1, **words), *rest]
            yield Deed(f"has a gang by {way} whose other pods {kind}", made, _honest(NODES))
    for number, (way, words) in enumerate(_ways("left", -1)):
        made = [pod(f"left-{number}-{each}", priority=-1, **words) for each in range(NODES)]
        yield Deed(f"deletes all but one of a gang by {way}", made, _honest(NODES - 1), _delete_most)
    for number, (way, words) in enumerate(_ways("ended", -1)):
        made = [pod(f"ended-{number}-{each}", priority=-1, **words) for each in range(NODES)]
        for _, body in made[1:]:
            body["metadata"]["annotations"][RUN_SECONDS] = "3"
        yield Deed(f"has a gang by {way} whose pods end but for one", made, _honest(NODES - 1), _run_all)
    yield Deed(CHILDLESS, _childless(), _honest(NODES))


CHILDLESS = "has a job whose pods can never be created"
OF_A_REAL_ONE = (CHILDLESS, "are of another scheduler")
"""The embedded cluster creates all pods, and has one scheduler, of every name."""


def _childless() -> list[Made]:
    (path, made) = job("childless", serviceAccountName="nobody")
    made["spec"] |= {"parallelism": NODES, "completions": NODES}
    return [(path, made)]


DEEDS = tuple(_deeds())
GHOSTS = Hostile(
    attack,
    settings={
        "rules": 2,
        "queues": {"enabled": True, "startMinutes": START_S / 60},
        "access": "namespaces",
        "opportunistic": {"namespaces": list(NAMESPACES)},
    },
    of_vcs={
        VICTIM: {"namespaces": [VICTIM]},
        EVIL: {"namespaces": [EVIL, MORE, VICTIM], "queue": {"borrow": True}},
    },
)
