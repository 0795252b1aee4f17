"""Names of other tenants' jobs are masked for callers who may not see their pods.

A caller sees the jobs of a namespace if a role of theirs allows `get` on its pods, by a SubjectAccessReview.
Where callers are not authenticated, they see everything. Rights are remembered for a minute. Without an answer of
the API server, names are masked.
"""

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from hived_extender.api.cells import LostDevices
from hived_extender.api.configuration import ConfigReport, ReportedJob
from hived_extender.api.defrag import MovingReport
from hived_extender.api.names import is_full
from hived_extender.api.queues import QueuedJob
from hived_extender.api.status import FailedPod, Status
from hived_extender.api.waiting import (
    MASKED,
    BadNode,
    Certificate,
    Ended,
    Holder,
    IfResult,
    Job,
    NodeView,
    PodOutcome,
    Preempted,
    Unblock,
    Victim,
    Why,
)
from hived_extender.http.access import Gate
from hived_extender.http.answers import Identity
from hived_extender.kube.client import KubeError
from hived_extender.machine.certificates import ended_sentence, is_derived, today, with_sentence

ALL = ""
"""The namespace that stands for all in a SubjectAccessReview."""

REMEMBERED_S = 60.0
FAILED_S = 5.0
MOST_REMEMBERED = 16_384
MOST_REVIEWS = 64
"""Calls of the API server for one answer; the jobs of further namespaces are masked until a later one."""


_REF = re.compile(r"\b[A-Za-z]\w*/([a-z0-9][a-z0-9-]*)/[a-z0-9][\w.-]*\w")


_POD = re.compile(r"(?<![\w./])([a-z0-9][a-z0-9-]*)/[a-z0-9][\w.-]*")
"""`namespace/name`, and not the resource `nvidia.com/gpu`."""


class Masking:
    """Remembers who may see which namespaces. For any thread."""

    def __init__(self, gate: Gate, clock: Callable[[], float] = time.monotonic) -> None:
        self._gate = gate
        self._clock = clock
        self._known: OrderedDict[tuple[Identity, str], tuple[bool, float]] = OrderedDict()

    def of(self, caller: Identity | None) -> "Mask":
        """The mask for a caller, for one answer."""
        return Mask(self, caller)

    @property
    def is_open(self) -> bool:
        """True if callers are not known: all names are shown."""
        return not self._gate.knows_callers

    def remembered(self, caller: Identity, namespace: str) -> bool | None:
        """True if the caller may see the pods of a namespace; None if the API server has to be asked."""
        known = self._known.get((caller, namespace))
        return known[0] if known is not None and self._clock() < known[1] else None

    def ask(self, caller: Identity, namespace: str) -> bool:
        """The same by the API server; False if it does not answer."""
        resource = {"verb": "get", "resource": "pods"} | ({"namespace": namespace} if namespace else {})
        try:
            is_allowed, kept_s = self._gate.may_do(caller, resource), REMEMBERED_S
        except KubeError:
            is_allowed, kept_s = False, FAILED_S
        self._known[caller, namespace] = is_allowed, self._clock() + kept_s
        if len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)
        return is_allowed


class Mask:
    """The view of one caller. Not thread-safe."""

    def __init__(self, masking: Masking, caller: Identity | None) -> None:
        self._masking, self._caller = masking, caller
        self._reviews = 0
        self._shown: dict[str, bool] = {}
        self.shows_all = masking.is_open or (caller is not None and self._may(caller, ALL))

    def shows(self, namespace: str) -> bool:
        """True if the jobs of a namespace are shown."""
        if self.shows_all:
            return True
        if self._caller is None or not namespace:
            return False
        if namespace not in self._shown:
            self._shown[namespace] = self._may(self._caller, namespace)
        return self._shown[namespace]

    def seen(self, namespaces: Iterable[str]) -> frozenset[str] | None:
        """Those of some namespaces whose jobs are shown; None if all are."""
        return None if self.shows_all else frozenset(name for name in namespaces if self.shows(name))

    def queued(self, job: QueuedJob) -> QueuedJob:
        """A job in its queue: of one that is hidden, its place, state, size and moments are left."""
        if self.shows(job.namespace):
            return job
        return replace(job, name=MASKED, namespace="", user="", reason="", part_of="")

    def _may(self, caller: Identity, namespace: str) -> bool:
        known = self._masking.remembered(caller, namespace)
        if known is not None:
            return known
        self._reviews += 1
        return self._reviews <= MOST_REVIEWS and self._masking.ask(caller, namespace)

    def job(self, job: Job) -> Job:
        """A job in a list: of one that is hidden, its virtual cluster, state, size and moments are left."""
        if self.shows(job.namespace):
            return job
        return Job(
            name=MASKED, state=job.state, vc=job.vc, priority=job.priority, is_borrowed=job.is_borrowed, asks=job.asks,
            since=job.since, cause=job.cause, when=job.when,
            used=None if job.used is None else replace(job.used, queue=""),
            ended=None if job.ended is None else _moments_of(job.ended),
        )  # fmt: skip

    def listed(self, job: Job, found: Certificate | None, at_s: float) -> Job:
        """The same with a sentence without hidden names; `found` is its certificate, of a moment `at_s`."""
        job = self.job(job)
        if self.shows_all or job.name == MASKED:
            return job
        if job.preempted is not None:
            job = replace(job, preempted=self._preempted(job.preempted))
        if job.ended is not None:
            ended = replace(job.ended, evictions=[self._preempted(one) for one in job.ended.evictions])
            sentence = ended_sentence(job.state, ended, today(at_s), job.namespace)
            job = replace(job, ended=ended, sentence=sentence)
        if found is None:
            return job
        return replace(job, sentence=self.certificate(found, at_s, job.namespace, {}).sentence)

    def why(self, why: Why, at_s: float, namespace_of: Mapping[str, str]) -> Why:
        """The answer about a job that is shown; `namespace_of` has the namespace of each job and group."""
        if self.shows_all:
            return why
        if why.certificate is None:
            return replace(why, job=self.listed(why.job, None, at_s))
        return replace(
            why, job=self.listed(why.job, why.certificate, at_s),
            certificate=self.certificate(why.certificate, at_s, why.job.namespace, namespace_of),
        )  # fmt: skip

    def outcome(self, found: IfResult, at_s: float, namespace: str, namespace_of: Mapping[str, str]) -> IfResult:
        """The result of changes that were tried on a job of a namespace."""
        if self.shows_all:
            return found
        certificate = found.certificate
        if certificate is not None:
            certificate = self.certificate(certificate, at_s, namespace, namespace_of)
        return replace(found, victims=self._names(found.victims, namespace_of), certificate=certificate)

    def certificate(
        self, found: Certificate, at_s: float, namespace: str, namespace_of: Mapping[str, str]
    ) -> Certificate:
        """A certificate of a job of a namespace, without the names of jobs that are hidden."""
        if self.shows_all:
            return found
        holders = [self.holder(holder) for holder in found.holders]
        unblock = [self._unblock(one, namespace_of) for one in found.unblock]
        masked = replace(found, holders=holders, unblock=unblock)
        return with_sentence(masked, at_s, namespace) if is_derived(found) else masked

    def forecast(self, pod: PodOutcome, at_s: float) -> PodOutcome:
        """The outcome for a pod if it were created at `at_s`, without hidden names."""
        found = pod.certificate
        if self.shows_all:
            return pod
        victims = [one if self.shows(one.namespace) else Victim(MASKED, "", one.pods) for one in pod.victims]
        pod = replace(pod, victims=victims)
        if found is None:
            return pod
        masked = self.certificate(found, at_s, pod.namespace, {})
        return replace(pod, certificate=masked, reason=pod.reason.replace(found.sentence, masked.sentence))

    def report(self, report: ConfigReport) -> ConfigReport:
        """The effects of a configuration, for a caller who may not push it."""
        if self.shows_all:
            return report
        jobs = [*report.groups.affected, *report.waiting]
        hidden = {name for job in jobs if not self._shows_job(job) for name in (job.name, job.job, *job.pods) if name}
        groups = replace(report.groups, affected=[self._reported(job, hidden) for job in report.groups.affected])
        return replace(
            report,
            groups=groups,
            waiting=[self._reported(job, hidden) for job in report.waiting],
            refusals=[self._without_refs(_without(text, hidden)) for text in report.refusals],
            warnings=[self._without_refs(_without(text, hidden)) for text in report.warnings],
        )

    def moves(self, report: MovingReport) -> MovingReport:
        """Moves of groups, and why they were stopped."""
        hidden = {move.group for move in report.moves if not self._shows_name(move.group)}
        if not hidden:
            return report
        moves = [replace(move, group=MASKED) if move.group in hidden else move for move in report.moves]
        return replace(report, moves=moves, reason=_without(report.reason, hidden))

    def status(self, status: Status) -> Status:
        """The state of the service: pods that it could not recover may be hidden, and those that reasons name."""
        if self.shows_all:
            return status
        short = [replace(one, nodes=[self.bad_node(each) for each in one.nodes]) for one in status.short]
        found = status.recovered
        if found is not None:
            failed = [one if self._shows_name(one.pod) else FailedPod(MASKED, "") for one in found.failed]
            found = replace(found, failed=failed)
        return replace(status, short=short, recovered=found)

    def devices(self, lost: LostDevices) -> LostDevices:
        """Devices that cannot be had, and the pods that use some of them."""
        hidden = {user.name for user in lost.used_by if not self._shows_name(user.name)}
        if not hidden:
            return lost
        users = [replace(user, name=MASKED) if user.name in hidden else user for user in lost.used_by]
        return replace(lost, used_by=users, reason=_without(lost.reason, hidden))

    def _without_refs(self, text: str) -> str:
        """A text in which jobs of queues that are hidden are masked: `Kind/namespace/name`."""
        return _REF.sub(lambda found: found[0] if self.shows(found[1]) else MASKED, text)

    def _shows_name(self, name: str) -> bool:
        """By the namespace in the name of a pod or a group, which is hidden where it has none."""
        return self.shows_all or self.shows(re.split("[/:]", name.removeprefix("podgroup/"), maxsplit=1)[0])

    def _shows_job(self, job: ReportedJob) -> bool:
        return bool(job.pods) and all(self.shows(pod.partition("/")[0]) for pod in job.pods)

    def _reported(self, job: ReportedJob, hidden: Collection[str]) -> ReportedJob:
        if job.name in hidden:
            return replace(job, name=MASKED, job="", pods=[], reason="")
        return replace(job, reason=_without(job.reason, hidden))

    def node(self, node: NodeView, namespace_of: Mapping[str, str]) -> NodeView:
        """A node; the hidden jobs on it keep their number."""
        if self.shows_all:
            return node
        return replace(node, groups=self._names(node.groups, namespace_of), reason=self._without_pods(node.reason))

    def bad_node(self, bad: BadNode) -> BadNode:
        """A bad node; its reason may name pods that use its devices."""
        return bad if self.shows_all else replace(bad, reason=self._without_pods(bad.reason))

    def _without_pods(self, text: str) -> str:
        """A text in which pods that are hidden are masked: `namespace/name`."""
        return _POD.sub(lambda found: found[0] if self.shows(found[1]) else MASKED, text)

    def holder(self, holder: Holder) -> Holder:
        """A job that has cells: of one that is hidden, its virtual cluster, size and moments are left."""
        return holder if self.shows(holder.namespace) else replace(holder, group=MASKED, namespace="", user="")

    def _preempted(self, news: Preempted) -> Preempted:
        """A preemption, without the name of a job that is hidden."""
        if not news.by or self.shows(news.namespace):
            return news
        return Preempted(at=news.at, by=MASKED, why=news.why)

    def _names(self, names: Sequence[str], namespace_of: Mapping[str, str]) -> list[str]:
        return [name if self.shows(namespace_of.get(name, "")) else MASKED for name in names]

    def _unblock(self, one: Unblock, namespace_of: Mapping[str, str]) -> Unblock:
        """The names in `change` are those of groups behind `ends=` and `move=`; `text` has these, or their objects'."""
        key, _, value = one.change.partition("=")
        named = [*one.victims, *(value.split(",") if key in {"ends", "move"} else ())]
        hidden = {name for name in named if not self.shows(namespace_of.get(name, ""))}
        if not hidden:
            return one
        return Unblock(
            change=_without(one.change, hidden), text=self._without_pods(_without(one.text, hidden)),
            victims=[MASKED if name in hidden else name for name in one.victims],
        )  # fmt: skip


def _moments_of(ended: Ended) -> Ended:
    """The end of a job that is hidden: when, and what it used."""
    return Ended(
        at=ended.at,
        created=ended.created,
        started=ended.started,
        ran_s=ended.ran_s,
        gpus=ended.gpus,
        gpu_hours=ended.gpu_hours,
    )


def _without(text: str, names: Collection[str]) -> str:
    """A text in which these names are masked, without their kinds as well, as `short_name` writes them."""
    if not names:
        return text
    bare = (name.partition("/")[2] for name in names if is_full(name))
    known = {*names, *(name.removeprefix("podgroup/") for name in names), *bare}
    longest_first = sorted(known, key=lambda name: (-len(name), name))
    return re.sub("|".join(map(re.escape, longest_first)), MASKED, text)
