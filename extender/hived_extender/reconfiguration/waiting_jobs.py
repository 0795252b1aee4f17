"""The prospects of waiting jobs under a configuration: which could start, and which never will."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

import msgspec
import numpy as np
from msgspec.structs import replace

from hived.decisions import Applied, Bind, Decision, Preempt
from hived.errors import UserError
from hived.events import NodeHealthChanged, Offer
from hived.scheduler import Asked, handle, new_state, plan_in_turn
from hived.specs import ClusterSpec, PodRequest, PodSpec
from hived.state import State
from hived.topology import BoolArray
from hived_config.access import AccessRules
from hived_extender.api.configuration import ReportedJob
from hived_extender.kube_rules.demands import RuledPod
from hived_extender.service.cluster_cache import ClusterCache
from hived_extender.service.gangs.plans import Round
from hived_extender.service.gangs.rounds import Alone
from hived_extender.service.pods import PodRecord, PodState
from hived_extender.service.sentences import NO_NODE

TRIED_ALIKE = 16
"""Jobs that ask for the same and are tried; when so many could start, no more are looked at."""

_Shape = tuple[tuple[PodSpec, ...], tuple[bytes, ...]]

COULD_START = "couldStart"
NEVER_STARTS = "neverStarts"
WAITS = "waits"


class Fits(msgspec.Struct, frozen=True, eq=False):
    """The nodes that could take each slot of a part: bool, shape (slots, nodes), and the names of these nodes.

    A node that has no name here has been configured since, and may take any.
    """

    rows: BoolArray
    nodes: tuple[str, ...]

    def offer(self, state: State) -> Offer:
        """The same for the nodes of another configuration. Cost O(slots x nodes)."""
        place = {name: index for index, name in enumerate(self.nodes)}
        here = np.fromiter((place.get(name, -1) for name in state.topology.node_names), np.int64)
        rows = np.where(here >= 0, self.rows[:, here], True)
        return Offer(rows, np.zeros_like(rows))

    def key(self) -> bytes:
        """Equal for parts that the same nodes could take."""
        return np.packbits(self.rows).tobytes()


class Waiting(msgspec.Struct, frozen=True):
    """A job that waits: its requests, in parts that start together, or why it cannot be asked for.

    For each part, `fits` names the nodes that could take each of its slots by the rules of Kubernetes, whoever else is
    there; None for any node, nothing for any nodes. `rules` says which rules refuse which nodes, "" for none. `ruled`
    are the pods of the slots of each part, none where a pod's rules are not known. `offered` are the nodes that
    kube-scheduler offers now.
    """

    name: str
    vc: str
    pods: tuple[str, ...]
    requests: tuple[PodRequest, ...] = ()
    fits: tuple[Fits | None, ...] = ()
    ruled: tuple[tuple[RuledPod, ...], ...] = ()
    offered: frozenset[str] | None = None
    rules: str = ""
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
                known = found.get(name)
                if known is None:
                    known = _waiting(name, cache, [(request, cache.slots(record, request))])
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
            job = _waiting(step.name, cache, [(part.request, part.slots) for part in step.parts])
            found[step.name] = replace(job, vc=vc, pods=tuple(member.key for member in step.members))
        elif not isinstance(step, Alone):
            found[record.key] = Waiting(record.key, vc, (record.key,), why=step.reason)
        elif step.request is not None:
            job = _waiting(record.key, cache, [(step.request, [record])])
            found[record.key] = replace(job, vc=vc, pods=(record.key,))


def _waiting(name: str, cache: ClusterCache, parts: Sequence[tuple[PodRequest, Sequence[PodRecord]]]) -> Waiting:
    """A job of these parts, each with the pods of its slots; it has no pods yet. Cost O(slots x nodes)."""
    core = cache.core
    nodes = core.state.topology.node_names if core is not None else ()
    fits = tuple(_fits(cache, request, slots, nodes) for request, slots in parts)
    rules = next(filter(None, (cache.offers.refusals(one) for _, slots in parts for one in slots[:1])), "")
    requests = tuple(request for request, _ in parts)
    ruled = tuple(_ruled(request, slots) for request, slots in parts)
    latest = next((one.offer.latest for _, slots in parts for one in slots[:1]), None)
    offered = frozenset(nodes[at] for at in np.flatnonzero(latest.mask).tolist()) if latest is not None else None
    return Waiting(name, requests[0].spec.virtual_cluster, (), requests, fits, ruled, offered, rules)


def _ruled(request: PodRequest, slots: Sequence[PodRecord]) -> tuple[RuledPod, ...]:
    """The pod of each slot; the first speaks for all where there are not as many. None if one is not known."""
    found = tuple(one.ruled for one in slots if one.ruled is not None)
    count = sum(member.pod_count for member in request.spec.group.members)
    if not found or len(found) < len(slots):
        return ()
    return found if len(found) == count else found[:1] * count


def _fits(cache: ClusterCache, request: PodRequest, slots: Sequence[PodRecord], nodes: tuple[str, ...]) -> Fits | None:
    """None for a pod that ignores what Kubernetes offers, and for nodes that every rule allows."""
    if request.spec.ignore_suggested_nodes:
        return None
    rows = cache.offers.could_take(slots)
    count = sum(member.pod_count for member in request.spec.group.members)
    if len(rows) != count:
        rows = np.broadcast_to(rows[:1], (count, rows.shape[1]))
    return None if rows.all() else Fits(rows, nodes)


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
    alike: dict[_Shape, int] = {}
    tried = []
    for job in jobs:
        wanted = _wanted(job)
        alike[wanted] = alike.get(wanted, 0) + 1
        if job.requests and not job.is_refused and alike[wanted] <= TRIED_ALIKE:
            tried.append(job)
    bundles = [_asked(job, state) for job in tried]
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
        self._known: dict[_Shape, str] = {}

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
    if found is None:
        return WAITS, "others that ask for the same come first"
    return WAITS, job.rules if job.rules.startswith(NO_NODE) else _joined(_obstacle(found), job.rules)


def _asked(job: Waiting, state: State) -> list[Asked]:
    fits = job.fits or (None,) * len(job.requests)
    return [
        Asked(request, offer=None if fit is None else fit.offer(state))
        for request, fit in zip(job.requests, fits, strict=True)
    ]


def _joined(obstacle: str, rules: str) -> str:
    return f"{obstacle}; {rules}" if rules else obstacle


def _obstacle(found: list[Decision] | UserError) -> str:
    if isinstance(found, UserError):
        return found.message
    waits: Iterator[str] = (
        one.reason or "no cell chain could be tried" for one in found if not isinstance(one, Bind | Preempt | Applied)
    )
    return next(waits, "")


def _wanted(job: Waiting) -> _Shape:
    """Equal for jobs that ask for the same, and that the same nodes could take."""
    specs = tuple(request.spec.of_group("") for request in job.requests)
    return specs, tuple(b"" if fits is None else fits.key() for fits in job.fits)


def _turn(job: Waiting) -> tuple[int, str]:
    return -_priority(job), job.name


def _priority(job: Waiting) -> int:
    return max((request.spec.priority for request in job.requests), default=0)
