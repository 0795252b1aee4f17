"""What rules 2 have to reach: every bound in one place."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hived.specs import Rules
from tests.quality.exact_measures import Figures
from tests.quality.large_measures import DEFAULT, SPARING, WITHIN
from tests.quality.plan import CRASHED, Unit

MOST_LATER = 0  # jobs that start later than in their private cluster
MOST_NEEDLESS = 0  # preemptions although a placement with the same future for the VC evicts nobody
MOST_NEEDLESS_SPARING = 0  # in sparing VCs, preemptions although any placement of the VC evicts nobody
MOST_FALSE_WAITS = 0
LEAST_NEAR = 0.95  # share of gangs at the lowest common level that is possible
MOST_LOST = 1.0  # GPU-hours lost, as a multiple of the reference's
MOST_EVICTIONS = 5  # of one job from lent cells, which rests longer after each
TRACES, CROWDS = ("philly", "trace"), ("crowd", "trace_crowd")  # measures with the same arguments and figures
Results = list[tuple[Unit, Figures]]


@dataclass(frozen=True, slots=True)
class Miss:
    """A bound that rules 2 miss."""

    table: str
    what: str
    figure: float
    bound: float


def misses(results: Results) -> list[Miss]:
    """All bounds missed by what was measured for rules 2, and crashes of either.

    Lost hours are judged only where both rules were measured.
    """
    crashed = [Miss("crash", unit.name, 1, 0) for unit, figures in results if figures == CRASHED]
    results = [(unit, figures) for unit, figures in results if figures != CRASHED]
    found = crashed + [
        miss for unit, figures in results if unit.rules is Rules.BETTER for miss in _misses(unit, figures)
    ]
    for (name, load), figures in near_by_load(results, Rules.BETTER).items():
        for kind, words in (("", "guaranteed"), ("lent_", "opportunistic")):
            gangs, near = figures.get(f"{kind}gangs", 0), figures.get(f"{kind}near", 0)
            if near < LEAST_NEAR * gangs:
                found.append(Miss("locality", f"{words} gangs, {name}, load {load}", near / gangs, LEAST_NEAR))
    lost: dict[str, dict[Rules, float]] = {}
    for unit, figures in results:
        if load := _load(unit):
            by_rules = lost.setdefault(load, {})
            by_rules[unit.rules] = by_rules.get(unit.rules, 0.0) + figures["lost"]
    for load, by_rules in lost.items():
        if len(by_rules) == len(Rules) and by_rules[Rules.BETTER] > MOST_LOST * by_rules[Rules.HIVED]:
            found.append(Miss("saturation", f"GPU-hours lost, {load}", by_rules[Rules.BETTER], by_rules[Rules.HIVED]))
    return found


def near_by_load(results: Results, rules: Rules) -> dict[tuple[str, str], Figures]:
    """Figures of gangs, added up by set-up and load."""
    found: dict[tuple[str, str], list[Figures]] = {}
    for unit, figures in results:
        if unit.measure in CROWDS and unit.rules is rules:
            cells, way, load, *_ = unit.arguments
            name = f"{cells}, {way}" if way else str(cells)
            name = f"trace {name}" if unit.measure == "trace_crowd" else name
            found.setdefault((name, "<= .5" if float(load) <= 0.5 else ">= .7"), []).append(figures)
    return {key: added(some) for key, some in found.items()}


def added(some: Iterable[Figures]) -> Figures:
    """Figures of several measurements, added up."""
    total: Figures = {}
    for figures in some:
        for name, value in figures.items():
            total[name] = total.get(name, 0) + value
    return total


def _load(unit: Unit) -> str:
    """The load of which GPU-hours lost are added up; "" if they are not judged."""
    match unit.measure, unit.arguments:
        case "crowd", (_, way, load, _, _) if way in (DEFAULT, WITHIN):
            return f"random jobs{f' {way}' if way else ''} at {load}"
        case "trace_crowd", (_, "", load, _, _):
            return f"jobs of the trace at {load}, half opportunistic"
        case "trace", (cells, False, True, checkpoint_s, load, _):
            return f"trace {cells} over quota, load {load}, checkpoints {checkpoint_s:.0f} s"
        case "philly", (cells, False, True, checkpoint_s, days):
            return f"Philly {cells} over quota, {days} days, checkpoints {checkpoint_s:.0f} s"
    return ""


def is_sparing(unit: Unit) -> bool:
    """Do the VCs say `sparing: true`?"""
    match unit.measure, unit.arguments:
        case (("guarantee" | "crowd" | "trace_crowd"), (_, way, *_)):
            return way == SPARING
        case "needless", (_, _, spares, *_):
            return bool(spares)
    return False


def _misses(unit: Unit, figures: Figures) -> Iterator[Miss]:
    # over quota (third argument of TRACES) evicted jobs run again from the start, which no placement can prevent
    # and sparing VCs give up the guarantee for that nobody leaves
    is_judged = unit.measure == "guarantee" or (unit.measure in TRACES and not unit.arguments[2])
    is_judged = is_judged and not is_sparing(unit)
    if is_judged and figures["later"] > MOST_LATER:
        yield Miss("guarantee", unit.name, figures["later"], MOST_LATER)
    if unit.measure in {"needless", "evictions", *CROWDS} and figures.get("equal", 0) > MOST_NEEDLESS:
        yield Miss("needless", unit.name, figures["equal"], MOST_NEEDLESS)
    if is_sparing(unit) and figures.get("any", 0) > MOST_NEEDLESS_SPARING:
        yield Miss("needless", unit.name, figures["any"], MOST_NEEDLESS_SPARING)
    if unit.measure == "false_waits" and figures.get("false", 0) > MOST_FALSE_WAITS:
        yield Miss("completeness", unit.name, figures["false"], MOST_FALSE_WAITS)
    if unit.measure == "lending" and figures["most_evictions"] > MOST_EVICTIONS:
        yield Miss("lending", unit.name, figures["most_evictions"], MOST_EVICTIONS)
