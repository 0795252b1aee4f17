"""Tasks as the core knows them: pods of one affinity group."""

from hived.specs import GroupSpec, MemberSpec, PodRequest, PodSpec
from hived_simulator.tasks import Task

NAMESPACE = "simulated"


def pod_spec(task: Task, priority: int, is_lazy: bool, leaf_count: int = 0) -> PodSpec:
    """The request of a pod of a task; with `leaf_count` leaf cells, 0 for those of the first pod."""
    shape = task.shape
    members = tuple(MemberSpec(*pods) for pods in shape.pods)
    return PodSpec(
        task.vc, priority, leaf_count or shape.pods[0][1], GroupSpec(task.group, members),
        leaf_cell_type=shape.leaf_type, lazy_preemption=is_lazy, within_cell=shape.within_cell,
        elastic=shape.is_elastic,
    )  # fmt: skip


def pod_of(task: Task, spec: PodSpec, slot: int) -> PodRequest:
    """The pod in a slot of a task; its uid begins with the task's group."""
    return PodRequest(f"{task.group}/{slot}", f"{task.group}-{slot}", NAMESPACE, spec)
