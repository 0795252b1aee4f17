"""All figures of a page, in order: each has a sentence, plots, a legend and the numbers as a table."""

from collections.abc import Sequence

from hived_simulator.report.bar_figures import evictions, excess, locality, waits
from hived_simulator.report.line_figures import delays, delays_by_vc, free_cells, use
from hived_simulator.report.parts import Figure
from hived_simulator.report.reading import Result


def figures_of(results: Sequence[Result]) -> list[Figure]:
    """All figures that these results have something for."""
    found = [
        delays(results), delays_by_vc(results), excess(results), use(results), free_cells(results), waits(results),
        evictions(results), locality(results),
    ]  # fmt: skip
    return [figure for figure in found if figure is not None]
