"""The best solution of a puzzle by OR-Tools' CP-SAT: one thread, a fixed seed, and time that is counted, not measured.

Pods that arrive are counted by bin and sort, not followed one by one: bins are exact, and the model stays small. The
goals are reached one after the other: things met, then leaf-seconds lost, then groups. Each is fixed before the next.
The bins of each pod are chosen afterwards from these counts.
"""

import math
from collections import Counter
from collections.abc import Callable

import msgspec
from ortools.sat.python import cp_model

from hived_extender.defrag import search
from hived_extender.defrag.packing import pods_of
from hived_extender.defrag.puzzle import Puzzle, Solution, cost_of, parts_of
from hived_extender.defrag.search import upper_bound

TIME = 10.0
"""CP-SAT's deterministic time for each goal, about as many seconds."""

EPSILON = 1e-6
"""Bounds are whole numbers, which CP-SAT gives as floats."""

Sort = tuple[int, frozenset[int]]
"""Of a pod that arrives: its leaves, and the bins that refuse it."""

Terms = dict[tuple[int, Sort], cp_model.IntVar]


def solve(puzzle: Puzzle, time: float = TIME) -> Solution:
    """The best solution found, not worse than that of `search`. Deterministic."""
    begun = search.solve(puzzle)
    if begun.is_optimal or not any(upper_bound(puzzle)):
        return begun
    found = solve_alone(puzzle, begun, time)
    is_better = (sum(found.met), -found.cost) >= (sum(begun.met), -begun.cost)
    best = found if is_better else begun
    bound_met = min(found.bound_met, begun.bound_met)
    bounds = [one.bound_cost for one in (found, begun) if sum(one.met) == sum(best.met)]
    return msgspec.structs.replace(best, bound_met=bound_met, bound_cost=min(best.cost, max(bounds)))


def solve_alone(puzzle: Puzzle, hint: Solution | None = None, time: float = TIME) -> Solution:
    """The solution of CP-SAT, which begins at `hint`."""
    most = sum(upper_bound(puzzle))
    nothing = Solution((0,) * len(puzzle.kinds), (), {}, 0, most, 0)
    return _Model(puzzle, hint).solve(time) or nothing


class _Model:
    """The constraints of `puzzle` in CP-SAT's terms."""

    def __init__(self, puzzle: Puzzle, hint: Solution | None = None) -> None:
        """Cost O(bins x sizes + movers + spots)."""
        self._puzzle = puzzle
        self._model = cp_model.CpModel()
        model = self._model
        self._moves = [model.new_bool_var(f"moves{i}") for i in range(len(puzzle.movers))]
        self._arrivals: Terms = {}
        self._met: list[cp_model.IntVar] = []
        wanted: list[list[cp_model.LinearExprT]] = [[] for _ in puzzle.capacity]
        for number, most in enumerate(upper_bound(puzzle)):
            self._met.append(self._add_kind(number, most, wanted))
        self._add_bins(wanted)
        for number in hint.moved if hint is not None else ():
            model.add_hint(self._moves[number], 1)

    def _add_kind(self, number: int, most: int, wanted: list[list[cp_model.LinearExprT]]) -> cp_model.IntVar:
        """The number of a kind that have room; `wanted` gets the leaves that they take of each bin."""
        model, kind = self._model, self._puzzle.kinds[number]
        met = model.new_int_var(0, most, f"met{number}")
        if not most:
            return met
        if kind.spots:
            taken = []
            for i, spot in enumerate(kind.spots):
                is_taken = model.new_bool_var(f"spot{number}.{i}")
                taken.append(is_taken)
                for mover in sorted(spot.movers):
                    model.add_implication(is_taken, self._moves[mover])
                for bin_, amount in zip(spot.bins, spot.amounts, strict=True):
                    wanted[bin_].append(amount * is_taken)
            model.add(sum(taken) == met)
            return met
        sizes = Counter(kind.sizes)
        if not kind.ranges:
            self._add_pods(f"{number}", sizes, met, range(len(self._puzzle.capacity)), wanted, kind.refused_to)
            return met
        parts = []
        for i, (start, end) in enumerate(kind.ranges):
            here = model.new_int_var(0, most, f"met{number}.{i}")
            self._add_pods(f"{number}.{i}", sizes, here, range(start, end), wanted, kind.refused_to)
            parts.append(here)
        model.add(sum(parts) == met)
        return met

    def _add_pods(
        self,
        name: str,
        sizes: Counter[int],
        met: cp_model.IntVar,
        bins: range,
        wanted: list[list[cp_model.LinearExprT]],
        refused_to: Callable[[int], frozenset[int]],
    ) -> None:
        """Pods of `met` gangs, by size, in these bins, less those that refuse pods of a size."""
        for size, count in sorted(sizes.items()):
            placed = []
            for bin_ in bins:
                most = (self._puzzle.capacity[bin_] - self._puzzle.fixed[bin_]) // size
                if most > 0 and bin_ not in refused_to(size):
                    pods = self._model.new_int_var(0, most, f"pods{name}.{size}.{bin_}")
                    placed.append(pods)
                    wanted[bin_].append(size * pods)
            self._model.add(sum(placed) == count * met)

    def _add_bins(self, wanted: list[list[cp_model.LinearExprT]]) -> None:
        puzzle, model, moves = self._puzzle, self._model, self._moves
        sorts: dict[Sort, list[cp_model.LinearExprT]] = {}
        gone: list[list[cp_model.LinearExprT]] = [[] for _ in puzzle.capacity]
        guests: list[list[cp_model.LinearExprT]] = [[] for _ in puzzle.capacity]
        own, lent = list(puzzle.fixed), list(puzzle.lent)
        for number, mover in enumerate(puzzle.movers):
            for bin_, size in mover.pods:
                (guests if mover.is_guest else gone)[bin_].append(size * moves[number])
                (lent if mover.is_guest else own)[bin_] += size
            own_sorts = Counter((size, mover.refused_to(pod)) for pod, (_, size) in enumerate(mover.pods))
            for sort, count in own_sorts.items() if not mover.is_guest else ():
                sorts.setdefault(sort, []).append(count * moves[number])
        in_order = sorted(sorts, key=lambda sort: (sort[0], sorted(sort[1])))
        arriving: dict[Sort, list[cp_model.LinearExprT]] = {sort: [] for sort in sorts}
        for bin_, capacity in enumerate(puzzle.capacity):
            here: list[cp_model.LinearExprT] = []
            for number, (size, refused) in enumerate(in_order):
                most = (capacity - puzzle.fixed[bin_] - puzzle.lent[bin_]) // size
                if most > 0 and bin_ not in refused:
                    pods = model.new_int_var(0, most, f"to{bin_}.{number}")
                    self._arrivals[bin_, (size, refused)] = pods
                    here.append(size * pods)
                    arriving[size, refused].append(pods)
            if here or wanted[bin_]:
                model.add(own[bin_] - sum(gone[bin_]) + sum(here) + sum(wanted[bin_]) <= capacity)
            if here:
                # A bin that nobody comes to may have more lent than it can give.
                used = model.new_bool_var(f"used{bin_}")
                model.add(sum(here) <= capacity * used)
                left = own[bin_] + lent[bin_] - sum(gone[bin_]) - sum(guests[bin_]) + sum(here)
                model.add(left <= capacity).only_enforce_if(used)
        for sort, moved in sorts.items():
            model.add(sum(arriving[sort]) == sum(moved))

    def solve(self, time: float) -> Solution | None:
        """Reach one goal after the other; None if not even the first is reached in time."""
        costs = [parts_of(mover.cost) for mover in self._puzzle.movers]
        lost = sum(one[0] * move for one, move in zip(costs, self._moves, strict=True))
        groups = sum(one[1] * move for one, move in zip(costs, self._moves, strict=True))
        goals = ((sum(self._met), True), (lost, False), (groups, False))
        solver, bounds, reached = None, [], []
        for goal, is_most in goals:
            (self._model.maximize if is_most else self._model.minimize)(goal)
            tried = cp_model.CpSolver()
            tried.parameters.num_workers = 1
            tried.parameters.random_seed = 1
            tried.parameters.max_deterministic_time = time
            status = tried.solve(self._model)
            if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
                break
            solver = tried
            value, bound = round(tried.objective_value), tried.best_objective_bound
            reached.append(value)
            bounds.append(math.floor(bound + EPSILON) if is_most else math.ceil(bound - EPSILON))
            self._model.add(goal == value)
            self._model.clear_hints()
            for variable in (*self._moves, *self._arrivals.values(), *self._met):
                self._model.add_hint(variable, tried.value(variable))
        return self._solution(solver, reached, bounds) if solver is not None else None

    def _solution(self, solver: cp_model.CpSolver, reached: list[int], bounds: list[int]) -> Solution:
        moved = tuple(number for number, move in enumerate(self._moves) if solver.value(move))
        counts = {key: solver.value(pods) for key, pods in self._arrivals.items()}
        cost = sum(self._puzzle.movers[number].cost for number in moved)
        least = 0
        if len(bounds) > 1:
            is_exact = len(bounds) > 2 and bounds[1] == reached[1]
            least = cost_of(bounds[1], bounds[2] if is_exact else 0)
        met = tuple(solver.value(one) for one in self._met)
        return Solution(met, moved, _bins(self._puzzle, moved, counts), cost, bounds[0], min(cost, least))


def _bins(puzzle: Puzzle, moved: tuple[int, ...], counts: dict[tuple[int, Sort], int]) -> dict[int, tuple[int, ...]]:
    """A bin for each pod, as many of each sort as the counts say; near the old place."""
    left: dict[Sort, list[int]] = {}
    for (bin_, sort), count in sorted(counts.items(), key=lambda each: each[0][0]):
        left.setdefault(sort, []).extend([bin_] * count)
    pods = pods_of(puzzle, moved)
    found: dict[int, tuple[int, ...]] = {}
    homes: dict[int, int] = {}
    for pod in pods:
        near = homes.get(pod.mover, pod.home)
        here = left[pod.size, pod.refused]
        best = min(here, key=lambda bin_: (puzzle.parents[bin_] != puzzle.parents[near], abs(bin_ - near)))
        here.remove(best)
        homes.setdefault(pod.mover, best)
        found[pod.mover] = (*found.get(pod.mover, ()), best)
    return found
