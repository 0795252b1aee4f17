"""The mixed load of measurements: gangs of several dialects and sizes, and pods by themselves, drawn with a seed."""

import random
from dataclasses import dataclass
from typing import Any

from hived_config.skus import GPU_RESOURCE
from hived_extender.jobs.asks import VIRTUAL_CLUSTER
from hived_extender.jobs.kinds import koordinator, kueue
from hived_jobs.submission import SCHEDULER

Json = dict[str, Any]

GANG_SIZES = (2, 3, 4, 6, 8, 16, 32)
SIZE_WEIGHTS = (26, 14, 20, 10, 14, 10, 6)
GPUS = (1, 2, 4, 8)
GPU_WEIGHTS = (30, 20, 25, 25)
DIALECTS = ("koordinator", "labels", "kueue")
SINGLE_SHARE = 0.2
"""Of all pods, those that need nobody else to start."""


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods that start together: how many, how many GPUs each has, and in which words they say so."""

    name: str
    size: int
    gpus: int
    dialect: str = "koordinator"


def gang_pods(gang: Gang, vc: str) -> list[Json]:
    """The pods of a gang, in the order in which a controller would create them."""
    labels: dict[str, str] = {}
    annotations = {VIRTUAL_CLUSTER: vc}
    if gang.dialect == "koordinator":
        annotations |= {koordinator.GANG_NAME: gang.name, koordinator.MINIMUM: str(gang.size)}
    elif gang.dialect == "labels":
        labels |= {
            koordinator.GROUP_NAME: gang.name,
            koordinator.MIN_AVAILABLE: str(gang.size),
        }
    else:
        labels |= {kueue.GROUP_NAME: gang.name}
        annotations |= {kueue.TOTAL: str(gang.size)}
    return [device_pod(f"{gang.name}-{each}", gang.gpus, annotations, labels) for each in range(gang.size)]


def device_pod(name: str, gpus: int, annotations: dict[str, str], labels: dict[str, str]) -> Json:
    """A pod that asks for GPUs as any other would, and for our scheduler by its name."""
    resources = {"limits": {GPU_RESOURCE: str(gpus)}}
    return {
        "metadata": {"name": name, "annotations": annotations, "labels": labels},
        "spec": {
            "schedulerName": SCHEDULER,
            "containers": [{"name": "main", "image": "none", "resources": resources}],
        },
    }


def mixed(pod_count: int, gang_count: int, vc: str, seed: int) -> list[list[Json]]:
    """So many pods, in so many gangs and by themselves: a list of jobs, in the order in which they come."""
    draw = random.Random(seed)
    in_gangs = pod_count - round(pod_count * SINGLE_SHARE)
    gangs = [
        Gang(f"gang-{number}", size, *draw.choices(GPUS, GPU_WEIGHTS), dialect=draw.choice(DIALECTS))
        for number, size in enumerate(_sizes(draw, in_gangs, gang_count))
    ]
    jobs = [gang_pods(gang, vc) for gang in gangs]
    for number in range(pod_count - in_gangs):
        gpus = draw.choices(GPUS, GPU_WEIGHTS)[0]
        jobs.append([device_pod(f"single-{number}", gpus, {VIRTUAL_CLUSTER: vc}, {})])
    draw.shuffle(jobs)
    return jobs


def _sizes(draw: random.Random, pod_count: int, gang_count: int) -> list[int]:
    """Sizes of gangs that have that many pods together, at least two each."""
    assert pod_count >= 2 * gang_count, f"{pod_count} pods are too few for {gang_count} gangs"
    sizes = draw.choices(GANG_SIZES, SIZE_WEIGHTS, k=gang_count)
    while (missing := pod_count - sum(sizes)) != 0:
        one = draw.randrange(gang_count)
        sizes[one] = max(2, sizes[one] + (1 if missing > 0 else -1))
    return sizes
