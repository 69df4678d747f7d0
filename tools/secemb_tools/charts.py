"""Plots as SVG text that any browser shows, light or dark: no library, no request to anybody."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 320, 64, 16, 54, 44
COLOURS = ("#2f81f7", "#e5734a", "#3f9142", "#8957e5")
INK = "#7d8590"  # readable on white and on black
_STEPS = 6  # at most, on each side
_LETTER = 7  # width of one, about

Points = Sequence[tuple[float, float]]


def line_chart(
    series: Mapping[str, Points],
    *,
    title: str,
    across: str,
    pairs: bool = False,
    doubling: bool = False,
    level: tuple[str, float] | None = None,
) -> str:
    """Return lines through points; the later ones of a name that lies on another are dashed, so that both show.

    Two neighbours that are a pair share a colour, and the second one is dashed and not named. With `doubling` each step
    to the right multiplies. A level is a line of its own, from side to side.
    """
    points = [point for one in series.values() for point in one]
    if not points:
        return _svg([_text(LEFT, TOP, f"{title}: nothing was measured")], title)
    frame = _Frame(points if level is None else [*points, (points[0][0], level[1])], doubling=doubling)
    parts = [*frame.axes(across), _text(LEFT, 18, title, size=14)]
    legend = LEFT
    for place, (name, values) in enumerate(series.items()):
        colour = COLOURS[(place // 2 if pairs else place) % len(COLOURS)]
        second = pairs and place % 2 == 1
        parts += frame.line(values, colour, dashed=second if pairs else place > 0)
        if not second:
            parts.append(_text(legend, 38, name, colour=colour))
            legend += _LETTER * len(name) + 16
    if level is not None:
        parts += frame.level(*level)
    return _svg(parts, title)


def bar_chart(bars: Mapping[str, float], *, title: str, unit: str) -> str:
    """Return one bar for each name, with its figure behind it."""
    largest = max(bars.values(), default=0.0) or 1.0
    parts = [_text(12, 18, title, size=14)]
    for place, (name, value) in enumerate(bars.items()):
        y, length = 44 + 44 * place, max(2.0, (WIDTH - 140) * value / largest)
        parts.append(_text(12, y, name))
        colour = COLOURS[place % len(COLOURS)]
        parts.append(f'<rect x="12" y="{y + 6}" width="{length:.1f}" height="14" rx="2" fill="{colour}"/>')
        parts.append(_text(20 + length, y + 18, f"{value:,.3g} {unit}"))
    return _svg(parts, title, height=48 + 44 * len(bars))


class _Frame:
    """Where numbers are on the picture."""

    def __init__(self, points: Points, *, doubling: bool) -> None:
        self._scale: Callable[[float], float] = math.log if doubling else float
        xs, ys = sorted({x for x, _ in points}), [y for _, y in points]
        self._first, self._last = self._scale(xs[0]), max(self._scale(xs[-1]), self._scale(xs[0]) + 1e-9)
        inside = [x for x in _round_steps(xs[0], xs[-1]) if xs[0] <= x <= xs[-1]]
        self._ticks = xs if doubling else inside or xs[:1]
        margin = 0.02 * (max(ys) - min(ys)) or 0.05 * abs(max(ys)) or 1.0
        self._lines = _round_steps(min(ys) - margin, max(ys) + margin)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the place of a point."""
        across = (self._scale(x) - self._first) / (self._last - self._first)
        up = (y - self._lines[0]) / (self._lines[-1] - self._lines[0])
        return LEFT + (WIDTH - LEFT - RIGHT) * across, HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * up

    def axes(self, across: str) -> Iterator[str]:
        """Yield the lines and numbers at the sides."""
        for value in self._lines:
            y = self.at(self._ticks[0], value)[1]
            yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{INK}" stroke-opacity="0.25"/>'
            yield _text(LEFT - 8, y + 4, f"{value:.6g}", anchor="end")
        for place in self._ticks:
            x = self.at(place, self._lines[0])[0]
            yield _text(x, HEIGHT - BOTTOM + 18, f"{place:.6g}", anchor="middle")
        yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, across, anchor="middle")

    def line(self, values: Points, colour: str, *, dashed: bool) -> Iterator[str]:
        """Yield a line and its points."""
        places = [self.at(x, y) for x, y in values]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        dash = ' stroke-dasharray="2 6" stroke-width="4"' if dashed else ' stroke-width="2"'
        yield f'<polyline points="{path}" fill="none" stroke="{colour}"{dash}/>'
        if not dashed:
            yield from (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places)

    def level(self, name: str, value: float) -> Iterator[str]:
        """Yield a line from side to side with its name on it."""
        y = self.at(self._ticks[0], value)[1]
        yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{INK}" stroke-width="1.5" stroke-dasharray="8 4"/>'
        yield _text(LEFT + 6, y - 5, name)


def _round_steps(low: float, high: float) -> list[float]:
    """Return round numbers from below `low` to above `high`, evenly spaced, a few of them."""
    wide = max((high - low) / (_STEPS - 1), 1e-9)
    power = 10.0 ** math.floor(math.log10(wide))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= wide * (1 - 1e-9))
    return [step * place for place in range(math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9) + 1)]


def _svg(parts: Sequence[str], title: str, *, height: int = HEIGHT) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(title, quote=True)}" font-family="system-ui, sans-serif">\n{body}\n</svg>\n'
    )


def _text(x: float, y: float, words: str, *, anchor: str = "start", colour: str = INK, size: int = 12) -> str:
    style = f'text-anchor="{anchor}" fill="{colour}" font-size="{size}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(words)}</text>'
