"""Needless preemptions and false waits of small clusters, each by trying every placement."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from hived.specs import Rules
from tests.quality.exhaustive import Found, Wanted, cheapest_victims, exists, may_evict, own_form, placements
from tests.quality.plain import OPPORTUNISTIC, Facts, Running, unmet_by_good
from tests.quality.small import Asked, Load, walk

STEPS = 60
NEEDLESS_LOADS = {"plain": Load(), "nodes": Load(bad=4, not_suggested=25)}
WAIT_LOADS = {
    "plain": Load(gangs=40),
    "mixed": Load(gangs=70, mixed=70),
    "bad": Load(gangs=40, bad=6),
    "not suggested": Load(gangs=40, not_suggested=40),
    "within": Load(gangs=70, within=70),
    "combine": Load(gangs=30, combines=70),
    "all": Load(gangs=60, mixed=50, within=20, not_suggested=15, bad=4, combines=50),
}
Figures = dict[str, float]


def needless(rules: Rules, kind: str, load: str, spares: bool, first_seed: int, questions: int) -> Figures:
    """Preemptions on small clusters of one kind: how many evict without need.

    equal : a placement without victims exists that leaves the VC the same future
    any : any placement without victims exists. None of these leaves more promised cells without healthy free
    ones than the core's, larger cells first. The first victim ran in a new preassigned cell (F-1), on a node of the
    VC's own groups (F-2), or on another node below a preassigned cell that the VC had (F-3)
    too_much : among placements with the same future, cheaper victims exist, and how much more was lost, in leaf-steps
    """
    found: Counter[str] = Counter()
    for asked in islice(_walks(rules, kind, NEEDLESS_LOADS[load], first_seed, spares), questions):
        running = asked.answer.running
        if running is None:
            continue
        if asked.wanted.priority > OPPORTUNISTIC:
            found["leaves_started"] += running.leaf_count
        if not asked.answer.victims:
            continue
        victims = asked.answer.victims
        found["preemptions"] += 1
        found["groups_evicted"] += len(victims)
        found["leaves_evicted"] += sum(victim.leaf_count for victim in victims)
        placed = Found(running.pods, running.roots)
        form = own_form(asked.before, asked.wanted, placed)
        unmet = _unmet(asked, placed)
        idle = [each for each in placements(asked.before, asked.wanted) if _unmet(asked, each) <= unmet]
        if any(own_form(asked.before, asked.wanted, each) == form for each in idle):
            found["equal"] += 1
        if idle:
            found["any"] += 1
            found[_cause(asked.before, running)] += 1

        def cost(group: Running, now: float = asked.now) -> float:
            return group.leaf_count * (now - group.started)

        def is_equal(each: Found, asked: Asked = asked, form: object = form, unmet: Any = unmet) -> bool:
            return own_form(asked.before, asked.wanted, each) == form and _unmet(asked, each) <= unmet

        lost = sum(map(cost, victims))
        cheapest = cheapest_victims(asked.before, asked.wanted, cost, is_equal)
        assert cheapest is not None, "the core's placement is not among all placements"
        found["lost"] += round(lost)
        found["lost_at_least"] += round(cheapest[0])
        found["too_much"] += lost > cheapest[0]
    return dict(found)


def _unmet(asked: Asked, found: Found) -> tuple[int, ...]:
    """How many promised cells of all VCs have no healthy free cell after a placement, larger cells first."""
    if not asked.before.bad:
        return ()
    return unmet_by_good(asked.before, asked.before.owners() | dict.fromkeys(found.roots, asked.wanted.vc))


def _cause(before: Facts, running: Running) -> str:
    plain = before.plain
    own = {
        plain.node[leaf]
        for group in before.groups.values()
        if group.vc == running.vc and group.priority > OPPORTUNISTIC
        for pod in group.pods
        for leaf in pod
    }
    for leaf in (leaf for pod in running.pods for leaf in pod if leaf in before.user):
        at = leaf
        while at not in running.roots:
            at = plain.parent[at]
        return "F-1" if at not in before.owner else "F-2" if plain.node[leaf] in own else "F-3"
    raise AssertionError("nobody left")


def false_waits(rules: Rules, kind: str, load: str, first_seed: int, questions: int) -> Figures:
    """Waits of groups that have a placement which needs no guaranteed group of their own priority or higher to leave.

    combine : such a placement exists only if a pod may take several cells, and the VC does not allow that
    """
    found: Counter[str] = Counter()
    for asked in islice(_walks(rules, kind, WAIT_LOADS[load], first_seed), questions):
        found["questions"] += 1
        if asked.answer.kind != "wait":
            continue
        is_guaranteed = asked.wanted.priority > OPPORTUNISTIC
        found["waits"] += 1
        found["guaranteed_waits"] += is_guaranteed
        if _has_place(asked, asked.wanted):
            found["false"] += 1
            found["false_guaranteed" if is_guaranteed else "false_opportunistic"] += 1
            found[f"false_{_why(asked)}"] += 1
        elif is_guaranteed and _has_place(asked, replace(asked.wanted, combines=True)):
            found["combine"] += 1
    return dict(found)


def _has_place(asked: Asked, wanted: Wanted) -> bool:
    return exists(asked.before, wanted, may_evict(asked.before, wanted))


def _why(asked: Asked) -> str:
    """The first of the circumstances without which the group would have no place, or no wait."""
    wanted = asked.wanted
    if wanted.combines and not _has_place(asked, replace(wanted, combines=False)):
        return "combine"
    if len(set(wanted.sizes)) > 1:
        return "mixed"
    if wanted.within:
        return "within"
    if wanted.nodes is not None:
        return "not_suggested"
    return "bad" if asked.before.bad else "plain"


def _walks(rules: Rules, kind: str, load: Load, seed: int, spares: bool = False) -> Iterator[Asked]:
    while True:
        yield from walk(kind, rules, load, seed, STEPS, spares)
        seed += 1
