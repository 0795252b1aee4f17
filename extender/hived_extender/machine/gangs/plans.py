"""Plans: the waiting pods of gangs that start together, or the reasons why they cannot.

A plan follows from existing pods alone, in any order of arrival, so a restart finds the same. Rule 26.4 says which set
starts. Pods without cells need room by Kubernetes' rules, such as CPU. Equal pods are interchangeable, so a set is a
number for each kind. A gang never runs if its smallest sufficient pods never can.
The search tries the smallest pods first: the largest set if pods differ in size alone. Other tries look for older or
larger ones, most of each kind first; the best set so far wins.
"""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import msgspec

from hived.values.errors import UserError
from hived.values.specs import GroupSpec, MemberSpec, PodRequest
from hived_config.words import counted
from hived_extender.jobs.asks import Ask
from hived_extender.jobs.kinds import kueue
from hived_extender.jobs.kinds.description import GangKey, MatchPolicy, ObjectRef
from hived_extender.kube_rules.selectors import CPU
from hived_extender.machine.gangs.gang import Ended, Gang, Terms, age, followers_of, has_only_led, is_ready, task_of
from hived_extender.machine.pods import PodRecord, PodState

MOST_TRIES = 48

Members = list[PodRecord]


class Need(msgspec.Struct, frozen=True):
    """At least `count` pods of a gang must start together; of one task, if `of_task`."""

    gang: GangKey
    count: int
    task: str | None = None
    of_task: bool = False

    def has(self, record: PodRecord) -> bool:
        """True if the pod counts for this need."""
        return record.gang == self.gang and (not self.of_task or task_of(record) == self.task)


class Choices(msgspec.Struct, frozen=True, eq=False):
    """The pods that could start, in order, and the needs they must meet."""

    ready: tuple[PodRecord, ...]
    needs: tuple[Need, ...]

    def least(self, preferred: Sequence[PodRecord]) -> Members:
        """The first of the preferred pods that are enough, by age. All preferred pods must be enough."""
        chosen: dict[str, PodRecord] = {}
        for need in sorted(self.needs, key=lambda one: not one.of_task):  # of tasks first: they count for the whole too
            have = sum(need.has(record) for record in chosen.values())
            for record in preferred:
                if have >= need.count:
                    break
                if record.uid not in chosen and need.has(record):
                    chosen[record.uid] = record
                    have += 1
        return sorted(chosen.values(), key=age)

    def are_enough(self, members: Sequence[PodRecord]) -> bool:
        """True if every need is met."""
        return all(sum(need.has(record) for record in members) >= need.count for need in self.needs)

    def smallest(self) -> Members:
        """The smallest sufficient pods, older ones first."""
        return self.least(sorted(self.ready, key=_size))

    def best(self, fits: Callable[[Members], bool], unlikely: Callable[[PodRecord], bool]) -> Members:
        """The pods that start together, in order (rule 26.4).

        `fits` is true if there is room for pods; `unlikely` is true of pods without any known node.
        """
        pool = [record for record in self.ready if not unlikely(record)]
        if not self.are_enough(pool):
            pool = list(self.ready)
        smallest = self.least(sorted(pool, key=_size))
        if len(smallest) == len(pool) or len(set(map(kind_of, pool))) == 1:
            return smallest
        search = _Search(self, pool, fits)
        if search.fits(pool):
            return self.least(pool)
        return search.run() or smallest


class _Search:
    """One search. `others` ask for nothing and only fill up the minimum."""

    def __init__(self, choices: Choices, pool: Members, fits: Callable[[Members], bool]) -> None:
        self._choices = choices
        self._ask = fits
        self._tries = 0
        self._known: dict[frozenset[str], bool] = {}
        self._pool = pool
        self._sized = [record for record in pool if takes_room(record)]
        self._others = [record for record in pool if not takes_room(record)]
        self._places = {record.uid: place for place, record in enumerate(pool)}
        kinds: dict[object, Members] = {}
        for record in self._sized:
            kinds.setdefault(kind_of(record), []).append(record)
        self._kinds = list(kinds.values())
        self._best: Members | None = None

    def fits(self, members: Members) -> bool:
        """True if there is room for these pods; False after too many tries."""
        sized = [record for record in members if takes_room(record)]
        key = frozenset(record.uid for record in sized)
        if key not in self._known:
            if self._tries >= MOST_TRIES:
                return False
            self._tries += 1
            self._known[key] = not sized or self._ask(sorted(sized, key=age))
        return self._known[key]

    def run(self) -> Members | None:
        """Search the best set that fits, None if there is none."""
        ascending = sorted(self._sized, key=_size)
        self._note(ascending[: self._most(ascending, [])])
        if self._best is None:
            self._note_least(ascending)
        self._walk(0, [])
        return None if self._best is None else sorted(self._filled(self._best), key=age)

    def _note_least(self, ascending: Members) -> None:
        """Try the smallest pods that meet the needs of tasks, which need not be the first of a row."""
        least = self._choices.least([*ascending, *self._others])
        if self.fits(least):
            self._note([record for record in least if takes_room(record)])

    def _most(self, row: Members, chosen: Members) -> int:
        """The most pods of a row that fit beside the chosen ones."""
        low, high = 0, len(row)
        if self.fits([*chosen, *row]):
            return high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.fits([*chosen, *row[:middle]]) else (low, middle)
        return low

    def _walk(self, number: int, chosen: Members) -> None:
        rest = sum(map(len, self._kinds[number:]))
        if self._best is not None and len(chosen) + rest < len(self._best):
            return
        if number == len(self._kinds):
            self._note(chosen)
            return
        row = self._kinds[number]
        for count in range(self._most(row, chosen), -1, -1):
            if self._tries >= MOST_TRIES:
                return
            self._walk(number + 1, [*chosen, *row[:count]])

    def _note(self, chosen: Members) -> None:
        """Record fitting pods as the best so far, if they are enough."""
        if self._choices.are_enough([*chosen, *self._others]) and (
            self._best is None or self._rank(chosen) < self._rank(self._best)
        ):
            self._best = list(chosen)

    def _rank(self, chosen: Members) -> tuple[int, list[int]]:
        return -len(chosen), sorted(self._places[record.uid] for record in chosen)

    def _filled(self, chosen: Members) -> Members:
        """Add as many pods that ask for nothing as are needed."""
        found = list(chosen)
        for need in sorted(self._choices.needs, key=lambda one: not one.of_task):
            have = sum(need.has(record) for record in found)
            for record in self._others:
                if have >= need.count:
                    break
                if need.has(record) and record not in found:
                    found.append(record)
                    have += 1
        return found


def _leaves(record: PodRecord) -> int:
    return record.ask.leaf_cell_count if record.ask is not None else 0


def takes_room(record: PodRecord) -> bool:
    """True if a pod asks for cells, or for any other resource of Kubernetes."""
    return bool(_leaves(record) or record.ruled is not None)


def _size(record: PodRecord) -> tuple[int, int, int, tuple[str, str, str]]:
    asked = dict(record.ruled.demands.requests) if record.ruled is not None else {}
    return _leaves(record), asked.get(CPU, 0), asked.get("memory", 0), age(record)


def kind_of(record: PodRecord) -> object:
    """A key of interchangeable pods."""
    return record.gang, task_of(record), record.ask, record.ruled.demands if record.ruled is not None else None


NAMED = 8
"""Pods that a message names; of the others it says how many there are."""

MOST_ABSENT = 2**14
"""Pods of gangs that start together and that are created after their leaders: each has a request of its own as soon as
these may start.
"""

_NUMBERED = re.compile(r"(.*[-._]|)(0|[1-9][0-9]{0,9})")
"""The name of a pod that has a number at its end. Names that Kubernetes makes up may end in digits as well."""


class Part(msgspec.Struct, frozen=True):
    """Pods of a round that ask for the same kind of cells: one request of the core, with a slot per member.

    Further slots are for pods created only once a member has its node: `absent` has them, with the first member.
    Nothing is held for them once the round has started.
    """

    request: PodRequest
    members: tuple[PodRecord, ...]
    absent: tuple[PodRequest, ...] = ()

    @property
    def slots(self) -> tuple[PodRecord, ...]:
        """The pod whose offered nodes each slot uses, in order."""
        return self.members + self.members[:1] * len(self.absent)


class Round(msgspec.Struct, frozen=True, eq=False):
    """Pods that start together (rule 26.3): `members` in order, including those without devices; `parts` of the others.

    `spare` has the uids of pods that the gang could do without.
    """

    key: GangKey
    name: str
    members: tuple[PodRecord, ...]
    parts: tuple[Part, ...]
    uids: frozenset[str]
    spare: frozenset[str] = frozenset()

    @property
    def doubted(self) -> list[PodRecord]:
        """Members about which kube-scheduler did not ask when placed; it may find no node for them."""
        return [record for record in self.members if record.offer.is_doubted]


class Plan(msgspec.Struct, eq=False):
    """The next step of the waiting pods of gangs that start together.

    At most one is set of `refusal`, a mistake in the pods; `forming`, the missing pods; and `round`. Other pods wait
    for the round; without one, each pod may start alone. `choices` has all candidates of the round, if there are more;
    the chosen ones replace `round` (`chosen_at` is for the chooser). `is_told` marks an announced plan.
    """

    keys: tuple[GangKey, ...]
    refusal: str = ""
    forming: str = ""
    round: Round | None = None
    choices: Choices | None = None
    chosen_at: Hashable = None
    is_told: bool = False


def make_plan(keys: tuple[GangKey, ...], gangs: Mapping[GangKey, Gang]) -> Plan:
    """The plan for gangs that start together, some of which may have no pods. Cost O(pods x log)."""
    chosen: list[PodRecord] = []
    followers: dict[str, int] = {}
    missing: list[str] = []
    ready: list[PodRecord] = []
    needs: list[Need] = []
    together = set(keys)
    try:
        for key in keys:
            gang = gangs.get(key)
            if gang is None:
                others = listed([str(other) for other in islice(keys, NAMED + 1) if other != key], len(keys) - 1)
                missing.append(f"rejected by podgroup/{key}, which starts together with {others}: no pods created")
                continue
            missing += [
                f"rejected by podgroup/{other} of another namespace: none of its pods has {key} among its groups"
                for other in sorted(gang.lists.keys() - together)
            ]
            terms = gang.terms()
            if terms.kube_priority is not None:
                _check_policies(gang)
            led = followers_of(gang.present(), max(terms.minimum, sum(terms.task_minimums.values())))
            choices, lack = (None, "") if led else _choices(gang, terms)
            members = _led(gang) if led else [] if choices is None else choices.smallest()
            if choices is not None:
                ready.extend(choices.ready)
                needs.extend(choices.needs)
            followers |= led
            if lack:
                _check_namespaces(gang, terms)
                missing.append(lack)
            chosen.extend(members)
        _check_absent(keys, sum(followers.values()))
        asks = [(record, record.ask) for key in keys if key in gangs for record in gangs[key].present()]
        _check_agreement(keys[0], [(record, ask) for record, ask in asks if ask and ask.leaf_cell_count])
    except UserError as error:
        return Plan(keys, refusal=error.message)
    if missing:
        return Plan(keys, forming=_in_short(missing[:NAMED], len(missing), separator="; "))
    if not chosen:
        return Plan(keys)
    has_others = len(ready) > len(chosen) and not followers
    return Plan(
        keys,
        round=round_of(chosen, followers),
        choices=Choices(tuple(ready), tuple(needs)) if has_others else None,
    )


def round_of(members: Sequence[PodRecord], followers: Mapping[str, int], needed: Sequence[PodRecord] = ()) -> Round:
    """A round of these pods, in order. `followers` as in `_parts`; all but `needed` are spare, if given."""
    first = next(record.gang for record in members if record.gang is not None)
    name = f"podgroup/{first}"
    uids = frozenset(record.uid for record in members)
    parts = _parts(name, first, members, followers)
    spare = uids - {record.uid for record in needed} if needed else frozenset[str]()
    return Round(first, name, tuple(members), tuple(parts), uids, spare)


def _check_absent(keys: Sequence[GangKey], count: int) -> None:
    """Raise UserError if leaders stand for more pods than MOST_ABSENT."""
    if count > MOST_ABSENT:
        names = listed([f"podgroup/{key}" for key in keys])
        raise UserError(
            f"{names} lacks {count} pods that are created after their leaders, at most {MOST_ABSENT} are "
            "possible: set a lower minimum"
        )


def _check_namespaces(gang: Gang, terms: Terms) -> None:
    """Raise UserError for a gang with pods in two namespaces: two gangs that are never complete."""
    count = len(gang.present())
    for other in [other for key, other in sorted(gang.namesakes.items()) if key != gang.key]:
        try:
            is_same = other.terms().minimum == terms.minimum
        except UserError:
            continue
        others = len(other.present())
        if is_same and others < terms.minimum <= count + others:
            raise UserError(
                f"podgroup/{gang.key} has {count} of {terms.minimum} pods, and namespace {other.key.namespace} has "
                f"{counted(others, 'pod')} of a podgroup {gang.key.name} too: a gang is of one namespace; create "
                "all its pods in one, or give the two different names"
            )


def _led(gang: Gang) -> list[PodRecord]:
    """The waiting pods that start with their leaders (rule 26.9): all existing ones."""
    return [record for record in gang.present() if not record.state.is_placed]


def _choices(gang: Gang, terms: Terms) -> tuple[Choices | None, str]:
    """The waiting pods of a round (rule 26.3), None if each may start alone; or the missing pods as text."""
    members = gang.present()
    ready = [record for record in members if is_ready(record)]
    if terms.is_missing:
        return None, f"rejected by podgroup/{gang.key}: there is no {terms.source}"
    placed = [record for record in members if record.state.is_placed]
    succeeded = _succeeded(gang, terms)
    policy = terms.match_policy
    has_begun = bool(placed or succeeded) and not has_only_led(members, list(gang.ended.values()))
    if policy is MatchPolicy.ONCE_SATISFIED and has_begun:
        return None, ""
    if policy is MatchPolicy.ONLY_WAITING:
        placed = [record for record in placed if not record.seen.is_running]
    tasks = Counter(task_of(record) for record in placed)
    counted = len(placed)
    if policy is MatchPolicy.WAITING_RUNNING_SUCCEED:
        tasks.update(ended.description.task for ended in succeeded)
        counted += len(succeeded)
    ready_by_task = Counter(map(task_of, ready))
    needs = []
    for task, minimum in sorted(terms.task_minimums.items()):
        needed = max(0, minimum - tasks[task])
        if needed > ready_by_task[task]:
            have = tasks[task] + sum(task_of(record) == task and not record.state.is_placed for record in members)
            return None, _lacking(gang, terms, have, minimum, f"pods of task {task}")
        needs.append(Need(gang.key, needed, task, of_task=True))
    needed = terms.minimum - counted
    if needed > len(ready):
        have = counted + sum(not record.state.is_placed for record in members)
        return None, _lacking(gang, terms, have, terms.minimum, "pods")
    needs = [each for each in (*needs, Need(gang.key, needed)) if each.count > 0]
    return (Choices(tuple(ready), tuple(needs)), "") if needs else (None, "")


def _succeeded(gang: Gang, terms: Terms) -> list[Ended]:
    """Succeeded pods that count for waiting ones: none if they were the whole gang before these came."""
    succeeded, members = gang.succeeded(), gang.present()
    if not members or any(record.state.is_placed for record in members):
        return succeeded
    owners = {record.seen.owner for record in members if record.seen.owner is not None}
    oldest = min(record.seen.created for record in members)
    if len(succeeded) < (terms.total or terms.minimum) or any(ended.created >= oldest for ended in succeeded):
        return succeeded
    return succeeded if any(ended.owner in owners for ended in gang.ended.values()) else []


def _lacking(gang: Gang, terms: Terms, have: int, minimum: int, what: str) -> str:
    """The reason why a gang cannot start: missing pods, and obstacles of existing ones."""
    notes = []
    members = gang.present()
    absent = _absent([record.name for record in members], terms.total or terms.minimum)
    if absent and have < minimum:
        notes.append(f"missing {absent}")
    gated = [record for record in members if record.state is PodState.HELD]
    if queued := [record.name for record in gated if record.seen.is_held_by_kueue]:
        notes.append(f"{listed(queued)}: {kueue.NOT_ADMITTED}")
    if others := [record.name for record in gated if not record.seen.is_held_by_kueue]:
        notes.append(f"{listed(others)} held by a scheduling gate")
    wrong = [record.name for record in members if record.ask is None and not record.state.is_placed]
    if wrong:
        notes.append(f"{listed(wrong)} refused (see the events there)")
    if terms.match_policy is MatchPolicy.ONLY_WAITING and any(record.seen.is_running for record in members):
        notes.append(f"pods that run do not count by match policy {terms.match_policy.value}")
    text = f"rejected by podgroup/{gang.key}: {have} of {minimum} {what} created"
    return f"{text} ({', '.join(notes)})" if notes else text


def _absent(names: Sequence[str], total: int) -> str:
    """The missing names among numbered pods of one prefix, "" if not so named: x-0, x-2 of 3 lack x-1."""
    found = [_NUMBERED.fullmatch(name) for name in names]
    prefixes = {match[1] for match in found if match is not None}
    numbers = {int(match[2]) for match in found if match is not None}
    first = 1 if total in numbers else 0
    if None in found or len(prefixes) != 1 or not all(first <= number < first + total for number in numbers):
        return ""
    prefix = prefixes.pop()
    absent = (f"{prefix}{number}" for number in range(first, first + total) if number not in numbers)
    return _in_short(list(islice(absent, NAMED)), total - len(numbers))


def listed(names: Sequence[str], count: int = 0) -> str:
    """The first few names for a message; `count` is the total if there are more."""
    return _in_short(names[:NAMED], count or len(names))


def _in_short(shown: Sequence[str], count: int, separator: str = ", ") -> str:
    more = f" and {count - len(shown)} more" if count > len(shown) else ""
    return separator.join(shown) + more


def _check_agreement(key: GangKey, asks: Sequence[tuple[PodRecord, Ask]]) -> None:
    """Raise UserError unless all pods that take cells have one VC and priority."""
    for name, what in (("virtual_cluster", "virtual cluster"), ("priority", "priority")):
        for record, ask in asks[1:]:
            first, value = getattr(asks[0][1], name), getattr(ask, name)
            if value != first:
                raise UserError(
                    f"the pods of podgroup/{key} disagree: the {what} of {asks[0][0].name} is {first}, of "
                    f"{record.name} {value}; a gang has one {what}: make them equal"
                )


def _check_policies(gang: Gang) -> None:
    """Raise UserError if preemption policies differ: kube-scheduler starts no such PodGroup of its own kind."""
    members = gang.present()
    for record in members[1:]:
        if record.seen.preempts != members[0].seen.preempts:
            one, other = sorted((members[0], record), key=lambda each: each.seen.preempts)
            raise UserError(
                f"the pods of podgroup/{gang.key} disagree: the preemptionPolicy of {one.name} is Never, of "
                f"{other.name} PreemptLowerPriority; kube-scheduler of Kubernetes 1.37 and later starts no such group: "
                "make them equal"
            )


def _parts(name: str, key: GangKey, members: Sequence[PodRecord], followers: Mapping[str, int]) -> list[Part]:
    """One request for each kind of cells, in order (rule 26.5).

    A leader is a kind of its own; `followers` has the number of pods it stands for besides itself, by its uid.
    """
    kinds: dict[tuple[str, str, str, bool, str], list[tuple[Ask, PodRecord]]] = {}
    for record in members:
        ask = record.ask
        if ask is not None and ask.leaf_cell_count:
            leader = record.uid if record.uid in followers else ""
            kind = (ask.leaf_cell_type, ask.pinned_cell_id, ask.within_cell, ask.within_is_required, leader)
            kinds.setdefault(kind, []).append((ask, record))
    parts = []
    places = {record.uid: place for place, record in enumerate(members)}
    for number, kind in enumerate(sorted(kinds, key=lambda kind: (_freedom(*kind[:4]), places.get(kind[4], -1)))):
        pods = sorted(kinds[kind], key=lambda one: one[0].leaf_cell_count)  # stable: by age within a size
        parts.append(_part(f"{name}#{number}" if number else name, key, pods, followers.get(kind[4], 0)))
    return parts


def _freedom(leaf_type: str, pinned: str, within: str, is_required: bool) -> tuple[bool | str, ...]:
    """A sort key of kinds of cells: the fewest possible cells first, a given type before any type, and so on."""
    return not leaf_type, leaf_type, not pinned, pinned, not is_required, not within, within


def _part(name: str, key: GangKey, pods: Sequence[tuple[Ask, PodRecord]], absent_count: int) -> Part:
    """One request for pods of one kind, ascending by size, and for absent pods like the first."""
    first = pods[0][0]
    sizes = Counter(ask.leaf_cell_count for ask, _ in pods)
    sizes[first.leaf_cell_count] += absent_count
    group = GroupSpec(name, tuple(MemberSpec(count, size) for size, count in sorted(sizes.items())))
    spec = replace(
        first.spec(group),
        within_is_required=first.within_is_required and not all(ask.prefers_near for ask, _ in pods),
        lazy_preemption=all(ask.lazy_preemption for ask, _ in pods),
    )
    if absent_count and not spec.within_cell:
        spec = replace(spec, within_cell=first.job_cell, within_is_required=bool(first.job_cell))
    request = PodRequest(uid=name, name=key.name, namespace=key.namespace, spec=spec)
    absent = tuple(_absent_pod(request, first, index) for index in range(absent_count))
    return Part(request, tuple(record for _, record in pods), absent)


def _absent_pod(part: PodRequest, ask: Ask, index: int) -> PodRequest:
    """A request in place of a pod not created yet."""
    name = f"{part.uid}+{index}"
    group = GroupSpec(name, (MemberSpec(1, ask.leaf_cell_count),))
    return PodRequest(
        name, part.name, part.namespace, replace(part.spec, group=group, leaf_cell_count=ask.leaf_cell_count)
    )


class GangState(msgspec.Struct, frozen=True):
    """The pods of a gang by progress: all, running with a node, and by Kubernetes' phases.

    `source` is the object that describes it, if any. `obstacle` has mistakes or missing pods, "" if it waits for cells
    or for nothing.
    """

    source: ObjectRef | None = None
    pod_count: int = 0
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    obstacle: str = ""


def state_of(gang: Gang, plan: Plan) -> GangState:
    """The state of a gang with this plan. Cost O(pods x log)."""
    members, ended = gang.in_order(), list(gang.ended.values())
    descriptions = [record.translation.description for record in members]
    said = [description.source for description in descriptions if description is not None]
    succeeded = sum(one.has_succeeded for one in ended)
    return GangState(
        source=next((ref for ref in (*said, *(one.description.source for one in ended)) if ref is not None), None),
        pod_count=len(members) + len(ended),
        scheduled=sum(record.state is PodState.BOUND for record in members),
        running=sum(record.seen.is_running for record in members),
        succeeded=succeeded,
        failed=len(ended) - succeeded,
        obstacle=plan.refusal or plan.forming,
    )
