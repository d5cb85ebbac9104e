"""Boxes and arrows as SVG text that needs no script, font or style from elsewhere. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from .device_colors import DeviceColor
from .layered_layout import Point, layered_layout

__all__ = ["Arrow", "Box", "draw", "note"]

LINE_HEIGHT = 15.0
CHAR_WIDTH = 6.9  # of the 12 px font: a little above its average, so that text stays in its box
MOST_CHARS = 34
MARGIN = 18.0
HEAD_HEIGHT = 62.0
LEAST_WIDTH = 420.0


@dataclass(frozen=True)
class Box:
    """What is drawn at one place: a bold heading, lines below it, and a tooltip.

    One without a heading is small and round: a value on its way.
    """

    heading: str
    lines: tuple[str, ...]
    color: DeviceColor
    tooltip: str

    @property
    def size(self) -> Point:
        """Width and height in pixels."""
        bold = 1.1 * len(shortened(self.heading))
        widest = max(bold, *(len(shortened(line)) for line in self.lines))
        if not self.heading:
            return CHAR_WIDTH * widest + 14.0, LINE_HEIGHT * len(self.lines) + 5.0
        return CHAR_WIDTH * widest + 20.0, LINE_HEIGHT * (1 + len(self.lines)) + 11.0


@dataclass(frozen=True)
class Arrow:
    """A line from one box down to another, by their numbers."""

    source: int
    target: int
    has_head: bool = True
    is_dashed: bool = False


def draw(
    title: str, legend: Mapping[str, DeviceColor], boxes: Sequence[Box], arrows: Sequence[Arrow]
) -> str:
    """Place boxes and arrows and draw them under a title and a legend."""
    layout = layered_layout(
        [box.size for box in boxes], [(arrow.source, arrow.target) for arrow in arrows]
    )
    width = max(layout.width, LEAST_WIDTH, CHAR_WIDTH * len(title)) + 2 * MARGIN
    left, top = (width - layout.width) / 2, MARGIN + HEAD_HEIGHT
    parts = []
    for arrow, route in zip(arrows, layout.routes, strict=True):
        parts.append(_line([(x + left, y + top) for x, y in route], arrow))
    for box, (x, y) in zip(boxes, layout.places, strict=True):
        parts += _box(box, x + left, y + top)
    return _document(title, legend, parts, width, layout.height + top + MARGIN)


def note(title: str, legend: Mapping[str, DeviceColor], text: str) -> str:
    """Draw title and legend, and a sentence instead of a picture."""
    width = max(LEAST_WIDTH, CHAR_WIDTH * max(len(text), len(title))) + 2 * MARGIN
    parts = [_text(MARGIN, MARGIN + HEAD_HEIGHT + 12, text)]
    return _document(title, legend, parts, width, HEAD_HEIGHT + 2 * MARGIN + 24)


def shortened(text: str, most: int = MOST_CHARS) -> str:
    """Cut the middle out of what is too long: names differ at their ends."""
    if len(text) <= most:
        return text
    kept = most - 1
    return f"{text[: kept // 2]}…{text[-(kept - kept // 2) :]}"


def _document(
    title: str,
    legend: Mapping[str, DeviceColor],
    parts: Sequence[str],
    width: float,
    height: float,
) -> str:
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-size="12" '
        f'font-family="Helvetica, Arial, sans-serif">',
        f"<title>{escape(title)}</title>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto">',
        '<path d="M0,0 L8,4 L0,8 z" fill="#555555"/></marker></defs>',
        _text(MARGIN, MARGIN + 13, title, 'font-size="15" font-weight="bold"'),
    ]
    x = MARGIN
    for name, color in legend.items():
        lines.append(_rect(x, MARGIN + 26, 15, 15, color, 3))
        lines.append(_text(x + 21, MARGIN + 38, name))
        x += 40 + CHAR_WIDTH * len(name)
    return "\n".join([*lines, *parts, "</svg>", ""])


def _box(box: Box, x: float, y: float) -> list[str]:
    width, height = box.size
    parts = [
        f"<g><title>{escape(box.tooltip)}</title>",
        _rect(x, y, width, height, box.color, 5 if box.heading else height / 2),
    ]
    baseline = y + (17.0 if box.heading else 14.0)
    centre = 'text-anchor="middle"'
    if box.heading:
        bold = f'{centre} font-weight="bold"'
        parts.append(_text(x + width / 2, baseline, shortened(box.heading), bold))
        baseline += LINE_HEIGHT
    for line in box.lines:
        parts.append(_text(x + width / 2, baseline, shortened(line), centre))
        baseline += LINE_HEIGHT
    return [*parts, "</g>"]


def _rect(
    x: float, y: float, width: float, height: float, color: DeviceColor, radius: float
) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'rx="{radius:.1f}" fill="{color.fill}" stroke="{color.line}" stroke-width="1.4"/>'
    )


def _text(x: float, y: float, text: str, attributes: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {attributes}>{escape(text)}</text>'


def _line(points: Sequence[Point], arrow: Arrow) -> str:
    x, y = points[0]
    path = f"M{x:.1f},{y:.1f}"
    for next_x, next_y in points[1:]:
        middle = (y + next_y) / 2
        path += f" C{x:.1f},{middle:.1f} {next_x:.1f},{middle:.1f} {next_x:.1f},{next_y:.1f}"
        x, y = next_x, next_y
    head = ' marker-end="url(#head)"' if arrow.has_head else ""
    dash = ' stroke-dasharray="5 3"' if arrow.is_dashed else ""
    return f'<path d="{path}" fill="none" stroke="#777777" stroke-width="1.2"{dash}{head}/>'
