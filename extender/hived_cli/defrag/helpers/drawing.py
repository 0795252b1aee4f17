"""Plans for defragmentation as text."""

from collections.abc import Iterable, Sequence

import click

from hived_cli.helpers.tables import table
from hived_extender.api.defrag import DefragPlan, Move, PlannedPod, WantedOutcome

SHOWN_PLACES = 4


def draw(plan: DefragPlan) -> str:
    """The plan: what gets room, the moves in their order, and how good it is."""
    lines = [_headline(plan)]
    if plan.reason:
        lines.append(plan.reason)
    if plan.moves:
        lines += ["", _moves(plan.moves)]
        lines += ["", _wanted(plan.wanted), "", _quality(plan)]
    return "\n".join(lines)


def _headline(plan: DefragPlan) -> str:
    met, wanted = sum(one.is_met for one in plan.wanted), len(plan.wanted)
    if plan.outcome == "nothing needed":
        return f"Nothing is needed: virtual cluster {plan.vc} has room for all {wanted} wanted."
    if plan.outcome == "not known":
        return (
            f"No plan was found: virtual cluster {plan.vc} has room for {plan.met_before} of {wanted} wanted. "
            "Whether moves could make more is not known."
        )
    if plan.outcome == "nothing possible":
        return f"Nothing is possible: virtual cluster {plan.vc} has room for {plan.met_before} of {wanted} wanted."
    moves = f"{len(plan.moves)} moves make" if len(plan.moves) > 1 else "1 move makes"
    return (
        f"{moves} room for {met} of {wanted} wanted in virtual cluster {plan.vc}, "
        f"{plan.met_before} had room before; {plan.lost_gpu_hours:.2f} GPU-hours are lost."
    )


def _moves(moves: Sequence[Move]) -> str:
    rows = [
        [
            str(move.step),
            move.group,
            "guaranteed" if move.is_guaranteed else "opportunistic",
            _places(move.was),
            _places(move.becomes) if move.becomes else click.style("waits", fg="yellow"),
            f"{move.lost_gpu_hours:.2f}",
        ]
        for move in moves
    ]
    return table([">STEP", "GROUP", "USE", "FROM", "TO", ">GPU-H LOST"], rows)


def _wanted(wanted: Iterable[WantedOutcome]) -> str:
    rows = [
        [
            one.shape,
            click.style("room", fg="green") if one.is_met else click.style("no room", fg="red"),
            _places(one.places),
            ", ".join(one.preempts),
        ]
        for one in wanted
    ]
    return table(["WANTED", "", "AT", "PREEMPTS"], rows)


def _quality(plan: DefragPlan) -> str:
    if plan.is_optimal:
        return f"The plan is optimal ({plan.solver})."
    gaps = []
    if plan.gap_wanted:
        gaps.append(f"meet {plan.gap_wanted} more")
    if plan.gap_gpu_hours:
        gaps.append(f"lose {plan.gap_gpu_hours:.2f} GPU-hours less")
    if plan.gap_groups:
        gaps.append(f"move {plan.gap_groups} groups fewer")
    return f"The plan may not be optimal ({plan.solver}): a better one could {' or '.join(gaps)} at most."


def _places(places: Sequence[PlannedPod]) -> str:
    shown = [f"{one.node}:{_cells(one.cells)}" for one in places[:SHOWN_PLACES]]
    more = len(places) - SHOWN_PLACES
    return " ".join(shown) + (f" and {more} more" if more > 0 else "")


def _cells(cells: Sequence[int]) -> str:
    """Indices, with runs as `first-last`."""
    runs: list[list[int]] = []
    for cell in sorted(cells):
        if runs and cell == runs[-1][-1] + 1:
            runs[-1].append(cell)
        else:
            runs.append([cell])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
