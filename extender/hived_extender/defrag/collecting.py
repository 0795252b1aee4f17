"""The inputs of a plan from a running service, without keeping others from it for long."""

import time
from collections.abc import Collection, Sequence

import msgspec

from hived.values.specs import ClusterSpec
from hived_config.rules import Moving
from hived_extender.api.defrag import InputLoss, InputRules, Inputs
from hived_extender.defrag.kube_facts import FactsNoted
from hived_extender.defrag.snapshot import Facts, inputs_of
from hived_extender.kube.clocks import wall_s
from hived_extender.reconfiguration.change import waiting_jobs
from hived_extender.reconfiguration.judging import Waiting
from hived_extender.service.pods import PodRecord
from hived_extender.service.service import Service
from hived_extender.service.state_inputs import Placed, StateInputs, reservations

AT_ONCE = 500
"""Pods looked at under the lock; others are served in between."""


class Collected(msgspec.Struct, frozen=True):
    """Inputs, with their configuration read."""

    inputs: Inputs
    cluster: ClusterSpec
    moving: Moving


def collect(service: Service, configuration: str) -> Collected:
    """The inputs of now. Pods that come or go meanwhile may be in them or not: plans are checked before they are made
    true. Raises NotLeadingError.
    """
    service.check_leads()
    waiting = waiting_jobs(service)
    with service.runner.exclusive() as machine:
        core = machine.verbs.core
        spec, moving = core.state.spec, machine.interpreter.rules.moving
        reserved, names = reservations(core.state), core.node_names
    time.sleep(0)  # let another waiter have the lock first
    with service.runner.exclusive() as machine:
        healthy = frozenset(machine.cache.nodes.healthy)
        losses = [InputLoss(one.node, one.leaf_type, one.lost_count, one.known) for one in machine.cache.devices.losses]
    time.sleep(0)
    with service.runner.exclusive() as machine:
        records = list(machine.cache.pods)
    placed: dict[str, Placed] = {}
    facts: dict[str, Facts] = {}
    for first in range(0, len(records), AT_ONCE):
        with service.runner.exclusive() as machine:
            for record in records[first : first + AT_ONCE]:
                if machine.cache.pods.get(record.uid) is record:
                    _note(record, placed, facts)
        time.sleep(0)
    rules = _rules_of(service, waiting, facts)
    held = StateInputs(healthy, placed, reserved)
    inputs = inputs_of(
        held,
        names,
        configuration=configuration,
        at=float(int(wall_s())),
        losses=losses,
        facts=facts,
        waiting=waiting,
        rules=rules,
    )
    return Collected(inputs, spec, moving)


def _note(record: PodRecord, placed: dict[str, Placed], facts: dict[str, Facts]) -> None:
    request, info = record.request, record.place.info
    if request is not None and info is not None and record.is_in_core:
        placed[record.uid] = Placed(request, info, record.progress.times)
        facts[record.uid] = Facts(str(record.gang) if record.gang is not None else "", record.progress.may_move)


def _rules_of(service: Service, waiting: Sequence[Waiting], of_groups: Collection[str]) -> InputRules:
    """The facts for Kubernetes' own rules; `of_groups` are the uids of pods with cells. Pods that leave are gone."""
    with service.runner.exclusive() as machine:
        residents, offers = machine.cache.nodes.residents, machine.cache.offers
        uids = residents.uids()
        asking = [pod for job in waiting for part in job.ruled for pod in part]
        asking += [found.pod for uid in of_groups if (found := residents.get(uid)) is not None]
        is_apart = not residents.repelling and not any(pod.demands.has_neighbour_rules for pod in asking)
        noted = FactsNoted(list(offers.nodes.values()), offers.namespace_labels, is_apart=is_apart)
    time.sleep(0)
    for first in range(0, len(uids), AT_ONCE):
        with service.runner.exclusive() as machine:
            residents = machine.cache.nodes.residents
            for uid in uids[first : first + AT_ONCE]:
                found = residents.get(uid)
                if found is not None and not found.is_leaving:
                    noted.put(uid, found.node, found.pod, is_of_group=uid in of_groups)
        time.sleep(0)
    for job in waiting:
        if job.requests:
            is_beyond = any(pod.demands.beyond for part in job.ruled for pod in part)
            noted.want(job.name, job.ruled, (job.offered or ()) if is_beyond else None)
    return noted.rules()
