"""Exit codes that say what would become of a job: of `hived submit --dry-run`, and `hived why --if`."""

RUNS = 0
REFUSED = 1
WAITS = 3
NEVER = 4

_WORST_FIRST = (REFUSED, NEVER, WAITS, RUNS)
_CODE_OF = {"refused": REFUSED, "never": NEVER, "wait": WAITS}


def worst(outcomes: list[str]) -> int:
    """The exit code of the worst of these outcomes: refused, never, wait, or any that runs."""
    codes = {_CODE_OF.get(outcome, RUNS) for outcome in outcomes}
    return next((code for code in _WORST_FIRST if code in codes), RUNS)
