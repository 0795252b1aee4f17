"""A recorded run as it would have gone under other rules: decisions that differ, and groups that they move (rule 18.1).

The record says when pods come and end, and what happens to nodes; the decisions are taken anew. Where they differ from
the recorded ones, the new ones are followed:

- A pod that asks and can be bound starts then. It is not asked about again while it runs.
- A pod that the record starts and this world cannot is tried again whenever something becomes free, in the order of the
  recorded starts. It leaves where the record has its end.
- Victims that the record does not have leave at once; those that it has too leave where it says so. A victim that the
  record had not started yet waits again.
- A pod that is not evicted here still ends where the record says so, because its own end is unknown.
- A term that begins anew finds the pods of this world bound where they are here.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import msgspec

from hived.life.groups import without_place
from hived.scenario import Asked
from hived.values.decisions import Applied, Bind, Preempt, Wait
from hived.values.errors import UserError
from hived.values.events import Phase, PodDeleted
from hived.values.specs import ClusterSpec, PodRequest, Rules, WorkTimes
from hived_config.settings import value_of
from hived_extender.api.past import DecisionCount, MovedStart, OtherDecision, RecordedPast
from hived_extender.jobs.progress import write_time
from hived_extender.machine.recording import operations as ops
from hived_extender.machine.recording.operations import Operation, ScenarioError
from hived_extender.machine.recording.replay import (
    Bound,
    CoreScheduler,
    Json,
    Replay,
    StateDetail,
    asked_of,
    bound_pod,
    decision_result,
    error_result,
    request_of,
)

FREEING = (ops.Delete, ops.AddNodes, ops.AddNode, ops.UpdateNode, ops.DeleteNode, ops.LoseLeaves)
"""Lines after which there may be more room."""

Answer = Bind | Preempt | Wait | UserError
"""UserError: the question was refused."""


class OtherWorld(Replay[CoreScheduler]):
    """One run. Starts and evictions are told as they happen; `unfollowed_count` counts lines that are refused here."""

    def __init__(
        self,
        load_config: Callable[[str], ClusterSpec],
        on_start: Callable[[PodRequest], None],
        on_eviction: Callable[[str], None],
    ) -> None:
        """`load_config` reads a configuration by name, with the other rules; `on_eviction` gets the name of a group."""
        super().__init__(CoreScheduler, load_config, StateDetail.NONE)
        self.unfollowed_count = 0
        self._now_s: float | None = None
        self._on_start = on_start
        self._on_eviction = on_eviction
        self._moved: set[str] = set()  # started at another time than in the record, which they keep
        self._late: dict[str, Asked] = {}  # started by the record, and not here
        self._started: set[str] = set()  # by the record
        self._evicted: set[str] = set()  # here, after the record had started them
        self._returning: dict[str, Bound] | None = None  # since the term began, until it decides
        self._started_before: set[str] = set()

    # ---- questions

    def ask(self, operation: ops.Schedule, recorded: str, victims: frozenset[str]) -> Answer | None:
        """The answer to a question of the record; None if the pod runs here already, or was evicted.

        Parameters
        ----------
        recorded : the kind of the recorded answer
        victims : the groups that it has leave
        """
        scheduler = self._ready()
        if operation.now is not msgspec.UNSET:
            self._now_s = operation.now
        pod = operation.pod
        if operation.commit and recorded == "bind":
            self._started.add(pod)
        if pod in self._bound or pod in self._evicted:
            return None
        try:
            request = request_of(pod, operation.text)
            question = asked_of(operation, request, scheduler.node_names)
        except UserError as error:
            return error
        self._pods[pod] = request
        phase = Phase(operation.phase)
        answer = self._decide(scheduler, question, phase)
        if isinstance(answer, Bind) and (operation.commit or recorded != "bind"):
            self._carry_out(scheduler, request, answer, is_moved=not operation.commit)
        elif isinstance(answer, Preempt) and (recorded != "preempt" or phase is Phase.PREEMPTING):
            self._preempt(scheduler, question, victims)
        if pod in self._started and pod not in self._bound:
            self._late[pod] = question
        return answer

    def _decide(self, scheduler: CoreScheduler, question: Asked, phase: Phase = Phase.FILTERING) -> Answer:
        try:
            decision = scheduler.handle(question.at(phase, self._now_s))
        except UserError as error:
            return error
        assert not isinstance(decision, Applied)
        return decision

    def _carry_out(self, scheduler: CoreScheduler, request: PodRequest, found: Bind, *, is_moved: bool = True) -> None:
        self._times.pop(request.uid, None)
        self._moved.discard(request.uid)
        if is_moved:
            self._moved.add(request.uid)
            self._times[request.uid] = WorkTimes(self._now_s)
        if self._place(scheduler, Bound(request, found.bind_info), found.lazily_preempted):
            self._late.pop(request.uid, None)
            self._on_start(request)

    def _place(self, scheduler: CoreScheduler, bound: Bound, lazily_preempted: tuple[str, ...] = ()) -> bool:
        """Bind a pod; False if the state refuses it."""
        try:
            self._allocate(scheduler, bound, lazily_preempted, self._times.get(bound.request.uid))
        except UserError:
            self.unfollowed_count += 1
            return False
        return True

    def _preempt(self, scheduler: CoreScheduler, question: Asked, recorded: frozenset[str]) -> None:
        """Reserve the cells, let the victims leave that are not `recorded`, and bind if those were all."""
        answer = self._decide(scheduler, question, Phase.PREEMPTING)
        if isinstance(answer, Preempt):
            groups = self._groups_of(answer)
            for group in groups:
                self._on_eviction(group)
                if group not in recorded:
                    self._evict(scheduler, group)
            if recorded.intersection(groups):
                return
            answer = self._decide(scheduler, question)
        if isinstance(answer, Bind):
            self._carry_out(scheduler, question.pod, answer)

    def _groups_of(self, found: Preempt) -> list[str]:
        """The groups of the victims, each once; all groups of a gang that cannot go on without them are among these."""
        bound = (self._bound[uid] for uid in found.victims if uid in self._bound)
        return list(dict.fromkeys(one.request.spec.group.name for one in bound))

    def _evict(self, scheduler: CoreScheduler, group: str) -> None:
        for uid, bound in list(self._bound.items()):
            if bound.request.spec.group.name == group:
                scheduler.handle(PodDeleted(bound.request))
                del self._bound[uid]
                self._times.pop(uid, None)
                self._moved.discard(uid)
                if uid in self._started:
                    self._evicted.add(uid)
                    del self._pods[uid]

    # ---- facts

    def follow(self, operation: Operation) -> None:
        """Take in a line that is no question. Raises ScenarioError for one that no record of a service has."""
        match operation:
            case ops.Restart():
                raise ScenarioError("a restart is no line of a record of a service")
            case ops.New():
                self._begin(operation.config)
                return
            case ops.Plan() | ops.Inspect():
                return
            case ops.Delete() | ops.Split() | ops.Upgrade() | ops.Reserve():
                self._ready()
        try:
            self._apply(operation)
        except UserError:  # this world refuses the line
            self.unfollowed_count += 1
        if isinstance(operation, FREEING):
            self._try_late()

    def _begin(self, config: str) -> Json:
        known = () if self.scheduler is None else self.scheduler.node_names
        bound = {uid: self._as_written(one) for uid, one in self._bound.items()}
        scheduler = self._start(config)
        if scheduler.node_names != known:  # of which masks and offers are
            self._late = {uid: Asked(question.pod) for uid, question in self._late.items()}
        if self._returning is None:
            self._returning, self._started_before = {}, set()
        self._returning |= bound
        self._started_before |= self._started
        self._bound, self._started, self._pods = {}, set(), {}
        return {"kind": "ok"}

    def _as_written(self, bound: Bound) -> Bound:
        """A bound pod as its annotations say by now: a group that was preempted lazily has lost its place in its VC."""
        group = self.scheduler.state.groups.get(bound.request.spec.group.name) if self.scheduler is not None else None
        if group is None or group.virtual is not None:
            return bound
        return bound._replace(info=replace(bound.info, members=without_place(bound.info.members)))

    def _ready(self) -> CoreScheduler:
        """The scheduler, with the pods of this world in place: a new term has been told of the recorded ones by now."""
        if self.scheduler is None:
            raise ScenarioError("a question before any configuration")
        returning, self._returning = self._returning, None
        for uid, bound in (returning or {}).items():
            if uid not in self._started_before:  # else it has ended between the terms
                self._place(self.scheduler, bound)
        if returning is not None:
            for uid in [uid for uid in self._late if uid not in self._started]:
                del self._late[uid]
        return self.scheduler

    def _add_bound(self, scheduler: CoreScheduler, operation: ops.AddBound) -> Json:
        """A pod that the record finds bound is bound where it is in this world, if it runs here."""
        pod = operation.pod
        self._started.add(pod)
        if not (pod in self._bound or pod in self._evicted or pod in self._late):
            known = None if self._returning is None else self._returning.pop(pod, None)
            if known is None:
                known = bound_pod(operation)
                self._on_start(known.request)
            self._place(scheduler, known)
        return {"kind": "ok"}

    def _progress(self, scheduler: CoreScheduler, operation: ops.Progress) -> Json:
        if operation.pod not in self._bound:
            return {"kind": "unknownPod"}
        if operation.pod in self._moved:
            operation = msgspec.structs.replace(operation, started=self._times[operation.pod].started_s)
        return super()._progress(scheduler, operation)

    def _upgrade(self, scheduler: CoreScheduler, operation: ops.Upgrade) -> Json:
        """The pods of this world stay where they are."""
        bound = self._bound.copy()
        super()._upgrade(scheduler, operation)
        asked = {uid: one.request for uid, one in self._bound.items()}
        self._bound = {uid: one._replace(request=asked[uid]) for uid, one in bound.items()}
        return {"kind": "ok"}

    def _reserve(self, scheduler: CoreScheduler, operation: ops.Reserve) -> Json:
        if any(one.pod in self._bound for one in operation.pods):
            return {"kind": "ok"}
        return super()._reserve(scheduler, operation)

    def _delete(self, scheduler: CoreScheduler, pod: str) -> Json:
        self._late.pop(pod, None)
        self._started.discard(pod)
        self._evicted.discard(pod)
        self._moved.discard(pod)
        return super()._delete(scheduler, pod)

    # ---- pods that the record has started already

    def _try_late(self) -> None:
        """Try them in turn, each kind of request until it has to wait. Cost: a search for each kind of request and
        offer.
        """
        if not self._late or self._returning is not None:
            return
        scheduler = self._ready()
        waits = set()
        for question in list(self._late.values()):
            offered = None if question.offer is None else question.offer.nodes.tobytes()
            wanted = question.pod.spec.of_group(""), offered
            if wanted in waits or question.pod.uid not in self._late:
                continue
            answer = self._decide(scheduler, question)
            if isinstance(answer, Bind):
                self._carry_out(scheduler, question.pod, answer)
            elif isinstance(answer, Preempt):
                self._preempt(scheduler, question, frozenset())
            else:
                waits.add(wanted)


FIRST = 10
"""The number of decisions that are told one by one."""

_KINDS = {"error": "refused", "noalgo": "refused"}
_OTHERS = {"bind": "bind elsewhere", "preempt": "preempt others"}


def with_rules_of(recorded: ClusterSpec, new: ClusterSpec) -> ClusterSpec:
    """A recorded cluster with the rules of another one, and its VCs with the keys of those rules, by name."""
    vcs = {
        name: replace(vc, combines=like.combines, spares=like.spares)
        if (like := new.virtual_clusters.get(name)) is not None
        else vc
        for name, vc in recorded.virtual_clusters.items()
    }
    return replace(recorded, rules=new.rules, virtual_clusters=vcs)


def has_other_rules(recorded: ClusterSpec, new: ClusterSpec) -> bool:
    """Would a recorded cluster get other rules, or other keys of these, from another one?"""
    return with_rules_of(recorded, new) != recorded


class _Start(NamedTuple):
    """A job's first start: its VC, and number, place and time of the line."""

    vc: str
    number: int
    place: str
    when: str


_NEVER = _Start("", 0, "", "")


class Past:
    """The comparison of one run, line by line; `other` is the world of the other rules."""

    def __init__(
        self, run: str, load_config: Callable[[str], ClusterSpec], other: Callable[[ClusterSpec], ClusterSpec]
    ) -> None:
        """`load_config` reads a recorded configuration by name; `other` makes the one to compare it with."""
        self._run = run
        self._rules = (Rules.HIVED, Rules.HIVED)  # of the last configuration, and of the other
        self._load_config = load_config
        self._make_other = other
        self._recorded = Replay(CoreScheduler, self._load, StateDetail.NONE)
        self.other = OtherWorld(lambda name: other(load_config(name)), self._started, self._evicted)
        self._number, self._place, self._when = 0, "", ""
        self._question_count = 0
        self._kinds: Counter[tuple[str, str]] = Counter()
        self._first: dict[str, OtherDecision] = {}
        self._elsewhere: dict[str, OtherDecision] = {}
        self._old_starts: dict[str, _Start] = {}
        self._new_starts: dict[str, _Start] = {}
        self._old_victims: set[str] = set()
        self._new_victims: set[str] = set()
        self._jobs: dict[str, str] = {}  # by group, where that is not the job

    def compare(self, lines: Iterable[tuple[str, Operation]]) -> RecordedPast:
        """The comparison over all lines, each with its place in the record. Cost: that of two replays.

        Raises ScenarioError for a line that no record of a service has.
        """
        for self._place, operation in lines:
            result = self._recorded.record(self._number, operation)["result"]
            self._number += 1
            self._note_jobs(operation)
            if isinstance(operation, ops.Schedule):
                self._compare_answers(operation, result)
            else:
                self.other.follow(operation)
            if isinstance(operation, ops.AddBound) and result["kind"] == "ok":
                self._remember(operation.pod, self._old_starts)
        return self._report()

    # ---- line by line

    def _note_jobs(self, operation: Operation) -> None:
        """Take in the jobs that a line tells of its pods."""
        told = operation.pods if isinstance(operation, ops.Split) else [operation]
        for one in told:
            if isinstance(one, ops.Schedule | ops.AddBound | ops.SplitPod) and one.job is not msgspec.UNSET:
                request = self._recorded.request(one.pod)
                if request is not None:
                    self._jobs[request.spec.group.name] = one.job

    def _job(self, group: str) -> str:
        return self._jobs.get(group, group)

    def _load(self, name: str) -> ClusterSpec:
        spec = self._load_config(name)
        self._rules = spec.rules, self._make_other(spec).rules
        return spec

    def _compare_answers(self, operation: ops.Schedule, old: Json) -> None:
        if operation.now is not msgspec.UNSET:
            self._when = write_time(operation.now)
        pod = operation.pod
        request = self._recorded.request(pod)
        if operation.commit and old["kind"] == "bind":
            self._remember(pod, self._old_starts)
        victims = frozenset(self._groups(old))
        if operation.phase == "Preempting":
            self._old_victims |= victims
        answer = self.other.ask(operation, old["kind"], victims)
        if answer is None:
            return
        self._question_count += 1
        new = _result(answer)
        if not _is_same(old, new):
            self._note(pod, request, old, new)

    def _note(self, pod: str, request: PodRequest | None, old: Json, new: Json) -> None:
        was, now = _kind(old), _kind(new)
        now = _OTHERS.get(now, now) if was == now else now
        self._kinds[was, now] += 1
        told = self._elsewhere if now == _OTHERS["bind"] else self._first
        if len(told) < FIRST and request is not None and pod not in told:
            spec = request.spec
            had, gets = self._detail(old), self._detail(new)
            if had == gets:
                gets += " (other pods of its job elsewhere)"
            told[pod] = OtherDecision(
                self._place, pod, self._job(spec.group.name), spec.virtual_cluster, was, now, had, gets, self._when
            )

    def _detail(self, result: Json) -> str:
        """Return which devices, which victims or what reason."""
        match result["kind"]:
            case "bind":
                node, devices = _cells(result)[0]
                return f"{node}[{','.join(map(str, devices))}]"
            case "preempt":
                return ", ".join(dict.fromkeys(map(self._job, self._groups(result))))
            case _:
                return str(result.get("reason") or result.get("message", ""))

    def _groups(self, result: Json) -> list[str]:
        """The groups of the victims, each once."""
        requests = {uid: self._recorded.request(uid) or self.other.request(uid) for uid in _victims(result)}
        return list(dict.fromkeys(uid if one is None else one.spec.group.name for uid, one in requests.items()))

    def _remember(self, pod: str, starts: dict[str, _Start]) -> None:
        request = self._recorded.request(pod)
        if request is not None:
            self._start(request, starts)

    def _start(self, request: PodRequest, starts: dict[str, _Start]) -> None:
        spec = request.spec
        starts.setdefault(
            self._job(spec.group.name), _Start(spec.virtual_cluster, self._number, self._place, self._when)
        )

    def _started(self, request: PodRequest) -> None:
        self._start(request, self._new_starts)

    def _evicted(self, group: str) -> None:
        self._new_victims.add(group)

    # ---- all lines together

    def _report(self) -> RecordedPast:
        moved = sorted(self._moved())
        old_victims, new_victims = ({*map(self._job, groups)} for groups in (self._old_victims, self._new_victims))
        return RecordedPast(
            self._run,
            value_of(self._rules[0]),
            value_of(self._rules[1]),
            self._number,
            self._question_count,
            [DecisionCount(old, new, count) for (old, new), count in sorted(self._kinds.items())],
            self._most_telling(),
            [start for _, is_earlier, start in moved if is_earlier],
            [start for _, is_earlier, start in moved if not is_earlier],
            sorted(new_victims - old_victims),
            sorted(old_victims - new_victims),
            self.other.unfollowed_count,
        )

    def _most_telling(self) -> list[OtherDecision]:
        """The first decisions that differ, one for each pod; first those that are more than another place."""
        places = [one for pod, one in self._elsewhere.items() if pod not in self._first]
        return [*self._first.values(), *places][:FIRST]

    def _moved(self) -> Iterator[tuple[str, bool, MovedStart]]:
        """The jobs that start at other lines, by name, and whether that is earlier."""
        old_starts, new_starts = self._old_starts, self._new_starts
        for job in old_starts.keys() | new_starts.keys():
            old, new = old_starts.get(job), new_starts.get(job)
            if old is not None and new is not None and old.number == new.number:
                continue
            is_earlier = old is None or (new is not None and new.number < old.number)
            was, now = old or _NEVER, new or _NEVER
            yield job, is_earlier, MovedStart(job, was.vc or now.vc, was.place, now.place, was.when, now.when)


def _result(answer: Answer) -> Json:
    return decision_result(answer) if isinstance(answer, Bind | Preempt | Wait) else error_result(answer)


def _kind(result: Json) -> str:
    kind: str = result["kind"]
    return _KINDS.get(kind, kind)


def _victims(result: Json) -> list[str]:
    """The uids of the victims, none of an answer that is no preemption."""
    return [uid for victims in result.get("victimsByNode", {}).values() for uid in victims]


def _cells(result: Json) -> list[tuple[str, tuple[int, ...]]]:
    """The node and the devices of the pod, and then of each pod of its group."""
    bind = result["bind"]
    pods = [pod for member in bind["affinityGroupBindInfo"] for pod in member["podPlacements"]]
    others = [(pod["physicalNode"], tuple(pod["physicalLeafCellIndices"])) for pod in pods]
    return [(bind["node"], tuple(bind["leafCellIsolation"])), *others]


def _is_same(old: Json, new: Json) -> bool:
    """Do two answers have the same cells for the whole group, or the same victims?"""
    if old["kind"] != new["kind"]:
        return False
    if old["kind"] == "bind":
        return _cells(old) == _cells(new)
    return set(_victims(old)) == set(_victims(new))
