"""Numbers that commands take."""

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A range of numbers without `nan` and `inf`, which click lets through."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. Fails with the range if it is none of it."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no number that can be counted with.", param, ctx)
        return number
