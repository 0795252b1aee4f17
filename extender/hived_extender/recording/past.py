"""A recorded run under its own rules and others: decisions that differ, and groups that they move (rule 18.1)."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import msgspec

from hived.values.decisions import Bind, Preempt, Wait
from hived.values.specs import ClusterSpec, PodRequest, Rules
from hived_config.settings import value_of
from hived_extender.api.past import DecisionCount, MovedStart, OtherDecision, RecordedPast
from hived_extender.pods.progress import write_time
from hived_extender.recording import operations as ops
from hived_extender.recording.operations import Operation
from hived_extender.recording.other_world import Answer, OtherWorld
from hived_extender.recording.replay import CoreScheduler, Replay, StateDetail
from hived_extender.recording.traces import Json, decision_result, error_result

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
    """Whether a recorded cluster would get other rules, or other keys of these, from another one."""
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
    """Whether two answers are the same but for words: the same cells for the whole group, or the same victims."""
    if old["kind"] != new["kind"]:
        return False
    if old["kind"] == "bind":
        return _cells(old) == _cells(new)
    return set(_victims(old)) == set(_victims(new))
