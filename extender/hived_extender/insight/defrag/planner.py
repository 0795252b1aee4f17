"""A plan for defragmentation: from inputs and wanted things to moves that the core has made in a copy.

A plan may have a limit on its cost.

Where nothing is possible, the reason is too few leaf cells, groups that may not be moved, or no arrangement at all. To
know, the puzzle is solved once more as if every group might be moved. Only a question without a plan pays for that.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from hived.cells.state import State
from hived.cells.topology import NO_CELL
from hived.values.errors import UserError
from hived.values.specs import (
    MIN_GUARANTEED_PRIORITY,
    BindInfo,
    ClusterSpec,
    PodPlacement,
    PodRequest,
    count_leaves,
    count_pods,
)
from hived_config.words import counted
from hived_extender.api.defrag import DefragPlan, Inputs, Move, PlannedPod, WantedOutcome
from hived_extender.api.names import matching
from hived_extender.api.waiting import Job
from hived_extender.insight.defrag.collecting import Collected
from hived_extender.insight.defrag.execution import (
    Copy,
    Failed,
    Rehearsal,
    Running,
    Sketch,
    Want,
    copy_of,
    placement_of,
    places_in,
    read_groups,
    refusals,
    slots_of,
    spec_of,
    want_of,
)
from hived_extender.insight.defrag.model import Allowed, Refused, View, make_puzzle
from hived_extender.insight.defrag.puzzle import NO_BINS, Puzzle, Shape, Solution, parts_of
from hived_extender.insight.defrag.search import free_leaves, solve
from hived_extender.jobs.progress import MAY_MOVE
from hived_extender.machine.stimuli import MoveOrder

CELLS, PERMISSION, ARRANGEMENT, SEARCH = "too few cells", "not allowed", "no arrangement", "not known"
LIMITS, UNCONFIRMED = "limits", "not confirmed"

SOLVER = "search"
"""Of each plan."""

SHOWN_GROUPS = 4


class Cause(msgspec.Struct, frozen=True):
    """One of the constants above, and the reason in words with a remedy."""

    name: str
    reason: str


NO_CAUSE = Cause("", "")


class Barred(msgspec.Struct, frozen=True):
    """The nodes that Kubernetes' rules keep wanted jobs from, whoever moves; `obstacle` is an example, in words."""

    refused: Refused
    obstacle: str


CUT_SHORT = Cause(SEARCH, "the search was cut short without a plan: ask for less")


def cause_of(
    state: State,
    vc: str,
    by_view: Mapping[int, Sequence[Want]],
    allowed: Mapping[str, Allowed],
    everybody: Mapping[str, Allowed],
    solve: Callable[[Puzzle], Solution],
    met: int,
    barred: Barred,
) -> Cause:
    """The cause why not more than `met` of the things wanted have room.

    `allowed` are the groups that may be moved, `everybody` all groups. Cost: one more solution of the
    puzzle.
    """
    views = [View(state, view) for view in by_view]
    puzzles = [
        make_puzzle(view, everybody, [one.shape for one in wants], barred.refused)
        for view, wants in zip(views, by_view.values(), strict=True)
    ]
    if len(views) == 1:
        least, free = _least_leaves(puzzles[0], met + 1), free_leaves(puzzles[0])
        if free < least:
            return Cause(
                CELLS,
                f"{met + 1} of those wanted would take {counted(least, 'GPU')} of chain {views[0].chain.name}, and "
                f"{vc} has {free} healthy that no guaranteed group of it uses: moving groups adds none",
            )
    solutions = [solve(puzzle) for puzzle in puzzles]
    if sum(sum(one.met) for one in solutions) > met:
        lacking = _lacking_leave(puzzles, solutions, allowed)
        if lacking:
            return _permission(vc, puzzles, lacking, allowed)
    elif all(one.bound_met == sum(one.met) for one in solutions):
        by_rules = any(each for one in everybody.values() for each in one.refused)
        example = f" ({barred.obstacle})" if barred.obstacle else ""
        where = f" where Kubernetes' rules allow the pods{example}" if by_rules or example else ""
        return Cause(ARRANGEMENT, f"wherever the groups of {vc} were moved, the healthy cells have no room{where}")
    return CUT_SHORT


def _lacking_leave(
    puzzles: Sequence[Puzzle], solutions: Iterable[Solution], allowed: Mapping[str, Allowed]
) -> list[str]:
    """The groups that the solutions move, and that may not be moved; none if a first search was cut short."""
    return [
        name
        for puzzle, solution in zip(puzzles, solutions, strict=True)
        for number in solution.moved
        for name in puzzle.movers[number].names
        if name not in allowed
    ]


def _permission(vc: str, puzzles: Sequence[Puzzle], lacking: Sequence[str], allowed: Mapping[str, Allowed]) -> Cause:
    may_none = not any(name in allowed for puzzle in puzzles for mover in puzzle.movers for name in mover.names)
    begin = f"no group of {vc} may be moved" if may_none else "the groups that may be moved are not enough"
    more = f" and {len(lacking) - SHOWN_GROUPS} more" if len(lacking) > SHOWN_GROUPS else ""
    return Cause(
        PERMISSION,
        f"{begin}; there would be room if {', '.join(lacking[:SHOWN_GROUPS])}{more} could be moved. "
        f'Owners allow it by the annotation {MAY_MOVE}: "true" on each pod, the configuration by movable: true for the '
        f"virtual cluster",
    )


def _least_leaves(puzzle: Puzzle, count: int) -> int:
    """The leaves of so many of the things wanted, the smallest ones."""
    sizes = [
        sum(kind.sizes) or (sum(kind.spots[0].amounts) if kind.spots else 0)
        for kind in puzzle.kinds
        for _ in range(kind.count)
    ]
    return sum(sorted(sizes)[:count])


Step = tuple[int, ...]
"""Numbers of movers that leave together, before any of them comes back."""

Leaf = tuple[str, int]
"""A node and a device index."""


class Places(msgspec.Struct, frozen=True):
    """The leaf cells that a mover has, and those that it gets."""

    old: frozenset[Leaf]
    new: frozenset[Leaf]


def steps_of(puzzle: Puzzle, solution: Solution, places: Mapping[int, Places]) -> list[Step]:
    """The steps in order (rule 28.6): most have one mover; a circle of movers is one step."""
    movers = puzzle.movers
    guests = [(number,) for number in solution.moved if movers[number].is_guest]
    free = [
        capacity - own - lent for capacity, own, lent in zip(puzzle.capacity, puzzle.fixed, puzzle.lent, strict=True)
    ]
    for number, mover in enumerate(movers):
        if not (mover.is_guest and number in solution.moved):
            _add(free, mover.pods, -1)
    pending = [number for number in solution.moved if not movers[number].is_guest]
    steps: list[Step] = []
    while pending:
        held = {leaf: number for number in pending for leaf in places[number].old}
        fitting = (
            step for step in _tries(pending) if _fits(puzzle, solution, free, step) and _is_free(held, places, step)
        )
        step = next(fitting, tuple(pending))
        for number in step:
            _add(free, movers[number].pods, 1)
            _add(free, _arriving(puzzle, solution, number), -1)
            pending.remove(number)
        steps.append(step)
    return guests + steps


def _tries(pending: Sequence[int]) -> Iterator[Step]:
    yield from ((number,) for number in pending)
    for i, number in enumerate(pending):
        yield from ((number, other) for other in pending[i + 1 :])


def _is_free(held: Mapping[Leaf, int], places: Mapping[int, Places], step: Step) -> bool:
    """Are the new leaf cells free, once the groups of this step have left?"""
    return all(held.get(leaf, number) in step for number in step for leaf in places[number].new)


def _fits(puzzle: Puzzle, solution: Solution, free: Sequence[int], step: Step) -> bool:
    needed: dict[int, int] = {}
    for number in step:
        for bin_, size in _arriving(puzzle, solution, number):
            needed[bin_] = needed.get(bin_, 0) + size
        for bin_, size in puzzle.movers[number].pods:
            needed[bin_] = needed.get(bin_, 0) - size
    return all(amount <= free[bin_] for bin_, amount in needed.items() if amount > 0)


def _arriving(puzzle: Puzzle, solution: Solution, number: int) -> list[tuple[int, int]]:
    sizes = [size for _, size in puzzle.movers[number].pods]
    return list(zip(solution.bins[number], sizes, strict=True))


def _add(free: list[int], pods: Sequence[tuple[int, int]], sign: int) -> None:
    for bin_, size in pods:
        free[bin_] += sign * size


class Limits(msgspec.Struct, frozen=True):
    """Limits of a plan; None for no limit."""

    gpu_hours: float | None = None
    groups: int | None = None


PLAN, NOTHING_NEEDED, NOTHING_POSSIBLE, NOT_KNOWN = "plan", "nothing needed", "nothing possible", "not known"

MOST_TRIES, FEW_TRIES = 8, 4
"""Solutions that are tried in copies of the core for all that is wanted, and for fewer of it."""

MOST_LEARNED = 16
"""More of them, after Kubernetes' rules have refused a node to a group."""

SECONDS_PER_HOUR = 3600.0

Solver = Callable[[Puzzle], Solution]


class Task(msgspec.Struct, frozen=True):
    """The task of a plan.

    Attributes
    ----------
    cluster : the configuration of `inputs`, read
    movable : virtual clusters all groups of which may be moved
    """

    cluster: ClusterSpec
    inputs: Inputs
    vc: str
    shapes: tuple[Shape, ...]
    movable: frozenset[str] = frozenset()
    limits: Limits = Limits()
    solve: Solver = solve


def job_shapes(inputs: Inputs, name: str) -> tuple[str, tuple[Shape, ...]]:
    """The VC of a waiting job, by any of its names, and the job as a thing wanted. Raises UserError."""
    known = {one.name: one for one in inputs.waiting}
    found = matching([Job(name=one.name, state="Waiting", pods=list(one.pods)) for one in inputs.waiting], name)
    if len(found) > 1:
        named = ", ".join(one.name for one in found[:8])
        raise UserError(f"{name} is part of {len(found)} names: {named}; give one of them")
    job = known[found[0].name] if found else None
    if job is None:
        waiting = ", ".join(one.name for one in inputs.waiting[:8]) or "none"
        raise UserError(f"no job {name} waits for cells; there are {waiting}")
    specs = [spec_of(fields) for fields in job.specs]
    if not specs or specs[0].priority < MIN_GUARANTEED_PRIORITY:
        raise UserError(f"{name} is opportunistic: it waits for idle cells, and no group is moved for it")
    members = tuple(member for spec in specs for member in spec.group.members)
    within = specs[0].within_cell if specs[0].within_is_required else ""
    return specs[0].virtual_cluster, (Shape(job.name, members=members, job=job.name, within_cell=within),)


def plan(task: Task) -> DefragPlan:
    """The best plan that was found, verified in a copy of the core. Raises UserError for the impossible.

    Which one is best, and when fewer of the wanted things are tried: rule 28.3.
    """
    copy = copy_of(task.cluster, task.inputs)
    wants = [want_of(copy, task.vc, number, shape) for number, shape in enumerate(task.shapes)]
    met = _met_in_turn(copy, wants)
    if met == len(wants):
        return _without_moves(task, NOTHING_NEEDED, met)
    allowed = _allowed(task, copy)
    refused = _wanted_refused(copy, wants, allowed)
    first: _No | None = None
    count = len(wants)
    while count > met:
        tries = MOST_TRIES if first is None else FEW_TRIES
        found = _plan_for(copy, task, wants[:count], allowed, refused, tries)
        if isinstance(found, DefragPlan):
            return _checked(task, _completed(task, msgspec.structs.replace(found, met_before=met)))
        first = first or found
        if found.is_proven and count == len(wants):
            break
        count = (count + met) // 2
    assert first is not None
    if not first.is_proven:
        return _without_moves(task, NOT_KNOWN, met, first.cause)
    if (unknown := _unknown(task, copy, wants, met)) is not None:
        return _without_moves(task, NOT_KNOWN, met, unknown)
    everybody = _allowances(task, copy, [name for name in copy.running if name not in copy.refused])
    barred = Barred(_wanted_refused(copy, wants, everybody), _obstacle(copy, wants, everybody))
    cause = cause_of(copy.state, task.vc, _by_view(wants), allowed, everybody, task.solve, met, barred)
    return _without_moves(task, NOT_KNOWN if cause.name == SEARCH else NOTHING_POSSIBLE, met, cause)


class _No(msgspec.Struct, frozen=True):
    """No plan was found; if that is not proven, `cause` says why it is not known."""

    is_proven: bool
    cause: Cause = NO_CAUSE


def _plan_for(
    copy: Copy, task: Task, wants: Sequence[Want], allowed: Mapping[str, Allowed], refused: Refused, tries: int
) -> DefragPlan | _No:
    """A plan for as many of the things wanted as can have room. A group that the core does not put where the puzzle has
    room for it stays where it is at the next of up to `tries`. A node that Kubernetes' rules keep a group from, beside
    others that come there too, is not tried for it again.
    """
    refusal, staying, number = "", set[str](), 0
    learned: dict[str, frozenset[int]] = {}
    for _ in range(tries + MOST_LEARNED):
        if number >= tries or (number >= len(_ATTEMPTS) and len(staying) <= number - len(_ATTEMPTS)):
            break  # no group was to blame: the same again would fail again
        attempt = _ATTEMPTS[number] if number < len(_ATTEMPTS) else _ATTEMPTS[-1]
        movable = {name: _kept_from(one, learned.get(name)) for name, one in allowed.items() if name not in staying}
        now = {
            job: {size: nodes | learned.get(job, NO_BINS) for size, nodes in of.items()} for job, of in refused.items()
        }
        try:
            solved = _solve(task, copy.state, wants, movable, now, attempt)
            found = _verify(task, copy, solved, movable, wanted_first=attempt.wanted_first)
        except Failed as error:
            refusal = refusal or f"groups could be arranged so, but the scheduler does not confirm it: {error.message}"
            if error.nodes and not error.nodes <= learned.get(error.group, NO_BINS):
                learned[error.group] = learned.get(error.group, NO_BINS) | error.nodes
                continue
            number += 1
            if number >= len(_ATTEMPTS) and error.group in movable:
                staying.add(error.group)
            continue
        if found.moves:
            is_whole = attempt.uses_unbound and attempt.uses_guests and not staying and not learned
            return found if is_whole else msgspec.structs.replace(found, is_optimal=False)
        if not refusal:
            is_proven = all(one.solution.bound_met == sum(one.solution.met) for one in solved)
            return _No(is_proven, NO_CAUSE if is_proven else CUT_SHORT)
        number += 1
    return _No(False, Cause(UNCONFIRMED, refusal))


def _kept_from(allowed: Allowed, nodes: frozenset[int] | None) -> Allowed:
    """The same, kept from these nodes too."""
    if not nodes:
        return allowed
    return msgspec.structs.replace(allowed, refused=tuple(one | nodes for one in allowed.refused))


def _completed(task: Task, found: DefragPlan) -> DefragPlan:
    """A plan for fewer of the things wanted, with the ones that were left out."""
    left = task.shapes[len(found.wanted) :]
    if not left:
        return found
    met = sum(one.is_met for one in found.wanted)
    return msgspec.structs.replace(
        found,
        wanted=[*found.wanted, *(WantedOutcome(shape=shape.text, is_met=False) for shape in left)],
        reason=_shortage(met, len(task.shapes), len(task.shapes)),
        is_optimal=False,
        gap_wanted=len(task.shapes) - met,
    )


class _Attempt(msgspec.Struct, frozen=True):
    """One way to a plan. May groups move to cells that have no hardware yet, and may opportunistic work leave? In the
    sketch, does what is wanted come before the groups that move?
    """

    wanted_first: bool = False
    uses_unbound: bool = True
    uses_guests: bool = True


_ATTEMPTS = (
    _Attempt(),
    _Attempt(wanted_first=True),
    _Attempt(uses_unbound=False),
    _Attempt(uses_unbound=False, uses_guests=False),
)


class _Solved(msgspec.Struct, frozen=True):
    """The things wanted in one view, and how they get room."""

    view: View
    wants: Sequence[Want]
    puzzle: Puzzle
    solution: Solution


def _solve(
    task: Task, state: State, wants: Sequence[Want], allowed: Mapping[str, Allowed], refused: Refused, attempt: _Attempt
) -> list[_Solved]:
    found = []
    for number, own in _by_view(wants).items():
        view = View(state, number)
        puzzle = _limited(make_puzzle(view, allowed, [one.shape for one in own], refused), view, attempt)
        found.append(_Solved(view, own, puzzle, task.solve(puzzle)))
    return found


def _verify(
    task: Task, copy: Copy, solved: Sequence[_Solved], allowed: Mapping[str, Allowed], *, wanted_first: bool
) -> DefragPlan:
    """The plan of these solutions, carried out once in a sketch and once move by move. Raises Failed."""
    sketch, rehearsal = Sketch(copy.again()), Rehearsal(copy.again())
    moves: list[Move] = []
    for one in solved:
        refused = {name: each.refused for name, each in allowed.items() if each.refused}
        infos = sketch.draw(one.view, one.puzzle, one.solution, _met(one), refused=refused, wanted_first=wanted_first)
        moves += _carry_out(rehearsal, one, infos, allowed, moves[-1].step if moves else 0)
    wants = [want for one in solved for want in one.wants]
    outcomes = [rehearsal.want(one) for one in wants]
    met, most = sum(sum(one.solution.met) for one in solved), sum(one.solution.bound_met for one in solved)
    if sum(one.is_met for one in outcomes) < met:
        raise _unmet(rehearsal, wants, outcomes)
    lost, groups = parts_of(sum(one.solution.cost for one in solved))
    least_lost, least_groups = parts_of(sum(one.solution.bound_cost for one in solved))
    return DefragPlan(
        outcome=PLAN,
        vc=task.vc,
        wanted=outcomes,
        moves=_settled(rehearsal, moves),
        reason="" if met == len(outcomes) else _shortage(met, most, len(outcomes)),
        solver=SOLVER,
        lost_gpu_hours=lost / SECONDS_PER_HOUR,
        moved_groups=groups,
        is_optimal=all(one.solution.is_optimal for one in solved),
        gap_gpu_hours=max(0, lost - least_lost) / SECONDS_PER_HOUR,
        gap_groups=max(0, groups - least_groups) if lost == least_lost else 0,
        gap_wanted=most - met,
    )


def _unmet(rehearsal: Rehearsal, wants: Sequence[Want], outcomes: Sequence[WantedOutcome]) -> Failed:
    """The failure to have room for something wanted; with the nodes that Kubernetes' rules keep a job from by now."""
    unmet = (want for want, one in zip(wants, outcomes, strict=True) if want.shape.job and not one.is_met)
    job, message = next(unmet, None), "the core finds no room for all that should have it"
    if job is None:
        return Failed(message)
    found = [rehearsal.facts.wanted_refused(request, ()) for request in job.requests]
    nodes = NO_BINS.union(*(each for one in found for each in one.values()))
    why = rehearsal.kept_out or rehearsal.facts.obstacle(job.requests, ())
    return Failed(f"{message}; {why}" if why else message, job.shape.job, nodes)


def _met(one: _Solved) -> list[Sequence[PodRequest]]:
    """The requests of those that get room, largest first."""
    left = dict(zip(dict.fromkeys(want.shape for want in one.wants), one.solution.met, strict=True))
    found = []
    for want in one.wants:
        if left[want.shape]:
            left[want.shape] -= 1
            found.append(want.requests)
    return sorted(found, key=lambda each: -max(request.spec.leaf_cell_count for request in each))


def _carry_out(
    rehearsal: Rehearsal, one: _Solved, infos: Mapping[str, BindInfo], allowed: Mapping[str, Allowed], before: int
) -> list[Move]:
    """Make the moves in their order. Raises Failed."""
    movers, running = one.puzzle.movers, rehearsal.running
    places = {
        number: Places(
            _leaves(place for name in movers[number].names for place in _places(running[name])),
            _leaves(place for name in movers[number].names if name in infos for place in places_in(infos[name])),
        )
        for number in one.solution.moved
    }
    moves = []
    for number, step in enumerate(steps_of(one.puzzle, one.solution, places), before + 1):
        names = [name for each in step for name in movers[each].names]
        was = {name: _places(running[name]) for name in names}
        rehearsal.move({name: infos.get(name) for name in names})
        for name in names:
            becomes = places_in(infos[name]) if name in infos else []
            moves.append(_move(number, running[name], was[name], becomes, allowed[name].lost))
    return moves


def _settled(rehearsal: Rehearsal, moves: Sequence[Move]) -> list[Move]:
    """The moves, with places for opportunistic groups that had to leave, as far as there are any left at the end."""
    found = []
    for move in moves:
        info = None if move.is_guaranteed else rehearsal.ask(rehearsal.running[move.group].requests[0])
        if info is None:
            found.append(move)
        else:
            rehearsal.come(move.group, info)
            found.append(msgspec.structs.replace(move, becomes=places_in(info)))
    return found


def _places(group: Running) -> list[PlannedPod]:
    """The place of each pod of a group, in the order of its pods."""
    places = (_place(info) for info in group.infos)
    return [PlannedPod(one.node, one.leaf_cell_indices, one.preassigned_cell_types) for one in places]


def _place(info: BindInfo) -> PodPlacement:
    return next(
        one
        for size in info.members
        for one in size
        if (one.node, one.leaf_cell_indices) == (info.node, info.leaf_cell_indices)
    )


def _leaves(places: Iterable[PlannedPod]) -> frozenset[Leaf]:
    return frozenset((place.node, cell) for place in places for cell in place.cells)


def _move(step: int, group: Running, was: list[PlannedPod], becomes: list[PlannedPod], lost: int) -> Move:
    spec = group.requests[0].spec
    return Move(
        step=step,
        group=group.name,
        gang=group.entry.gang,
        vc=spec.virtual_cluster,
        priority=spec.priority,
        is_guaranteed=spec.priority >= MIN_GUARANTEED_PRIORITY,
        was=was,
        becomes=becomes,
        lost_gpu_hours=lost / SECONDS_PER_HOUR,
    )


def _limited(puzzle: Puzzle, view: View, attempt: _Attempt) -> Puzzle:
    """The puzzle with nothing that an attempt is not to use."""
    lent = list(puzzle.lent)
    movers = puzzle.movers
    if not attempt.uses_unbound:
        for bin_, cell in enumerate(view.behind.tolist()):
            if cell == NO_CELL:
                lent[bin_] = puzzle.capacity[bin_]
    if not attempt.uses_guests:
        for mover in movers:
            for bin_, size in mover.pods if mover.is_guest else ():
                lent[bin_] += size
        movers = tuple(msgspec.structs.replace(one, pods=()) if one.is_guest else one for one in movers)
    return msgspec.structs.replace(puzzle, lent=tuple(lent), movers=movers)


def _checked(task: Task, found: DefragPlan) -> DefragPlan:
    """The plan, unless it costs more than allowed."""
    limits = task.limits
    too_much = []
    if limits.gpu_hours is not None and found.lost_gpu_hours > limits.gpu_hours:
        too_much.append(f"{found.lost_gpu_hours:.2f} GPU-hours would be lost, at most {limits.gpu_hours:g} may be")
    if limits.groups is not None and len(found.moves) > limits.groups:
        too_much.append(f"{counted(len(found.moves), 'group')} would be moved, at most {limits.groups} may be")
    if too_much:
        return _without_moves(task, NOTHING_POSSIBLE, found.met_before, Cause(LIMITS, "; ".join(too_much)))
    return found


def _without_moves(task: Task, outcome: str, met: int, cause: Cause = NO_CAUSE) -> DefragPlan:
    wanted = [WantedOutcome(shape=shape.text, is_met=i < met) for i, shape in enumerate(task.shapes)]
    return DefragPlan(
        outcome=outcome, vc=task.vc, wanted=wanted, reason=cause.reason, cause=cause.name, met_before=met,
        solver=SOLVER, is_optimal=outcome == NOTHING_NEEDED,
    )  # fmt: skip


def _shortage(met: int, most: int, wanted: int) -> str:
    """Return why not all that is wanted gets room."""
    if met == most:
        return f"of {wanted} wanted, {most} at most can have room, whichever of the groups that may move are moved"
    return f"of {wanted} wanted, {met} get room; whether more could is not known"


def _allowed(task: Task, copy: Copy, *, in_doubt: bool = True) -> dict[str, Allowed]:
    """The groups that may be moved, by name, with the work that each would lose; see `_allowances`."""
    names = [
        name
        for name, group in copy.running.items()
        if name not in copy.refused and (group.entry.may_move or group.requests[0].spec.virtual_cluster in task.movable)
    ]
    return _allowances(task, copy, names, in_doubt=in_doubt)


def _allowances(task: Task, copy: Copy, names: Sequence[str], *, in_doubt: bool = True) -> dict[str, Allowed]:
    """These groups as if they might be moved. `in_doubt`: see `KubeFacts.refused_for_good`."""
    gone = _uids(copy, names)
    found = {}
    for name in names:
        group = copy.running[name]
        refused: tuple[frozenset[int], ...] = ()
        if task.inputs.rules is not None:
            by_pod = copy.facts.refused_for_good(group.requests, gone, in_doubt=in_doubt)
            by_slot = dict(zip(slots_of(group), by_pod, strict=True))
            count = count_pods(group.requests[0].spec.group.members)
            refused = tuple(by_slot.get(slot, NO_BINS) for slot in range(count))
        found[name] = Allowed(lost_of(group, task.inputs.at), group.entry.gang, refused)
    return found


def _uids(copy: Copy, names: Iterable[str]) -> frozenset[str]:
    return frozenset(request.uid for name in names for request in copy.running[name].requests)


def _wanted_refused(
    copy: Copy, wants: Sequence[Want], movable: Mapping[str, Allowed]
) -> dict[str, dict[int, frozenset[int]]]:
    """By job and size, the nodes that none of its pods may come to, though all that may be moved leave."""
    gone = _uids(copy, movable)
    found: dict[str, dict[int, frozenset[int]]] = {}
    for want in _jobs(wants):
        sizes = found.setdefault(want.shape.job, {})
        for request in want.requests:
            for size, nodes in copy.facts.wanted_refused(request, gone).items():
                sizes[size] = sizes[size] & nodes if size in sizes else nodes
    return found


def _jobs(wants: Sequence[Want]) -> list[Want]:
    """The waiting jobs among the things wanted."""
    return [one for one in wants if one.shape.job]


def _unknown(task: Task, copy: Copy, wants: Sequence[Want], met: int) -> Cause | None:
    """The cause if there might be a plan, and only kube-scheduler knows whether groups would find their nodes."""
    allowed = _allowed(task, copy, in_doubt=False)
    unknown = {name: why for name in allowed if (why := copy.facts.unknown_of(copy.running[name].requests))}
    if not unknown:
        return None
    solved = _solve(task, copy.state, wants, allowed, _wanted_refused(copy, wants, allowed), _ATTEMPTS[0])
    moved = [name for one in solved for number in one.solution.moved for name in one.puzzle.movers[number].names]
    doubted = [name for name in unknown if name in moved]
    if sum(sum(one.solution.met) for one in solved) <= met or not doubted:
        return None
    return Cause(
        UNCONFIRMED,
        f"groups could be arranged so, but only kube-scheduler knows whether {', '.join(doubted[:SHOWN_GROUPS])} would "
        f"find a node elsewhere: {unknown[doubted[0]]}",
    )


def _obstacle(copy: Copy, wants: Sequence[Want], movable: Mapping[str, Allowed]) -> str:
    """A node that cannot take a job whoever is moved, with the reason; "" if there is none."""
    requests = [request for want in _jobs(wants) for request in want.requests]
    return copy.facts.obstacle(requests, _uids(copy, movable))


def lost_of(group: Running, at: float) -> int:
    """Leaf-seconds that a group would lose: since it began to run, or last saved its work (rule 8.12)."""
    if group.entry.started_at is None:
        return 0
    since = max(group.entry.started_at, group.entry.checkpointed_at or 0.0)
    leaves = count_leaves(group.requests[0].spec.group.members)
    return leaves * max(0, int(at - since))


def _by_view(wants: Sequence[Want]) -> dict[int, list[Want]]:
    found: dict[int, list[Want]] = {}
    for one in wants:
        found.setdefault(one.view, []).append(one)
    return found


def _met_in_turn(copy: Copy, wants: Sequence[Want]) -> int:
    """The number of things wanted that have room now, in turn; some opportunistic work may have to leave for them."""
    rehearsal = Rehearsal(copy.again())
    return sum(rehearsal.want(one).is_met for own in _by_view(wants).values() for one in own)


def head(inputs: Inputs, vc: str) -> str | None:
    """The guaranteed job of a VC that is first to be tried; None if none waits."""
    for job in inputs.waiting:
        spec = spec_of(job.specs[0])
        if spec.virtual_cluster == vc and spec.priority >= MIN_GUARANTEED_PRIORITY:
            return job.name
    return None


def plan_for(collected: Collected, job: str, limits: Limits) -> DefragPlan:
    """A plan for a job that waits."""
    vc, shapes = job_shapes(collected.inputs, job)
    return plan(
        Task(
            cluster=collected.cluster,
            inputs=collected.inputs,
            vc=vc,
            shapes=shapes,
            movable=collected.moving.movable,
            limits=limits,
        )
    )


def names_of_jobs(inputs: Inputs, found: DefragPlan) -> frozenset[str]:
    """The waiting jobs that a plan makes room for, and their pods; empty unless all that is wanted are jobs."""
    wanted = {one.shape for one in found.wanted}
    jobs = [job for job in inputs.waiting if job.name in wanted]
    return (
        frozenset(name for job in jobs for name in (job.name, *job.pods)) if len(jobs) == len(wanted) else frozenset()
    )


def checked_orders(collected: Collected, found: DefragPlan) -> tuple[MoveOrder, ...]:
    """The moves of a plan, for the service. Raises UserError (409) if it does not hold any more."""
    reasons = refusals(collected.cluster, collected.inputs, found, collected.moving.movable)
    if reasons:
        raise UserError("the plan does not hold any more: " + "; ".join(reasons), 409)
    groups = read_groups(collected.inputs)
    return tuple(_order_of(move, groups[move.group].entry.chain) for move in found.moves)


def _order_of(move: Move, chain: str) -> MoveOrder:
    """One move for the service. An opportunistic group finds its new place by itself."""
    becomes = placement_of(move.becomes, chain) if move.is_guaranteed else None
    return MoveOrder(move.step, move.group, move.gang, tuple(move.was), becomes)
