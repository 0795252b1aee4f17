"""Placing a new group in one view under better rules: the VC's own choice of cells, then the hardware (rules 18)."""

from hived.decisions import Wait
from hived.nearness import Request
from hived.placement import Placement, fit_in_view
from hived.state import State


def fit_better(state: State, request: Request, view: int) -> Placement | Wait:
    """A place in one view, or why there is none; stands in for `placement.fit_in_view` under `rules: 2`."""
    return fit_in_view(state, request, view)
