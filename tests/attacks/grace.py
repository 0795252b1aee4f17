"""Tenants who stay: cells of theirs that an owner or a higher priority needs are free within the ceiling of grace."""

from collections.abc import Callable, Mapping
from typing import Any

from hived_extender.kube.client import pod_path
from hived_lab.embedded.nodes import STOP_SECONDS
from tests.attacks.attack import Run
from tests.attacks.clusters import EVIL, MORE, NAMESPACES, PODS, VICTIM, Cluster, Deed, Hostile, Made, job, pod

DECADES_S = 315_360_000
CEILING_S = 2
NODES = 3
SLOW = {STOP_SECONDS: str(DECADES_S)}
"""Containers that ignore SIGTERM."""

BUDGETS = f"/apis/policy/v1/namespaces/{EVIL}/poddisruptionbudgets"
GANG = "gang.scheduling.koordinator.sh/"


def attack(cluster: Cluster, run: Run) -> None:
    """Each deed in turn."""
    for deed in DEEDS[: run.count(len(DEEDS))]:
        cluster.carry_out(deed)


def _lazy(name: str, notes: Mapping[str, str] | None = None, **more: Any) -> list[Made]:
    """An opportunistic pod for each node, without an end."""
    spec = {"priority": -1, "terminationGracePeriodSeconds": DECADES_S, **more}
    return [pod(f"{name}-{number}", notes={**SLOW, **(notes or {})}, **spec) for number in range(NODES)]


def _owner(count: int = 2, **more: Any) -> Callable[[Cluster], str]:
    def breach(cluster: Cluster) -> str:
        owner = [pod(f"owner-{number}", VICTIM, **more) for number in range(count)]
        return "" if cluster.starts(*owner) else "the owner's pods do not start"

    return breach


def _run_first(cluster: Cluster) -> None:
    cluster.await_so("the attacker's pods, which are allowed, run", lambda: len(cluster.started()) == NODES)


def _delete_slowly(cluster: Cluster) -> None:
    _run_first(cluster)
    for name in cluster.started():
        cluster.tenant.delete(pod_path(EVIL, name), grace_period_s=DECADES_S)


def _budget() -> Made:
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "stays"}}}
    return BUDGETS, {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": spec}


def _and_again(cluster: Cluster) -> str:
    """The owner's pods start although new lent pods come all the time."""
    waiting = [pod(f"again-{number}", MORE, **LENT_WORDS, notes=SLOW)[1] for number in range(2 * NODES)]
    for body in waiting:
        cluster.create(cluster.tenant, PODS.format(MORE), body)
    return _owner()(cluster)


LENT_WORDS: Mapping[str, Any] = {"priority": -1, "terminationGracePeriodSeconds": DECADES_S}
PAIR = {f"{GANG}name": "pair", f"{GANG}min-available": "2"}
ALL = {f"{GANG}name": "all", f"{GANG}min-available": str(NODES)}
DEEDS = (
    Deed("asks for ten years to leave", _lazy("lent"), _owner(), _run_first),
    Deed("does so, and the owner is a gang", _lazy("lent-2"), _owner(notes=PAIR), _run_first),
    Deed("does so as a gang", _lazy("gang", notes=ALL), _owner(), _run_first),
    Deed("deletes its pods with ten years to leave", _lazy("deleted"), _owner(), _delete_slowly),
    Deed("has many more such pods that wait", _lazy("many"), _and_again, _run_first),
    Deed(
        "forbids evictions by a budget",
        [*_lazy("budget", labels={"app": "stays"}), _budget()],
        _owner(),
        _run_first,
    ),
    Deed(
        "borrows by jobs of ten years",
        [job(f"job-{number}", **{**LENT_WORDS, "priority": 0}) for number in range(NODES)],
        _owner(),
        _run_first,
    ),
    Deed(
        "keeps a higher priority of its own virtual cluster waiting",
        [pod("low", notes=SLOW, terminationGracePeriodSeconds=DECADES_S)],
        _owner(1, vc=EVIL, priority=5),
        lambda cluster: cluster.await_so("it runs", lambda: "low" in cluster.started()),
    ),
)
GRACE = Hostile(
    attack,
    settings={
        "rules": 2,
        "queues": {"enabled": True},
        "access": "namespaces",
        "opportunistic": {"namespaces": list(NAMESPACES)},
        "lentGraceSeconds": CEILING_S,
        "preemptionGraceSeconds": CEILING_S,
    },
    of_vcs={
        VICTIM: {"namespaces": [VICTIM]},
        EVIL: {"namespaces": [EVIL, MORE, VICTIM], "queue": {"borrow": True}},
    },
)
