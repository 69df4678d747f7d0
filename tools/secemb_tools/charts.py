"""Plots as SVG text for any browser, in light or dark mode: no scripts, no external resources."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 320, 64, 16, 54, 44
COLOURS = ("#2f81f7", "#e5734a", "#3f9142", "#8957e5", "#b58900", "#d6336c")
INK = "#7d8590"  # readable on white and on black
_STEPS = 6  # at most, on each axis
_LETTER = 7  # approximate width of a letter

Points = Sequence[tuple[float, float]]

_TEMPLATES = Environment(
    loader=PackageLoader("secemb_tools"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """One line of a chart, in the picture's coordinates."""

    name: str  # empty: not in the legend
    legend: float  # position of its name
    places: Points
    colour: str
    dashed: bool


def line_chart(
    series: Mapping[str, Points],
    *,
    title: str,
    across: str,
    pairs: bool = False,
    doubling: bool = False,
    level: tuple[str, float] | None = None,
    span: tuple[float, float] | None = None,
) -> str:
    """Return lines through points. All but the first are dashed, so that overlapping lines are visible.

    With `pairs` every two neighbours share a colour; the second is dashed and has no name. With `doubling` the x axis
    is logarithmic. A level is a horizontal line with a name. With `span` the y axis has these limits, such as 0 and 100
    for percentages, instead of limits from the points.
    """
    points = [point for one in series.values() for point in one]
    if not points:
        return bar_chart({}, title=f"{title}: nothing was measured", unit="")
    frame = _Frame(points if level is None else [*points, (points[0][0], level[1])], doubling=doubling, span=span)
    return _TEMPLATES.get_template("lines.svg").render(
        title=title,
        across=across,
        lines=_lines(series, frame, pairs=pairs),
        levels=[(frame.up(value), f"{value:.6g}") for value in frame.levels],
        ticks=[(frame.across(value), f"{value:.6g}") for value in frame.ticks],
        mark={"name": level[0], "y": frame.up(level[1])} if level is not None else None,
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        right=WIDTH - RIGHT,
        bottom=HEIGHT - BOTTOM,
        ink=INK,
    )


def bar_chart(bars: Mapping[str, float], *, title: str, unit: str) -> str:
    """Return one bar for each name, followed by its figure."""
    largest = max(bars.values(), default=0.0) or 1.0
    drawn = [
        {
            "name": name,
            "length": max(2.0, (WIDTH - 140) * value / largest),
            "colour": COLOURS[place % len(COLOURS)],
            "figure": f"{value:,.3g} {unit}",
        }
        for place, (name, value) in enumerate(bars.items())
    ]
    return _TEMPLATES.get_template("bars.svg").render(bars=drawn, title=title, width=WIDTH, ink=INK)


def _lines(series: Mapping[str, Points], frame: "_Frame", *, pairs: bool) -> list[_Line]:
    lines, legend = [], float(LEFT)
    for place, (name, values) in enumerate(series.items()):
        second = pairs and place % 2 == 1
        lines.append(
            _Line(
                name="" if second else name,
                legend=legend,
                places=[(frame.across(x), frame.up(y)) for x, y in values],
                colour=COLOURS[(place // 2 if pairs else place) % len(COLOURS)],
                dashed=second if pairs else place > 0,
            )
        )
        legend += 0 if second else _LETTER * len(name) + 40
    return lines


class _Frame:
    """Converts numbers to positions in the picture."""

    def __init__(self, points: Points, *, doubling: bool, span: tuple[float, float] | None) -> None:
        self._scale: Callable[[float], float] = math.log if doubling else float
        xs, ys = sorted({x for x, _ in points}), [y for _, y in points]
        self._first, self._last = self._scale(xs[0]), max(self._scale(xs[-1]), self._scale(xs[0]) + 1e-9)
        inside = [x for x in _round_steps(xs[0], xs[-1]) if xs[0] <= x <= xs[-1]]
        self.ticks = xs if doubling else inside or xs[:1]
        margin = 0.02 * (max(ys) - min(ys)) or 0.05 * abs(max(ys)) or 1.0
        self.levels = _round_steps(*(span or (min(ys) - margin, max(ys) + margin)))

    def across(self, x: float) -> float:
        """Return the horizontal position of a number."""
        share = (self._scale(x) - self._first) / (self._last - self._first)
        return LEFT + (WIDTH - LEFT - RIGHT) * share

    def up(self, y: float) -> float:
        """Return the vertical position of a number."""
        share = (y - self.levels[0]) / (self.levels[-1] - self.levels[0])
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share


def _round_steps(low: float, high: float) -> list[float]:
    """Return a few evenly spaced round numbers from below `low` to above `high`."""
    wide = max((high - low) / (_STEPS - 1), 1e-9)
    power = 10.0 ** math.floor(math.log10(wide))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= wide * (1 - 1e-9))
    return [step * place for place in range(math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9) + 1)]
