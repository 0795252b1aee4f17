"""The prospects of waiting jobs under a configuration: which could start, and which never will."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

import msgspec
from msgspec.structs import replace

from hived.decisions import Applied, Bind, Decision, Preempt
from hived.errors import UserError
from hived.events import NodeHealthChanged
from hived.scheduler import Asked, handle, new_state, plan_in_turn
from hived.specs import ClusterSpec, PodRequest, PodSpec
from hived.state import State
from hived_config.access import AccessRules
from hived_extender.api.configuration import ReportedJob
from hived_extender.service.cluster_cache import ClusterCache
from hived_extender.service.gangs.plans import Round
from hived_extender.service.gangs.rounds import Alone
from hived_extender.service.pods import PodRecord, PodState

TRIED_ALIKE = 16
"""Jobs that ask for the same and are tried; when so many could start, no more are looked at."""

COULD_START = "couldStart"
NEVER_STARTS = "neverStarts"
WAITS = "waits"


class Waiting(msgspec.Struct, frozen=True):
    """A job that waits: its requests, in parts that start together, or why it cannot be asked for."""

    name: str
    vc: str
    pods: tuple[str, ...]
    requests: tuple[PodRequest, ...] = ()
    why: str = ""
    is_refused: bool = False


def note_waiting(found: dict[str, Waiting], cache: ClusterCache, records: Iterable[PodRecord]) -> None:
    """Enter the jobs of these pods by name, but for pods that do not wait any more. Under the lock.

    Cost: a look at each pod, and a plan for each gang that has none yet.
    """
    for record in records:
        if record.state is not PodState.WAITING or cache.pods.get(record.uid) is not record:
            continue
        request = record.request
        if not record.is_of_dialect:
            if request is not None:
                name = request.spec.group.name
                known = found.setdefault(name, Waiting(name, request.spec.virtual_cluster, (), (request,)))
                found[name] = replace(known, pods=(*known.pods, record.key))
            continue
        ask = record.ask
        vc = ask.virtual_cluster if ask is not None else ""
        try:
            step = cache.rounds.step(record)
        except UserError as error:
            found[record.key] = Waiting(record.key, vc, (record.key,), why=error.message, is_refused=True)
            continue
        if isinstance(step, Round):
            pods = tuple(member.key for member in step.members)
            found[step.name] = Waiting(step.name, vc, pods, tuple(part.request for part in step.parts))
        elif not isinstance(step, Alone):
            found[record.key] = Waiting(record.key, vc, (record.key,), why=step.reason)
        elif step.request is not None:
            found[record.key] = Waiting(record.key, vc, (record.key,), (step.request,))


def in_turn(found: Mapping[str, Waiting]) -> list[Waiting]:
    """The jobs by priority, highest first."""
    return sorted(found.values(), key=_turn)


def refused_by(access: AccessRules, jobs: Iterable[Waiting]) -> list[Waiting]:
    """The jobs; the ones that rules of access refuse are marked. Rules by labels of namespaces refuse none."""
    return [job if access.needs_labels else _allowed(access, job) for job in jobs]


def _allowed(access: AccessRules, job: Waiting) -> Waiting:
    namespaces = dict.fromkeys(pod.partition("/")[0] for pod in job.pods)
    for namespace, request in product(namespaces, job.requests):
        spec = request.spec
        if why := access.refusal(namespace, {}, spec.virtual_cluster, spec.priority):
            return replace(job, why=why, is_refused=True)
    return job


def outcomes(jobs: Sequence[Waiting], state: State) -> list[ReportedJob]:
    """An entry of a report for each job, tried on `state` in turn, each with the earlier ones in place.

    Nothing changes. Cost: a search for each of up to TRIED_ALIKE jobs that ask for the same, and another one in an
    empty cluster if it cannot start.
    """
    alike: dict[tuple[PodSpec, ...], int] = {}
    tried = []
    for job in jobs:
        wanted = _wanted(job)
        alike[wanted] = alike.get(wanted, 0) + 1
        if job.requests and not job.is_refused and alike[wanted] <= TRIED_ALIKE:
            tried.append(job)
    bundles = [[Asked(request) for request in job.requests] for job in tried]
    found = dict(zip((job.name for job in tried), plan_in_turn(state, bundles), strict=True))
    never = _Never(state.spec)
    return [
        ReportedJob(job.name, job.vc, _priority(job), [*job.pods], *_verdict(job, found.get(job.name), never))
        for job in jobs
    ]


class _Never:
    """Whether jobs could not even start in a cluster that is all theirs, for each kind of job once."""

    def __init__(self, spec: ClusterSpec) -> None:
        self._spec = spec
        self._state: State | None = None
        self._known: dict[tuple[PodSpec, ...], str] = {}

    def why(self, job: Waiting) -> str:
        """Why a job can never start, "" if it can."""
        wanted = _wanted(job)
        if wanted not in self._known:
            if self._state is None:
                self._state = new_state(self._spec)
                for node in self._state.topology.node_names:
                    handle(self._state, NodeHealthChanged(node, True))
            (found,) = plan_in_turn(self._state, [[Asked(request) for request in job.requests]])
            self._known[wanted] = _obstacle(found)
        return self._known[wanted]


def _verdict(job: Waiting, found: list[Decision] | UserError | None, never: _Never) -> tuple[str, str]:
    if job.is_refused or not job.requests:
        return (NEVER_STARTS if job.is_refused else WAITS), job.why
    if isinstance(found, UserError):
        return NEVER_STARTS, found.message
    if found is not None and all(isinstance(decision, Bind | Preempt) for decision in found):
        leaving = sum(len(pods) for one in found if isinstance(one, Preempt) for pods in one.victims_by_node.values())
        victims = "1 pod has" if leaving == 1 else f"{leaving} pods have"
        return COULD_START, f"{victims} to leave first" if leaving else ""
    why = never.why(job)
    if why:
        return NEVER_STARTS, why
    return WAITS, _obstacle(found) if found is not None else "others that ask for the same come first"


def _obstacle(found: list[Decision] | UserError) -> str:
    if isinstance(found, UserError):
        return found.message
    waits: Iterator[str] = (
        one.reason or "no cell chain could be tried" for one in found if not isinstance(one, Bind | Preempt | Applied)
    )
    return next(waits, "")


def _wanted(job: Waiting) -> tuple[PodSpec, ...]:
    return tuple(request.spec.of_group("") for request in job.requests)


def _turn(job: Waiting) -> tuple[int, str]:
    return -_priority(job), job.name


def _priority(job: Waiting) -> int:
    return max((request.spec.priority for request in job.requests), default=0)
