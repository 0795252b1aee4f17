"""Stand-ins: groups without Kubernetes pods that hold cells for pods to come; no others get them free (rule 28.7)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hived.life.groups import bind_info_for
from hived.values.errors import UserError
from hived.values.specs import BindInfo, GroupSpec, MemberSpec, PodRequest, PodSpec, sizes_of
from hived_extender.jobs.job import parts_of
from hived_extender.machine.core import Core
from hived_extender.machine.recording.operations import STAND_IN, held_for


def stand_in_name(number: int, what_for: str) -> str:
    """The core's name of a stand-in's group; no namespace or pod can have it."""
    return f"{STAND_IN}{number}:{what_for}"


def held_job(group: str) -> tuple[str, str] | None:
    """(name, namespace) of the job behind a stand-in's group; None for any other group."""
    parts = parts_of(held_for(group))
    return ("/".join(parts[:-1]), parts[1]) if parts else None


class StandIns:
    """The pods of one stand-in group, known to the core alone."""

    def __init__(self) -> None:
        self.pods: list[PodRequest] = []

    def __bool__(self) -> bool:
        return bool(self.pods)

    def take(self, core: Core, number: int, group: str, namespace: str, spec: PodSpec, info: BindInfo) -> None:
        """Hold the cells of `info` for a group with `spec`. Raises UserError unless all are free.

        On the error, free ones are held.
        """
        name = stand_in_name(number, group)
        for slot, size in enumerate(sizes_of(spec.group.members)):
            own = replace(spec.of_group(name), leaf_cell_count=size)
            pod = PodRequest(f"{name}:{slot}", group, namespace, own)
            core.adopt(pod, bind_info_for(info.members, slot, info.cell_chain))
            self.pods.append(pod)
        if not core.has_all_cells(name):
            raise UserError(f"the cells of {name} cannot be had whole", 409)

    def release(self, core: Core) -> None:
        """Free all held cells."""
        for pod in self.pods:
            core.delete(pod)
        self.pods.clear()

    def are_victims(self, core: Core) -> bool:
        """True if other pods have reserved cells held here."""
        return any(core.is_victim(pod) for pod in self.pods)


def members_of(sizes: Sequence[int]) -> tuple[MemberSpec, ...]:
    """The members of a group with slots of these sizes, ascending."""
    counts: dict[int, int] = {}
    for size in sorted(sizes):
        counts[size] = counts.get(size, 0) + 1
    return tuple(MemberSpec(count, size) for size, count in counts.items())


def like(spec: PodSpec, name: str, sizes: Sequence[int]) -> PodSpec:
    """The request of the first pod of a group with another name and slots of these sizes, else the same."""
    members = members_of(sizes)
    return replace(spec, group=GroupSpec(name, members), leaf_cell_count=members[0].leaf_cell_count)


def guaranteed(pod: PodRequest, wanted: PodSpec) -> PodRequest:
    """A pod on lent cells as it will be on cells of its VC, by its job's request."""
    spec = replace(pod.spec, priority=wanted.priority, pinned_cell_id=wanted.pinned_cell_id)
    return replace(pod, spec=spec)


def ranges_of(sizes: Sequence[int]) -> Iterator[slice]:
    """The range of leaf cells of each slot."""
    start = 0
    for size in sizes:
        yield slice(start, start + size)
        start += size
