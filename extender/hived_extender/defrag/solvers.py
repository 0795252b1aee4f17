"""The solvers by name. OR-Tools is imported only where it is asked for: most installations do not have it."""

from collections.abc import Callable
from importlib import import_module

from hived.values.errors import UserError
from hived_extender.defrag import search
from hived_extender.defrag.puzzle import Puzzle, Solution

SEARCH, CP_SAT = "search", "cp-sat"
SOLVERS = (SEARCH, CP_SAT)


def solver(name: str) -> Callable[[Puzzle], Solution]:
    """The solver of a name. Raises UserError if it is not installed."""
    if name == SEARCH:
        return search.solve
    try:
        module = import_module("hived_extender.defrag.cp_sat")
    except ImportError as error:
        raise UserError(
            f"--solver {CP_SAT} needs OR-Tools ({error}): pip install 'hivedscheduler[opt]', or use --solver {SEARCH}"
        ) from error
    solve: Callable[[Puzzle], Solution] = module.solve
    return solve
