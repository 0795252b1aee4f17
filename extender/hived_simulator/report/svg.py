"""Elements of SVG as text. Colours are attributes and classes: plots are right where styles are refused, too."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple
from xml.etree import ElementTree

COLOURS = ("#0072b2", "#d55e00", "#00855f", "#b5539a", "#8a6d00", "#3a9bd6", "#6b4fbb", "#707070")
"""Told apart by people who see few colours; `page` has others for dark screens."""
DASHES = ("", "7 3", "2 2", "9 3 2 3")
INK, GRID = "#444444", "#d0d0d0"


class Stroke(NamedTuple):
    """The stroke of a policy on a page: colour and dashes. `is_wide`: behind others that may cover it."""

    number: int
    is_wide: bool = False

    @property
    def colour(self) -> str:
        """The colour on light ground."""
        return COLOURS[self.number % len(COLOURS)]

    @property
    def attributes(self) -> str:
        """Of a line."""
        dashes = "" if self.is_wide else DASHES[self.number // len(COLOURS) % len(DASHES)]
        broad = ' stroke-width="6" stroke-opacity=".35"' if self.is_wide else ' stroke-width="1.8"'
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        return f'class="s{self.number % len(COLOURS)}" fill="none" stroke="{self.colour}"{broad}{dashed}'

    @property
    def fill(self) -> str:
        """Attributes of an area."""
        return f'class="f{self.number % len(COLOURS)}" fill="{self.colour}"'


def drawing(width: float, height: float, title: str, description: str, parts: Iterable[str]) -> str:
    """A picture that screen readers read as its title and description. It is as wide as there is room."""
    return (
        f'<svg viewBox="0 0 {_n(width)} {_n(height)}" role="img" xmlns="http://www.w3.org/2000/svg"'
        f' font-family="system-ui, sans-serif" font-size="11"><title>{escape(title)}</title>'
        f"<desc>{escape(description)}</desc>{''.join(parts)}</svg>"
    )


def alone(picture: str, legend: Sequence[tuple[str, Stroke]], is_area: bool) -> str:
    """A drawing as a file of its own: on white, its legend above it. Cost O(length)."""
    found = ElementTree.fromstring(picture)
    width, height = (float(each) for each in found.get("viewBox", "").split()[2:])
    signs, x, y = [], 0.0, 0.0
    for words, stroke in legend:
        room = 40 + 6.2 * len(words)
        if x and x + room > width:
            x, y = 0.0, y + 17
        sign = swatch(stroke, is_area) + text(17 if is_area else 28, 10, words)
        signs.append(f'<g transform="translate({_n(x)} {_n(y)})">{sign}</g>')
        x += room
    above = y + 24 if legend else 0.0
    inner = picture.replace("<svg ", f'<svg y="{_n(above)}" width="{_n(width)}" height="{_n(height)}" ', 1)
    box = f"-12 -10 {_n(width + 24)} {_n(above + height + 20)}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" width="640" font-family="system-ui, sans-serif"'
        ' font-size="11"><rect x="-12" y="-10" width="100%" height="100%" rx="6" fill="#ffffff"/>'
        f"{''.join(signs)}{inner}</svg>\n"
    )


def text(x: float, y: float, words: str, anchor: str = "start") -> str:
    """Words at a place; `anchor` is start, middle or end."""
    placed = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="ink" fill="{INK}" x="{_n(x)}" y="{_n(y)}"{placed}>{escape(words)}</text>'


def rule(x1: float, y1: float, x2: float, y2: float) -> str:
    """A thin line of a grid."""
    return f'<path class="grid" stroke="{GRID}" d="M{_n(x1)} {_n(y1)}L{_n(x2)} {_n(y2)}"/>'


def path(points: Sequence[tuple[float, float]], stroke: Stroke, title: str) -> str:
    """A line through some points, named where a pointer rests on it."""
    if not points:
        return ""
    steps = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
    named = f"<title>{escape(title)}</title>"
    return f'<polyline {stroke.attributes} stroke-linejoin="round" points="{steps}">{named}</polyline>'


def box(x: float, y: float, width: float, height: float, stroke: Stroke, title: str) -> str:
    """A filled rectangle, named where a pointer rests on it."""
    place = f'x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}"'
    return f"<rect {stroke.fill} {place}><title>{escape(title)}</title></rect>"


def swatch(stroke: Stroke, is_area: bool) -> str:
    """The sign of a legend."""
    inner = f'<rect {stroke.fill} width="12" height="12"/>' if is_area else f'<path {stroke.attributes} d="M0 6H22"/>'
    width = 12 if is_area else 22
    return f'<svg width="{width}" height="12" viewBox="0 0 {width} 12" aria-hidden="true">{inner}</svg>'


def _n(value: float) -> str:
    found = f"{value:.1f}".removesuffix(".0")
    return "0" if found == "-0" else found
