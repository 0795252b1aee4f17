"""A tenant who writes objects of queues into its own namespaces: neither queues nor jobs change."""

import time
from collections.abc import Iterator
from typing import Any

from hived_extender.jobs.annotations import PREFIX
from hived_extender.jobs.job import JobRef
from hived_extender.queues.records import PATH, QUEUE_NAMESPACE, queue_name, unit_name
from tests.attacks.attack import Run
from tests.attacks.clusters import EVIL, GPU, GPUS, JOBS, MORE, VICTIM, Cluster, Deed, Hostile, Json, Made, job

GROUP = "scheduling.x-k8s.io/v1alpha1"
QUEUES, UNITS = f"/apis/{GROUP}/namespaces/{{}}/queues", f"/apis/{GROUP}/namespaces/{{}}/queueunits"
TREES = "/apis/scheduling.sigs.k8s.io/v1beta1/namespaces/{}/elasticquotatrees"
SEEN_S = 1.0
"""In which hived would have obeyed."""


def attack(cluster: Cluster, run: Run) -> None:
    """A job of each tenant runs and two wait, while Mallory writes."""
    first = [job("victim-0", VICTIM), job("evil-0")]
    for path, body in first:
        cluster.admin.create(path, body)
    cluster.await_so("the first jobs run", lambda: len(cluster.started()) == len(first))
    others = [job(f"{name}-{number}", name) for name in (VICTIM, EVIL) for number in (1, 2)]
    for path, body in others:
        cluster.admin.create(path, body)
    cluster.await_so("the other jobs wait", lambda: len(_jobs(cluster)) == len(first) + len(others))
    before = _view(cluster)
    deeds = list(_deeds(is_real=cluster.is_real))
    for title, made, act in deeds[: run.count(len(deeds))]:
        cluster.carry_out(Deed(title, made, lambda one: _changed(one, before), act, spares=True))


def _jobs(cluster: Cluster) -> dict[str, Any]:
    items = cluster.get("/v1/inspect/queues/jobs")["items"]
    return {each["name"]: (each["queue"], each["position"], each["state"], each["priority"]) for each in items}


def _view(cluster: Cluster) -> Json:
    queues = cluster.get("/v1/inspect/queues")["items"]
    kept = ("vc", "policy", "waiting", "running", "guaranteed", "max")
    return {"jobs": _jobs(cluster), "queues": {one["name"]: [one.get(key) for key in kept] for one in queues}}


def _changed(cluster: Cluster, before: Json) -> str:
    until = time.monotonic() + SEEN_S
    while time.monotonic() < until:
        if (now := _view(cluster)) != before:
            return f"{before} became {now}"
        time.sleep(SEEN_S / 10)
    return ""


def _queue(name: str, of: str, namespace: str = EVIL, **spec: Any) -> Made:
    meta = {
        "name": name,
        "annotations": {PATH: of, "koord-queue/max-depth": "1"},
        "labels": {PATH: queue_name(of)[-5:]},
    }
    return QUEUES.format(namespace), {"apiVersion": GROUP, "kind": "Queue", "metadata": meta, "spec": spec}


def _unit(name: str, of: str, **spec: Any) -> Made:
    consumer = {"apiVersion": "batch/v1", "kind": "Job", "namespace": of.partition("-")[0], "name": of}
    body = {"apiVersion": GROUP, "kind": "QueueUnit", "metadata": {"name": name}}
    return UNITS.format(EVIL), {**body, "spec": {"consumerRef": consumer, **spec}}


def _tree(namespace: str) -> Made:
    everything = {GPU: 2 * GPUS}
    leaf = {"name": EVIL, "namespaces": [EVIL], "min": everything, "max": everything}
    none = {"name": VICTIM, "namespaces": [VICTIM], "max": {GPU: 0}}
    root = {"name": "root", "min": everything, "max": everything, "children": [leaf, none]}
    body = {"apiVersion": "scheduling.sigs.k8s.io/v1beta1", "kind": "ElasticQuotaTree"}
    return TREES.format(namespace), {**body, "metadata": {"name": "elasticquotatree"}, "spec": {"root": root}}


def _deeds(*, is_real: bool) -> Iterator[tuple[str, list[Made], Any]]:
    for of in (VICTIM, EVIL):
        for number, name in enumerate(("a", queue_name(of))):
            for policy in ("Block", "Priority"):
                made = [_queue(name, of, (EVIL, MORE)[number], queuePolicy=policy, priority=1000)]
                yield f"writes {policy} into a Queue {name} for {of}", made, None
    for of in (f"{VICTIM}-1", f"{EVIL}-1"):
        name = unit_name(JobRef("batch/v1", "Job", EVIL, of, "u"))
        yield f"makes a unit {name}-x that holds {of}", [_unit(f"{name}-x", of, active=False)], None
        yield f"makes a unit {name}-y of priority for {of}", [_unit(f"{name}-y", of, priority=1000)], None
    own = unit_name(JobRef("batch/v1", "Job", EVIL, f"{EVIL}-2", "u"))
    for title, change in (
        ("the queue", {"spec": {"queue": queue_name(VICTIM)}}),
        ("the priority", {"spec": {"priority": 1000}}),
        ("the request", {"spec": {"request": {GPU: "0"}}}),
        ("the job", {"spec": {"consumerRef": {"namespace": VICTIM, "name": f"{VICTIM}-1"}}}),
    ):
        yield f"changes {title} in its own unit", [], _patched(f"{UNITS.format(EVIL)}/{own}", change)
    for phase in ("Dequeued", "Running", "Succeed"):
        change = {"status": {"phase": phase}}
        yield f"writes phase {phase} into its own unit", [], _patched(f"{UNITS.format(EVIL)}/{own}/status", change)
    yield "deletes its own unit", [], lambda cluster: cluster.tenant.delete(f"{UNITS.format(EVIL)}/{own}")
    for namespace in (EVIL, MORE):
        yield f"makes a tree in {namespace}", [_tree(namespace)], None
    notes = {"queue-held": "false", "queue-state": '{"step": "running"}', "queue-gang": f"{VICTIM}-1/u"}
    for key, text in notes.items():
        change = {"metadata": {"annotations": {f"{PREFIX}{key}": text}}}
        yield f"annotates its own job {key}", [], _patched(f"{JOBS.format(EVIL)}/{EVIL}-2", change)
    of_administrators = [_queue("a", VICTIM, QUEUE_NAMESPACE, queuePolicy="Block"), _tree("kube-system")]
    for path, body in of_administrators if is_real else ():  # by roles alone
        yield f"makes a {body['kind']} where administrators do", [(path, body)], None


def _patched(path: str, change: Json) -> Any:
    return lambda cluster: cluster.tenant.patch(path, change)


QUEUE_OBJECTS = Hostile(attack, shares={VICTIM: 1, EVIL: 1}, settings={"rules": 2, "queues": {"enabled": True}})
