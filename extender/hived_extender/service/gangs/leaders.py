"""Gangs whose pods are created only when others of them have nodes: Jobs of JobSets with exclusive placement.

The gang starts in two steps. First all leaders, and whatever else exists, start together, where there is room for the
whole gang. Each leader stands for the followers of its Job as well. Then the followers start together.
"""

from collections.abc import Sequence

from hived_extender.pods.dialects.description import JobPart
from hived_extender.service.gangs.gang import Ended, is_ready
from hived_extender.service.pods import PodRecord


def part_of(record: PodRecord) -> JobPart | None:
    """Which part a pod has in its JobSet, None if nobody waits for leaders there."""
    description = record.translation.description
    return description.job_part if description is not None else None


def has_only_led(members: Sequence[PodRecord], ended: Sequence[Ended]) -> bool:
    """Have the leaders of a gang begun, but none of their followers?"""
    parts = [part_of(record) for record in members if record.state.is_placed]
    parts += [one.description.job_part for one in ended]
    return any(part is not None and part.is_leader for part in parts) and all(
        part is None or part.is_leader for part in parts
    )


def followers_of(members: Sequence[PodRecord], minimum: int) -> dict[str, int]:
    """How many followers each waiting leader stands for, by its uid: the pods that are missing for the minimum, shared
    evenly among the Jobs without any. Empty if not all leaders are there, or if that is not why pods are missing.
    """
    parts = [(record, part) for record in members if (part := part_of(record)) is not None]
    leaders = [(record, part) for record, part in parts if part.is_leader]
    replicas = {part.replicated_job: part.replicas for _, part in parts}
    jobs = {part.job for _, part in leaders}
    if any(sum(job[0] == name for job in jobs) < count for name, count in replicas.items()):
        return {}
    followed = {part.job for _, part in parts if not part.is_leader}
    alone = [record for record, part in leaders if part.job not in followed]
    waiting = [record for record in alone if not record.state.is_placed]
    missing = minimum - len(members)
    if missing <= 0 or not waiting or not all(is_ready(record) for record in members if not record.state.is_placed):
        return {}
    share, rest = divmod(missing, len(alone))
    shares = {record.uid: share + (number < rest) for number, record in enumerate(alone)}
    return {record.uid: shares[record.uid] for record in waiting}
