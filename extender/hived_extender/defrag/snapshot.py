"""Inputs of a plan from what a service holds: nodes, groups with their places, reservations, waiting jobs."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from hived.specs import BindInfo, PodRequest
from hived_extender.api.defrag import InputGroup, InputJob, InputLoss, InputPlace, InputPod, Inputs
from hived_extender.pods.annotations import spec_fields
from hived_extender.reconfiguration.waiting_jobs import Waiting
from hived_extender.service.state_inputs import StateInputs


class Facts(msgspec.Struct, frozen=True):
    """What the service knows of a pod beside its request: see `InputGroup`."""

    gang: str = ""
    may_move: bool = False
    started_at: float | None = None
    checkpointed_at: float | None = None


NO_FACTS = Facts()


def inputs_of(
    held: StateInputs,
    node_names: Iterable[str],
    *,
    configuration: str,
    at: float,
    losses: Iterable[InputLoss] = (),
    facts: Mapping[str, Facts] | None = None,
    waiting: Iterable[Waiting] = (),
) -> Inputs:
    """The inputs as one value that can be written to a file. `facts` are by uid. Cost O(nodes + pods)."""
    placed: dict[str, list[tuple[PodRequest, BindInfo]]] = {}
    for request, info in held.placed.values():
        placed.setdefault(request.spec.group.name, []).append((request, info))
    known = facts or {}
    groups = [_group(pods, known) for pods in placed.values()]
    groups += [
        _group([(pod, reserved.info) for pod in reserved.pods], known, is_reserved=True)
        for name, reserved in held.reserved.items()
        if name not in placed
    ]
    return Inputs(
        at=at,
        configuration=configuration,
        bad_nodes=[name for name in node_names if name not in held.healthy_nodes],
        losses=list(losses),
        groups=groups,
        waiting=[_job(job) for job in waiting if job.requests],
    )


def _group(
    pods: Sequence[tuple[PodRequest, BindInfo]], facts: Mapping[str, Facts], *, is_reserved: bool = False
) -> InputGroup:
    """One group. It may move if all its pods may; it has saved its work when the last of them has."""
    (first, info), known = pods[0], [facts.get(request.uid, NO_FACTS) for request, _ in pods]
    started = [one.started_at for one in known]
    saved = [one.checkpointed_at for one in known]
    return InputGroup(
        spec=spec_fields(first.spec),
        chain=info.cell_chain,
        places=[
            [InputPlace(one.node, one.leaf_cell_indices, one.preassigned_cell_types) for one in size]
            for size in info.members
        ],
        pods=[
            InputPod(request.uid, request.namespace, request.name, own.node, own.leaf_cell_indices)
            for request, own in pods
        ],
        gang=known[0].gang,
        may_move=all(one.may_move for one in known),
        started_at=min((each for each in started if each is not None), default=None),
        checkpointed_at=None if None in saved else min(each for each in saved if each is not None),
        is_reserved=is_reserved,
    )


def _job(job: Waiting) -> InputJob:
    return InputJob(job.name, list(job.pods), [spec_fields(request.spec) for request in job.requests])
