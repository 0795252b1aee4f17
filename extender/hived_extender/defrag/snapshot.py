"""Inputs of a plan from what a service holds: nodes, groups with their places, reservations, waiting jobs."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from hived_extender.api.defrag import InputGroup, InputJob, InputLoss, InputPlace, InputPod, InputRules, Inputs
from hived_extender.pods.annotations import spec_fields
from hived_extender.reconfiguration.judging import Waiting
from hived_extender.service.state_inputs import Placed, StateInputs


class Facts(msgspec.Struct, frozen=True):
    """Facts that the service knows of a pod beside its request: see `InputGroup`."""

    gang: str = ""
    may_move: bool = False


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
    rules: InputRules | None = None,
) -> Inputs:
    """The inputs as one value that can be written to a file. `facts` are by uid. Cost O(nodes + pods)."""
    placed: dict[str, list[Placed]] = {}
    for one in held.placed.values():
        placed.setdefault(one.request.spec.group.name, []).append(one)
    known = facts or {}
    groups = [_group(pods, known) for pods in placed.values()]
    groups += [
        _group([Placed(pod, reserved.info) for pod in reserved.pods], known, is_reserved=True)
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
        rules=rules,
    )


def _group(pods: Sequence[Placed], facts: Mapping[str, Facts], *, is_reserved: bool = False) -> InputGroup:
    """One group. It may move if all its pods may; its work is counted as the core does (rule 8.12)."""
    info, known = pods[0].info, [facts.get(one.request.uid, NO_FACTS) for one in pods]
    return InputGroup(
        spec=spec_fields(pods[0].request.spec),
        chain=info.cell_chain,
        places=[
            [InputPlace(one.node, one.leaf_cell_indices, one.preassigned_cell_types) for one in size]
            for size in info.members
        ],
        pods=[
            InputPod(
                one.request.uid, one.request.namespace, one.request.name, one.info.node, one.info.leaf_cell_indices
            )
            for one in pods
        ],
        gang=known[0].gang,
        may_move=all(one.may_move for one in known),
        started_at=min((one.times.started_s for one in pods if one.times.started_s is not None), default=None),
        checkpointed_at=max((one.times.saved_s for one in pods if one.times.saved_s is not None), default=None),
        is_reserved=is_reserved,
    )


def _job(job: Waiting) -> InputJob:
    return InputJob(job.name, list(job.pods), [spec_fields(request.spec) for request in job.requests])
