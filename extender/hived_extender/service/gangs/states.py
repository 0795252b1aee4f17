"""The progress of a gang, as it is shown to people."""

import msgspec

from hived_extender.pods.dialects.description import ObjectRef
from hived_extender.service.gangs.gang import Gang
from hived_extender.service.gangs.plans import Plan
from hived_extender.service.pods import PodState


class GangState(msgspec.Struct, frozen=True):
    """How many pods a gang has: all of them, those that are not over and have a node, and by Kubernetes' phases.

    `source` is the object that describes it, if any does. `obstacle` says what is wrong with its pods or missing, ""
    if it only waits for cells or for nothing.
    """

    source: ObjectRef | None = None
    pod_count: int = 0
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    obstacle: str = ""


def state_of(gang: Gang, plan: Plan) -> GangState:
    """The state of a gang whose plan this is. Cost O(pods x log)."""
    members, ended = gang.in_order(), list(gang.ended.values())
    descriptions = [record.translation.description for record in members]
    said = [description.source for description in descriptions if description is not None]
    succeeded = sum(one.has_succeeded for one in ended)
    return GangState(
        source=next((ref for ref in (*said, *(one.description.source for one in ended)) if ref is not None), None),
        pod_count=len(members) + len(ended),
        scheduled=sum(record.state is PodState.BOUND for record in members),
        running=sum(record.seen.is_running for record in members),
        succeeded=succeeded,
        failed=len(ended) - succeeded,
        obstacle=plan.refusal or plan.forming,
    )
