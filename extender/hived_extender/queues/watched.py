"""Objects as the watches report them, as values: jobs, gangs of pods, the quota tree, Queue objects, PriorityClasses.

A job is read on the thread of its watch, so that the machine never parses. Objects are not kept: 50,000 of them
would take hundreds of megabytes. Jobs that another job made have no turn of their own. Where the pods of a job stand in
an object that its controller makes, the job is read anew with that. A JobSet is read anew when a Job that it has made
needs fewer pods than before: so the documents of running ones are kept.

There is one quota tree, in namespace kube-system, as for Kube Queue: tenants may write objects of their own namespaces.
Of several the oldest counts, then the first by name. One that breaks a rule is named in the log and by an event, and
the tree before it stays. Queue objects count in namespace kube-queue alone, for the same reason; one with a mistake
changes nothing.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from hived.values.errors import UserError
from hived_extender.api.names import spoken
from hived_extender.jobs.job import Document, Job, JobName, JobRef, JobState
from hived_extender.jobs.kinds import gangs, table
from hived_extender.jobs.kinds.batch import JOB
from hived_extender.jobs.kinds.jobset import JOB_SET, Child, child_of
from hived_extender.jobs.kinds.kind import Kind
from hived_extender.jobs.kinds.table import names_another, unit_of
from hived_extender.jobs.needs import JobEnd, Need, SeenJob, scheduler_of
from hived_extender.jobs.outcomes import held_since, job_end_of
from hived_extender.jobs.quotas.tree import NAMESPACE, QuotaTree, misspelt_in, names_of, read_tree
from hived_extender.jobs.starts import is_timed
from hived_extender.jobs.wire import Pod
from hived_extender.kube.answers import is_older
from hived_extender.kube.clocks import wall_s
from hived_extender.kube.watch import Object, ObjectKind
from hived_extender.machine.pods import NEVER
from hived_extender.queues.policies import EXPECTED, Policy, Rules, find_policy
from hived_extender.queues.records import MAX_DEPTH, QUEUE_NAMESPACE, queue_name

CLASSES = ObjectKind("scheduling.k8s.io", "priorityclasses", ("v1",))


class WatchedClasses:
    """PriorityClasses whose pods preempt none; thread-safe. `wake` is called when one comes or goes.

    Jobs may come before their class, and classes may go: `take_changed` says that all jobs are to be looked at again.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._never: dict[str, bool] = {}  # by name, whether it is the class of pods that name none
        self._has_changed = False

    def preempts(self, pods: Iterable[Pod]) -> bool:
        """May others leave for a job of these pods (rules 27.7, 30.4)? Not if one of them says so, or its class."""
        never = self._never
        unnamed = any(never.values())
        for spec in [pod.spec for pod in pods if pod.spec is not None]:
            name = spec.priority_class_name
            if spec.preemption_policy == NEVER:
                return False
            if not spec.preemption_policy and (name in never if name else unnamed):
                return False
        return True

    def take_changed(self) -> bool:
        """Are there other such classes than at the last call?"""
        with self._lock:
            changed, self._has_changed = self._has_changed, False
            return changed

    def listed(self, kind: ObjectKind, items: list[Object]) -> None:
        """See `kube.watch.Told`."""
        self._put({_name(item): _is_default(item) for item in items if _is_never(item)})
        self._wake()

    def seen(self, kind: ObjectKind, item: Object) -> None:
        """See `kube.watch.Told`. A class that was deleted and made anew may have another policy."""
        others = {name: each for name, each in self._never.items() if name != _name(item)}
        self._put(others | ({_name(item): _is_default(item)} if _is_never(item) else {}))

    def gone(self, kind: ObjectKind, item: Object) -> None:
        """See `kube.watch.Told`."""
        self._put({name: each for name, each in self._never.items() if name != _name(item)})

    def unserved(self, kind: ObjectKind) -> None:
        """See `kube.watch.Told`."""
        self.listed(kind, [])

    def _put(self, never: dict[str, bool]) -> None:
        with self._lock:
            if never == self._never:
                return
            self._never, self._has_changed = never, True
        self._wake()


def _name(item: Object) -> str:
    return str((item.get("metadata") or {}).get("name") or "")


def _is_never(item: Object) -> bool:
    return item.get("preemptionPolicy") == NEVER


def _is_default(item: Object) -> bool:
    return item.get("globalDefault") is True


log = logging.getLogger(__name__)


MOST_OVER = 10_000
"""Ends of jobs that are kept, the latest ones."""

NOT_UNDERSTOOD = "hived has failed to read it, and its log says how: please tell the maintainers"
"""The reason for a job in no queue that shows a mistake of ours. It is that job's trouble alone."""


MOST_ENDS = 4096
"""Jobs that have ended and are remembered for those who look now and then."""


class WatchedJobs:
    """Jobs as values. Every method may be called from any thread. `queue_of` takes no lock.

    `read_need` gives the needs of a job, None if it is not ours; it raises UserError. `tell` is called with each job
    that has changed, or is gone. `made` is called at once with a job and the one that made it, None if it is gone: its
    pods come in the next moment. A job has made itself if only the labels of its pods name another one.
    """

    def __init__(
        self,
        read_need: Callable[[Job], Need | None],
        tell: Callable[[JobName], None],
        made: Callable[[JobName, JobName | None], None],
        has_our_pods: Callable[[Job], bool] = lambda job: False,
        queue_of: Callable[[JobRef], str] = lambda job: "",
        now_s: Callable[[], float] = wall_s,
        serves: Callable[[str], bool] = lambda scheduler: False,
        others: Callable[[Job], int] = lambda job: 0,
    ) -> None:
        """`serves` tells whether a schedulerName is ours, and `others` how many pods of a job ask for no cells."""
        self._read_need = read_need
        self._tell = tell
        self._made_by, self._has_our_pods, self._serves = made, has_our_pods, serves
        self._others = others
        self._lock = threading.Lock()
        self._jobs: dict[JobName, SeenJob] = {}
        self._managers: dict[JobName, JobName] = {}
        self._made: dict[JobName, Job] = {}  # jobs whose roles others need
        self._sets_lock = threading.RLock()  # the older reading of a JobSet is never kept last
        self._sets: dict[JobName, Object] = {}  # those that run
        self._children: dict[JobName, dict[JobName, Child]] = {}  # by JobSet
        self._queue_of, self._now_s = queue_of, now_s
        self._ends: deque[JobEnd] = deque(maxlen=MOST_ENDS)
        self._end_count = 0
        self._over: dict[tuple[JobName, str], JobState] = {}  # how jobs have ended, by uid too

    # Told by the watches

    def listed(self, kind: Kind, items: list[Object]) -> None:
        """See `kube.watch.Told`."""
        there = set()
        while items:
            there.add(self._take(kind, items.pop()))
        with self._lock:
            known = dict.fromkeys([*self._jobs, *(name for each in self._children.values() for name in each)])
            gone = [name for name in known if _is_of(kind, name) and name not in there]
        for name in gone:
            self.forget(name)

    def seen(self, kind: Kind, item: Object) -> None:
        """See `kube.watch.Told`."""
        self._take(kind, item)

    def gone(self, kind: Kind, item: Object) -> None:
        """See `kube.watch.Told`."""
        metadata = item["metadata"]
        self.forget(kind.name(metadata.get("namespace", ""), metadata["name"]))

    def unserved(self, kind: Kind) -> None:
        """See `kube.watch.Told`."""
        with self._lock:
            left = [name for name in self._jobs if _is_of(kind, name)]
        for name in left:
            self.forget(name)

    def keep(self, name: JobName, job: Job) -> None:
        """A job was read. A gang of plain pods has no object, and is read by `gangs`."""
        maker = job.manager or (name if names_another(job) else None)
        self.keep_end(job)
        with self._lock:
            is_new = maker is not None and self._managers.get(name) != maker
            self._managers.pop(name, None)
            if maker is not None:
                self._managers[name] = maker
            was_known = job.manager is not None and self._jobs.pop(name, None) is not None
        if is_new:
            self._made_by(name, maker)
        if was_known:
            self._tell(name)
        if job.manager is not None:
            return
        seen = self._judged(job)
        with self._lock:
            before = self._jobs.get(name)
            self._jobs[name] = seen
            if before is not None and before.job.ref.uid != job.ref.uid:
                self._has_ended(before)
            elif before is not None and job.state.is_over and not before.job.state.is_over:
                self._has_ended(seen)
        if before != seen:
            self._tell(name)

    def forget(self, name: JobName) -> None:
        """A job is not there any more."""
        manager = self._managers.get(name)
        if manager is not None or _is_of(JOB_SET, name):
            with self._sets_lock:
                self._sets.pop(name, None)
                if manager is not None:
                    self._put_child(name, manager, None)
        with self._lock:
            maker = self._managers.pop(name, None)
            self._made.pop(name, None)
            seen = self._jobs.pop(name, None)
            if seen is not None and not seen.job.state.is_over:
                self._has_ended(seen)
        if maker is not None:
            self._made_by(name, None)
        if seen is not None:
            self._tell(name)

    def keep_end(self, job: Job) -> None:
        """Keep how a job ended: others may wait for it, and it may be deleted before they are looked at."""
        if job.state.is_over:
            with self._lock:
                self._over[job.ref.job_name, job.ref.uid] = job.state
                if len(self._over) > MOST_OVER:
                    del self._over[next(iter(self._over))]

    # Read by the queues

    def find(self, name: JobName) -> SeenJob | None:
        """A job as it was seen last; None if it is gone."""
        return self._jobs.get(name)

    def job_of(self, name: JobName) -> Job | None:
        """See `starts.Jobs`."""
        seen = self._jobs.get(name)
        return None if seen is None else seen.job

    def maker_of(self, name: JobName) -> JobName | None:
        """See `starts.Jobs`."""
        return None if name in self._jobs else self._managers.get(name)

    def end_of(self, name: JobName, uid: str) -> JobState | None:
        """See `starts.Jobs`."""
        return self._over.get((name, uid))

    def timed(self) -> list[SeenJob]:
        """All jobs whose authors say when they start. Cost O(jobs)."""
        with self._lock:
            return [seen for seen in self._jobs.values() if is_timed(seen.job.annotations)]

    def everything(self) -> list[JobName]:
        """All jobs, in the order in which they were seen first."""
        return list(self._jobs)

    def called(self, name: str) -> list[SeenJob]:
        """The jobs of this full name, or `NAMESPACE/NAME`, and those that made an object of it. Cost O(jobs)."""
        with self._lock:
            made = [each for each in self._managers if name in spoken(str(each))[:2]]
            makers = {unit_of(each, self._managers) for each in made}
            return [seen for key, seen in self._jobs.items() if key in makers or name in spoken(str(key))[:2]]

    def ours(self) -> list[SeenJob]:
        """All jobs of which pods are ours, or will be, and those whose pods name our scheduler. Cost O(jobs)."""
        with self._lock:
            return [seen for seen in self._jobs.values() if seen.is_ours or seen.names_us]

    def ends(self) -> list[JobEnd]:
        """The latest jobs that have ended, or were deleted before, oldest first."""
        with self._lock:
            return list(self._ends)

    def has_problem(self, name: JobName) -> bool:
        """Is it in no queue, for something that others may put right?"""
        seen = self._jobs.get(name)
        return seen is not None and bool(seen.problem)

    def _has_ended(self, seen: SeenJob) -> None:
        self._end_count += 1
        self._ends.append(JobEnd(self._end_count, seen, self._now_s(), self._queue_of(seen.job.ref)))

    def _take(self, kind: Kind, item: Object) -> JobName:
        metadata: Mapping[str, Any] = item.get("metadata") or {}
        name = kind.name(str(metadata.get("namespace", "")), str(metadata.get("name", "")))
        item.setdefault("apiVersion", kind.api_versions[0])  # items of a list lack these
        item.setdefault("kind", kind.kind)
        if kind is not JOB_SET:
            return self._take_read(name, item, self._read(item))
        with self._sets_lock:
            job = self._read(item, self._children.get(name, {}).values())
            if job is not None and job.state in (JobState.RESUMED, JobState.LEAVING):
                self._sets[name] = item
            else:
                self._sets.pop(name, None)
            return self._take_read(name, item, job)

    def _take_read(self, name: JobName, item: Object, job: Job | None) -> JobName:
        metadata: Mapping[str, Any] = item.get("metadata") or {}
        if job is None or (metadata.get("deletionTimestamp") and job.manager is None):
            if job is not None:
                self.keep_end(job)
            self.forget(name)  # one on its way out makes no pods any more, and waits for nothing
            return name
        if job.state.is_over:
            end_s, reason = job_end_of(item)
            job = replace(job, end_s=end_s, end_reason=reason)
        elif job.state is JobState.HELD:
            job = replace(job, held_s=held_since(item))
        with self._lock:
            made = self._made.get(job.roles_in) if job.roles_in is not None else None
        if made is not None:
            job = replace(job, roles=made.roles, min_count=made.min_count, tally=made.tally)
        self.keep(name, job)
        if job.manager is not None and table.has_roles_elsewhere(job.manager):
            self._read_maker_again(name, job, job.manager)
        if job.manager is not None and _is_of(JOB_SET, job.manager) and _is_of(JOB, name):
            child = child_of(item, job)
            with self._sets_lock:
                needs_less = (child.spared or child.has_succeeded) and not metadata.get("deletionTimestamp")
                self._put_child(name, job.manager, child if needs_less else None)
        return name

    def _put_child(self, name: JobName, maker: JobName, child: Child | None) -> None:
        """A Job of a JobSet needs fewer pods, as this says; all of them if it is None."""
        children = self._children.setdefault(maker, {})
        before = children.pop(name, None)
        if child is not None:
            children[name] = child
        if not children:
            del self._children[maker]
        if before != child and maker in self._sets:
            self._take(JOB_SET, self._sets[maker])

    def _read(self, item: Object, children: Iterable[Child] = ()) -> Job | None:
        try:
            return table.read(item, children=tuple(children))
        except UserError as error:
            log.warning("a job cannot be read", extra={"fields": {"reason": error.message}})
        except Exception:
            log.exception("a job cannot be read")
        return None

    def _judged(self, job: Job) -> SeenJob:
        try:
            need, scheduler = self._read_need(job), scheduler_of(job)
            has_cells = need is None and self._has_our_pods(job)
            serves, others = self._serves(scheduler), self._others(job)
            return SeenJob(_light(job), need, "", has_cells, scheduler, serves, others=others)
        except UserError as error:
            return SeenJob(_light(job), None, error.message)
        except Exception:
            log.exception("the needs of a job cannot be read", extra={"fields": {"job": str(job.ref)}})
            return SeenJob(_light(job), None, NOT_UNDERSTOOD)

    def _read_maker_again(self, name: JobName, job: Job, maker: JobName) -> None:
        """A job that has its pods in this object can be read now."""
        with self._lock:
            self._made[name] = job
            seen = self._jobs.get(maker)
        if seen is not None and seen.job.roles_in == name:
            self.keep(maker, replace(seen.job, roles=job.roles, min_count=job.min_count, tally=job.tally))


def _light(job: Job) -> Job:
    """The job without its templates."""
    return replace(job, roles=())


def _is_of(kind: Kind, name: JobName) -> bool:
    return (name.group, name.kind) == (kind.group, kind.kind)


AGAIN_S = 5.0
"""A gang that waits for pods, or for its object, is read again after so long."""

COMES_BACK_S = 60.0
"""After so long without pods a gang that was suspended does not come back any more."""


class WatchedGangs:
    """Gangs of plain pods, handed over like jobs. For any thread; `look` hands over to `jobs` what has changed."""

    def __init__(self, jobs: WatchedJobs, clock: Callable[[], float]) -> None:
        self._jobs, self._clock = jobs, clock
        self._lock = threading.Lock()
        self._pods: dict[JobName, dict[str, Document]] = {}
        self._gangs: dict[str, JobName] = {}  # by the uid of the pod
        self._changed: dict[JobName, None] = {}
        self._known: dict[JobName, Job] = {}
        self._suspended: dict[JobName, float] = {}  # until when they may have no pods
        self._read_at = 0.0
        self._times_asked = self._times_read = 0  # to read all anew

    # Told by the watch of pods

    def listed(self, pods: Iterable[Pod]) -> None:
        """These are all pods."""
        there = {pod.metadata.uid: None for pod in pods}
        with self._lock:
            gone = [uid for uid in self._gangs if uid not in there]
        for uid in gone:
            self.gone(uid)

    def seen(self, pod: Pod) -> None:
        """A pod looks like this now."""
        gang, uid = gangs.gang_of(pod), pod.metadata.uid
        before = self._gangs.get(uid)
        if gang is None and before is None:
            return
        if gang is None or gang != before:
            self.gone(uid)
        if gang is not None:
            self._keep(gang, uid, pod)

    def gone(self, uid: str) -> None:
        """A pod was deleted."""
        with self._lock:
            gang = self._gangs.pop(uid, None)
            if gang is None:
                return
            pods = self._pods[gang]
            del pods[uid]
            if not pods:
                del self._pods[gang]
            self._changed[gang] = None

    # For the queues

    @property
    def has_changed(self) -> bool:
        """True if a gang is to be read."""
        return bool(self._changed)

    @property
    def is_due(self) -> bool:
        """True if `look` has something to do, now or by its clock."""
        return bool(self._changed or self._suspended or self._pods) or not self.are_read

    @property
    def are_read(self) -> bool:
        """False from `read_anew` until all gangs have been handed over again."""
        return self._times_read == self._times_asked

    def read_anew(self) -> None:
        """Have the next `look` read all gangs."""
        with self._lock:
            self._changed |= dict.fromkeys(self._pods)
            self._times_asked += 1

    def suspended(self, gang: JobName) -> None:
        """The pods of a gang are being deleted, so that they come back with the gate."""
        with self._lock:
            self._suspended[gang] = self._clock() + COMES_BACK_S

    def look(self) -> None:
        """Hand over the gangs that have changed. Cost O(their pods)."""
        now = self._clock()
        with self._lock:
            changed, self._changed = self._changed, {}
            times_asked = self._times_asked
            for gang in [each for each, until in self._suspended.items() if until <= now]:
                del self._suspended[gang]
                changed[gang] = None
            if now >= self._read_at + AGAIN_S:
                self._read_at = now
                changed |= dict.fromkeys(gang for gang in self._pods if self._jobs.has_problem(gang))
            found = {gang: list(self._pods.get(gang, {}).values()) for gang in changed}
            waits = {gang for gang in changed if gang in self._suspended}
        for gang, pods in found.items():
            self._hand_over(gang, pods, is_awaited=gang in waits)
        self._times_read = times_asked

    def _keep(self, gang: JobName, uid: str, pod: Pod) -> None:
        document = {"apiVersion": "v1", "kind": "Pod", **msgspec.to_builtins(pod)}
        with self._lock:
            pods = self._pods.setdefault(gang, {})
            known = pods.get(uid)
            if known is not None and is_older(pod.metadata.version, known["metadata"]["resourceVersion"]):
                return
            self._gangs[uid], pods[uid] = gang, document
            self._changed[gang] = None

    def _hand_over(self, gang: JobName, pods: list[Document], *, is_awaited: bool) -> None:
        try:
            job = gangs.read(gang, pods) if pods else None
        except UserError as error:
            log.warning("a gang cannot be read", extra={"fields": {"reason": error.message}})
            return
        job = self._as_known(gang, job, is_awaited=is_awaited)
        if job is None:
            self._known.pop(gang, None)
            self._jobs.forget(gang)
        else:
            self._jobs.keep(gang, job)

    def _as_known(self, gang: JobName, job: Job | None, *, is_awaited: bool) -> Job | None:
        """The gang with the place that it had; while it comes back, with the pods that it had as well."""
        known = self._known.get(gang)
        if known is not None and (job is None or job.ref == known.ref):
            if job is not None:
                job = replace(job, created_s=min(job.created_s, known.created_s))
            is_whole = job is not None and job.state is JobState.HELD and len(job.roles) >= len(known.roles)
            if is_awaited and not is_whole:
                return replace(known, state=JobState.HELD if job is None else job.state)
        if job is not None and job.comes_back:
            self._known[gang] = job
        with self._lock:
            self._suspended.pop(gang, None)
        return job


TREES = ObjectKind("scheduling.sigs.k8s.io", "elasticquotatrees", ("v1beta1",))

INVALID, IGNORED, MISSPELT = "InvalidQuotaTree", "IgnoredQuotaTree", "MisspeltQuotaTree"
"""Reasons of events at trees."""


class WatchedTree:
    """The ElasticQuotaTree that counts. Thread-safe.

    `tell` is called once with each object, message and reason that are news.
    """

    def __init__(self, wake: Callable[[], None], tell: Callable[[Object, str, str], None]) -> None:
        self._wake, self._tell = wake, tell
        self._lock = threading.Lock()
        self._objects: dict[tuple[str, str], Object] = {}
        self._told: dict[tuple[str, str], str] = {}
        self.tree: QuotaTree | None = None
        self.item: Object | None = None  # the object that counts, whether it keeps the rules or not

    def listed(self, kind: ObjectKind, items: list[Object]) -> None:
        """See `kube.watch.Told`."""
        with self._lock:
            self._objects = {names_of(item): item for item in items if _may_count(item)}
        self._read()

    def seen(self, kind: ObjectKind, item: Object) -> None:
        """See `kube.watch.Told`."""
        if _may_count(item):
            with self._lock:
                self._objects[names_of(item)] = item
            self._read()

    def gone(self, kind: ObjectKind, item: Object) -> None:
        """See `kube.watch.Told`."""
        if _may_count(item):
            with self._lock:
                self._objects.pop(names_of(item), None)
            self._read()

    def unserved(self, kind: ObjectKind) -> None:
        """See `kube.watch.Told`."""
        self.listed(kind, [])

    def why_ignored(self, item: Mapping[str, Any]) -> str:
        """Return why a tree of that namespace does not count, "" if it does."""
        first = names_of(item) if self.item is None else names_of(self.item)
        counts = f"only the oldest tree counts, which is {'/'.join(first)}: change that one, or delete it"
        return "" if first == names_of(item) else counts

    def _read(self) -> None:
        with self._lock:
            items = sorted(self._objects.values(), key=_age)
        tree, self.item = self.tree, items[0] if items else None
        news: list[tuple[Object, str, str]] = [(item, self.why_ignored(item), IGNORED) for item in items[1:]]
        try:
            tree = read_tree(items[0]) if items else None
            news += [(item, "\n".join(misspelt_in(item)), MISSPELT) for item in items[:1]]
        except UserError as error:
            news.append((items[0], error.message, INVALID))
        before, self._told = self._told, {names_of(item): text for item, text, _ in news}
        for item, text, reason in news:
            if text and text != before.get(names_of(item)):
                fields = {"name": names_of(item)[1], "reason": reason, "mistakes": text}
                log.warning("an ElasticQuotaTree is not as it should be", extra={"fields": fields})
                self._tell(item, text, reason)
        if tree != self.tree:
            self.tree = tree
            self._wake()


def _may_count(item: Object) -> bool:
    return names_of(item)[0] == NAMESPACE


def _age(item: Object) -> tuple[str, tuple[str, str]]:
    return item["metadata"].get("creationTimestamp", ""), names_of(item)


OTHER_NAMESPACE = f"it changes nothing: the queues of hived are those in namespace {QUEUE_NAMESPACE}"

MOST = 2**31 - 1


class QueueItem(msgspec.Struct, frozen=True):
    """A Queue object. `path` is the full name of its queue."""

    path: str
    uid: str
    namespace: str
    name: str
    spec: Mapping[str, Any]
    annotations: Mapping[str, str]


class Said(msgspec.Struct, frozen=True):
    """The words of one object; None for those that it leaves to the configuration."""

    policy: Policy | None = None
    priority: int = 0
    max_depth: int = 0


class QueueObjects:
    """The words of all Queue objects: of each the last ones without a mistake. Not thread-safe."""

    def __init__(self) -> None:
        self.said: dict[str, Said] = {}
        self._problems: dict[str, str] = {}

    def read(self, items: list[QueueItem]) -> list[tuple[QueueItem, str]]:
        """Take in how all objects look now. Of several for one queue the one counts that hived has made.

        Returns those that count nothing, with a reason that was not told yet: a mistake, or `IGNORED`.
        """
        said: dict[str, Said] = {}
        problems: dict[str, str] = {}
        news = []
        for item in sorted(items, key=lambda each: (each.path, each.name != queue_name(each.path), each.name)):
            try:
                if item.namespace != QUEUE_NAMESPACE:
                    problems[item.uid] = OTHER_NAMESPACE
                else:
                    said.setdefault(item.path, said_by(item))
            except UserError as error:
                problems[item.uid] = error.message
                if item.path in self.said:
                    said.setdefault(item.path, self.said[item.path])
            problem = problems.get(item.uid, "")
            if problem and self._problems.get(item.uid) != problem:
                news.append((item, problem))
        self.said, self._problems = said, problems
        return news

    def obeyed(self, rules: Rules) -> Rules:
        """The rules of a configuration, as changed by the objects."""
        queues = dict(rules.queues)
        for path, said in self.said.items():
            if said != Said():
                own = rules.of(path)
                policy = own.policy if said.policy is None else said.policy
                queues[path] = replace(own, policy=policy, priority=said.priority, max_depth=said.max_depth)
        return rules if queues == rules.queues else replace(rules, queues=queues)


def said_by(item: QueueItem) -> Said:
    """The words of one object. Raises UserError for words without a meaning."""
    policy = item.spec.get("queuePolicy")
    named = find_policy(policy) if isinstance(policy, str) and policy else None
    if named is None and policy not in (None, ""):
        raise UserError(f"spec.queuePolicy: found {policy!r:.60}; {EXPECTED}")
    priority = item.spec.get("priority")
    priority = 0 if priority is None else priority
    if not isinstance(priority, int) or isinstance(priority, bool) or abs(priority) > MOST:
        raise UserError(f"spec.priority: found {priority!r:.60}; expected a whole number")
    depth = item.annotations.get(MAX_DEPTH, "0")
    if not (depth.isascii() and depth.isdigit() and len(depth) <= len(str(MOST))):
        raise UserError(f"annotation {MAX_DEPTH}: found {depth!r:.60}; expected a whole number of at least 0")
    return Said(named, priority, int(depth))
