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
import numpy as np

from hived.life.allocation import split_bind_info
from hived.life.groups import without_place
from hived.scenario import Asked
from hived.values.decisions import Applied, Bind, Preempt, Wait
from hived.values.errors import InvariantError, UserError
from hived.values.events import (
    GangChanged,
    GroupReserved,
    GroupSplit,
    GroupsUpgraded,
    Phase,
    PodAllocated,
    PodDeleted,
    PodProgressed,
)
from hived.values.specs import BindInfo, ClusterSpec, PodRequest, Rules, WorkTimes
from hived_config.settings import value_of
from hived_extender.api.past import DecisionCount, MovedStart, OtherDecision, RecordedPast
from hived_extender.jobs import annotations
from hived_extender.jobs.bind_info import bind_info
from hived_extender.jobs.progress import write_time
from hived_extender.recording import operations as ops
from hived_extender.recording.operations import Operation, ScenarioError
from hived_extender.recording.replay import (
    CoreScheduler,
    Json,
    Replay,
    StateDetail,
    asked_of,
    decision_result,
    error_result,
    node_events,
    request_of,
    requests_of,
)

Answer = Bind | Preempt | Wait | UserError
"""UserError: the question was refused."""


class _Bound(NamedTuple):
    """A bound pod; one that `is_moved` has started at another time than in the record, and keeps that start."""

    request: PodRequest
    info: BindInfo
    times: WorkTimes | None = None
    is_moved: bool = False


class OtherWorld:
    """One run. Starts and evictions are told as they happen; `unfollowed_count` counts lines that are refused here."""

    def __init__(
        self,
        load_config: Callable[[str], ClusterSpec],
        on_start: Callable[[PodRequest], None],
        on_eviction: Callable[[str], None],
    ) -> None:
        """`load_config` reads a configuration by name, with the other rules; `on_eviction` gets the name of a group."""
        self.scheduler: CoreScheduler | None = None
        self.unfollowed_count = 0
        self._now_s: float | None = None
        self._bound: dict[str, _Bound] = {}
        self._load_config = load_config
        self._on_start = on_start
        self._on_eviction = on_eviction
        self._seen: dict[str, PodRequest] = {}  # neither gone nor bound
        self._late: dict[str, Asked] = {}  # started by the record, and not here
        self._started: set[str] = set()  # by the record
        self._evicted: set[str] = set()  # here, after the record had started them
        self._returning: dict[str, _Bound] | None = None  # since the term began, until it decides
        self._started_before: set[str] = set()

    def check(self) -> None:
        """Raise InvariantError if the state breaks a rule. Cost O(cells)."""
        if self.scheduler is not None:
            self.scheduler.check()

    def _place(self, bound: _Bound, lazily_preempted: tuple[str, ...] = ()) -> bool:
        """Bind a pod; False if the state refuses it."""
        if self.scheduler is None:
            return False
        try:
            self.scheduler.handle(PodAllocated(bound.request, bound.info, lazily_preempted, bound.times))
        except UserError:
            self.unfollowed_count += 1
            return False
        self._bound[bound.request.uid] = bound
        return True

    def _groups_of(self, found: Preempt) -> list[str]:
        """The groups of the victims, each once; all groups of a gang that cannot go on without them are among these."""
        uids = [uid for victims in found.victims_by_node.values() for uid in victims]
        return list(dict.fromkeys(self._bound[uid].request.spec.group.name for uid in uids if uid in self._bound))

    def _progress(self, operation: ops.Progress) -> None:
        bound = self._bound.get(operation.pod)
        if bound is None or self.scheduler is None:
            return
        started = bound.times.started_s if bound.is_moved and bound.times is not None else operation.started
        times = WorkTimes(started, operation.saved)
        self.scheduler.handle(PodProgressed(bound.request, times))
        self._bound[operation.pod] = bound._replace(times=times)

    def _split(self, scheduler: CoreScheduler, operation: ops.Split) -> None:
        parts, slots = requests_of(operation.pods), operation.slots_of_pods
        held = {uid: one for uid, one in self._bound.items() if one.request.spec.group.name == operation.group}
        scheduler.handle(GroupSplit(operation.group, tuple(parts.values()), slots))
        infos: list[BindInfo] = []
        for uid, one in held.items():
            infos = split_bind_info(one.info, [*parts.values()], slots)
            del self._bound[uid]
        for (uid, request), info in zip(parts.items(), infos, strict=False):
            self._bound[uid] = _Bound(request, info, *(held[uid][2:] if uid in held else ()))

    def _upgrade(self, scheduler: CoreScheduler, operation: ops.Upgrade) -> None:
        pods = requests_of(operation.pods)
        scheduler.handle(GroupsUpgraded(tuple(pods.values()), np.array(operation.own, np.int32)))
        for uid, request in pods.items():
            if uid in self._bound:
                self._bound[uid] = self._bound[uid]._replace(request=request)

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
            request = request_of(pod, {annotations.SCHEDULING_SPEC: operation.text})
            question = asked_of(operation, request, scheduler.node_names)
        except UserError as error:
            return error
        self._seen[pod] = request
        phase = Phase(operation.phase)
        answer = _decide(scheduler, question, phase, self._now_s)
        if isinstance(answer, Bind) and (operation.commit or recorded != "bind"):
            self._start(question.pod, answer, is_moved=not operation.commit)
        elif isinstance(answer, Preempt) and (recorded != "preempt" or phase is Phase.PREEMPTING):
            self._preempt(scheduler, question, victims)
        if pod in self._started and pod not in self._bound:
            self._late[pod] = question
        return answer

    def _start(self, request: PodRequest, found: Bind, *, is_moved: bool = True) -> None:
        times = WorkTimes(self._now_s) if is_moved else None
        if self._place(_Bound(request, found.bind_info, times, is_moved), found.lazily_preempted):
            self._seen.pop(request.uid, None)
            self._late.pop(request.uid, None)
            self._on_start(request)

    def _preempt(self, scheduler: CoreScheduler, question: Asked, recorded: frozenset[str]) -> None:
        """Reserve the cells, let the victims leave that are not `recorded`, and bind if those were all."""
        answer: Answer = _decide(scheduler, question, Phase.PREEMPTING, self._now_s)
        if isinstance(answer, Preempt):
            groups = self._groups_of(answer)
            for group in groups:
                self._on_eviction(group)
            for group in groups:
                if group not in recorded:
                    self._evict(scheduler, group)
            if recorded.intersection(groups):
                return
            answer = _decide(scheduler, question, Phase.FILTERING, self._now_s)
        if isinstance(answer, Bind):
            self._start(question.pod, answer)

    def _evict(self, scheduler: CoreScheduler, group: str) -> None:
        for uid, bound in list(self._bound.items()):
            if bound.request.spec.group.name == group:
                scheduler.handle(PodDeleted(bound.request))
                del self._bound[uid]
                if uid in self._started:
                    self._evicted.add(uid)
                else:
                    self._seen[uid] = bound.request

    # ---- facts

    def follow(self, operation: Operation) -> None:
        """Take in a line that is no question. Raises ScenarioError for one that no record of a service has."""
        match operation:
            case ops.New():
                self._begin(operation.config)
            case ops.AddBound():
                self._adopt(operation)
            case ops.Delete():
                self._delete(operation.pod)
            case ops.Progress():
                self._progress(operation)
            case ops.Split():
                self._tolerant(lambda: self._split(self._ready(), operation))
            case ops.Upgrade():
                self._tolerant(lambda: self._upgrade(self._ready(), operation))
            case ops.Gang():
                if self.scheduler is not None:
                    self.scheduler.handle(GangChanged(operation.told))
            case ops.Reserve():
                self._tolerant(lambda: self._reserve(operation))
            case ops.Restart():
                raise ScenarioError("a restart is no line of a record of a service")
            case ops.Plan() | ops.Inspect():
                pass
            case _:
                if self.scheduler is not None:
                    for event in node_events(operation, self.scheduler.node_names):
                        self.scheduler.handle(event)
                    if self._returning is None:
                        self._try_late()

    def _begin(self, config: str) -> None:
        known = () if self.scheduler is None else self.scheduler.node_names
        bound = {uid: self._as_written(one) for uid, one in self._bound.items()}
        self.scheduler = CoreScheduler(self._load_config(config))
        if self.scheduler.node_names != known:  # of which masks and offers are
            self._late = {uid: Asked(question.pod) for uid, question in self._late.items()}
        if self._returning is None:
            self._returning, self._started_before = {}, set()
        self._returning |= bound
        self._started_before |= self._started
        self._bound, self._started, self._seen = {}, set(), {}

    def _as_written(self, bound: _Bound) -> _Bound:
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
                self._place(bound)
        if returning is not None:
            for uid in [uid for uid in self._late if uid not in self._started]:
                del self._late[uid]
        return self.scheduler

    def _adopt(self, operation: ops.AddBound) -> None:
        """A pod that the record finds bound is bound where it is in this world, if it runs here."""
        pod = operation.pod
        self._started.add(pod)
        if self.scheduler is None or pod in self._bound or pod in self._evicted or pod in self._late:
            return
        known = None if self._returning is None else self._returning.pop(pod, None)
        if known is None:
            text = bytes(operation.spec).decode()
            request = request_of(pod, {annotations.SCHEDULING_SPEC: text})
            known = _Bound(request, bind_info({annotations.BIND_INFO: operation.bind_info}, request.label))
            self._on_start(request)
        self._place(known)

    def _delete(self, pod: str) -> None:
        scheduler = self._ready()
        bound = self._bound.pop(pod, None)
        request = bound.request if bound is not None else self._seen.get(pod)
        for known in (self._seen, self._late):
            known.pop(pod, None)
        self._started.discard(pod)
        self._evicted.discard(pod)
        if request is not None:
            scheduler.handle(PodDeleted(request))
            self._try_late()

    def _reserve(self, operation: ops.Reserve) -> None:
        scheduler = self._ready()
        pods = {uid: pod for uid, pod in requests_of(operation.pods).items() if uid not in self._bound}
        if len(pods) < len(operation.pods):
            return
        info = bind_info({annotations.BIND_INFO: operation.bind_info})
        scheduler.handle(GroupReserved(tuple(pods.values()), info, operation.may_be_free is True))
        self._seen |= pods

    def _tolerant(self, step: Callable[[], None]) -> None:
        """A line that this world refuses is left out."""
        try:
            step()
        except UserError:
            self.unfollowed_count += 1

    # ---- pods that the record has started already

    def _try_late(self) -> None:
        """Try them in turn, each kind of request until it has to wait. Cost: a search for each kind of request and
        offer.
        """
        if not self._late:
            return
        scheduler = self._ready()
        waits = set()
        for question in list(self._late.values()):
            offered = None if question.offer is None else question.offer.nodes.tobytes()
            wanted = question.pod.spec.of_group(""), offered
            if wanted in waits or question.pod.uid not in self._late:
                continue
            answer = _decide(scheduler, question, Phase.FILTERING, self._now_s)
            if isinstance(answer, Bind):
                self._start(question.pod, answer)
            elif isinstance(answer, Preempt):
                self._preempt(scheduler, question, frozenset())
            else:
                waits.add(wanted)


def _decide(scheduler: CoreScheduler, question: Asked, phase: Phase, now_s: float | None) -> Answer:
    try:
        decision = scheduler.handle(question.at(phase, now_s))
    except UserError as error:
        return error
    if isinstance(decision, Applied):
        raise InvariantError("a request to schedule was answered as a fact")
    return decision


FIRST = 10
"""How many decisions are told one by one."""

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
    """A group's first start: its VC, and number, place and time of the line."""

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
        self._group_of: dict[str, str] = {}  # by uid
        self._question_count = 0
        self._kinds: Counter[tuple[str, str]] = Counter()
        self._first: dict[str, OtherDecision] = {}
        self._elsewhere: dict[str, OtherDecision] = {}
        self._old_starts: dict[str, _Start] = {}
        self._new_starts: dict[str, _Start] = {}
        self._old_victims: set[str] = set()
        self._new_victims: set[str] = set()

    def compare(self, lines: Iterable[tuple[str, Operation]]) -> RecordedPast:
        """The comparison over all lines, each with its place in the record. Cost: that of two replays.

        Raises ScenarioError for a line that no record of a service has.
        """
        for self._place, operation in lines:
            result = self._recorded.record(self._number, operation)["result"]
            self._number += 1
            if isinstance(operation, ops.Schedule):
                self._compare_answers(operation, result)
            else:
                self.other.follow(operation)
            if isinstance(operation, ops.AddBound) and result["kind"] == "ok":
                self._remember(operation.pod, self._old_starts)
        return self._report()

    # ---- line by line

    def _load(self, name: str) -> ClusterSpec:
        spec = self._load_config(name)
        self._rules = spec.rules, self._make_other(spec).rules
        return spec

    def _compare_answers(self, operation: ops.Schedule, old: Json) -> None:
        if operation.now is not msgspec.UNSET:
            self._when = write_time(operation.now)
        pod = operation.pod
        request = self._recorded.request(pod)
        if request is not None:
            self._group_of[pod] = request.spec.group.name
        if operation.commit and old["kind"] == "bind":
            self._remember(pod, self._old_starts)
        victims = frozenset(self._group_of.get(uid, uid) for uid in _victims(old))
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
                gets += " (others of its group elsewhere)"
            told[pod] = OtherDecision(
                self._place, pod, spec.group.name, spec.virtual_cluster, was, now, had, gets, self._when
            )

    def _detail(self, result: Json) -> str:
        """Which devices, which victims or what reason."""
        match result["kind"]:
            case "bind":
                node, devices = _cells(result)[0]
                return f"{node}[{','.join(map(str, devices))}]"
            case "preempt":
                return ", ".join(dict.fromkeys(self._group_of.get(uid, uid) for uid in _victims(result)))
            case _:
                return str(result.get("reason") or result.get("message", ""))

    def _remember(self, pod: str, starts: dict[str, _Start]) -> None:
        request = self._recorded.request(pod)
        if request is not None:
            self._group_of[pod] = request.spec.group.name
            self._start(request, starts)

    def _start(self, request: PodRequest, starts: dict[str, _Start]) -> None:
        spec = request.spec
        starts.setdefault(spec.group.name, _Start(spec.virtual_cluster, self._number, self._place, self._when))

    def _started(self, request: PodRequest) -> None:
        self._start(request, self._new_starts)

    def _evicted(self, group: str) -> None:
        self._new_victims.add(group)

    # ---- all lines together

    def _report(self) -> RecordedPast:
        moved = sorted(self._moved())
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
            sorted(self._new_victims - self._old_victims),
            sorted(self._old_victims - self._new_victims),
            self.other.unfollowed_count,
        )

    def _most_telling(self) -> list[OtherDecision]:
        """The first decisions that differ, one for each pod; first those that are more than another place."""
        places = [one for pod, one in self._elsewhere.items() if pod not in self._first]
        return [*self._first.values(), *places][:FIRST]

    def _moved(self) -> Iterator[tuple[str, bool, MovedStart]]:
        """The groups that start at other lines, by name, and whether that is earlier."""
        old_starts, new_starts = self._old_starts, self._new_starts
        for group in old_starts.keys() | new_starts.keys():
            old, new = old_starts.get(group), new_starts.get(group)
            if old is not None and new is not None and old.number == new.number:
                continue
            is_earlier = old is None or (new is not None and new.number < old.number)
            was, now = old or _NEVER, new or _NEVER
            yield group, is_earlier, MovedStart(group, was.vc or now.vc, was.place, now.place, was.when, now.when)


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
