"""Plots as SVG text that any browser shows, light or dark: no library, no request to anybody."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 300, 64, 16, 40, 44
COLOURS = ("#2f81f7", "#e5734a", "#3f9142", "#8957e5")
INK = "#7d8590"  # readable on white and on black
STEPS = 5

Points = Sequence[tuple[float, float]]


def line_chart(series: Mapping[str, Points], *, title: str, across: str, pairs: bool = False) -> str:
    """Return lines through points; the later ones of a name that lies on another are dashed, so that both show.

    Two neighbours that are a pair share a colour, and the second one is dashed.
    """
    points = [point for one in series.values() for point in one]
    if not points:
        return _svg([_text(LEFT, TOP, f"{title}: nothing was measured")], title)
    frame = _Frame(points)
    parts = [*frame.axes(across), _text(LEFT, 18, title, size=14)]
    for place, (name, values) in enumerate(series.items()):
        colour = COLOURS[(place // 2 if pairs else place) % len(COLOURS)]
        parts += frame.line(values, colour, dashed=place % 2 == 1 if pairs else place > 0)
        parts.append(_text(WIDTH - RIGHT, 18 + 16 * place, name, anchor="end", colour=colour))
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

    def __init__(self, points: Points) -> None:
        xs, ys = [x for x, _ in points], [y for _, y in points]
        self._first, self._last = min(xs), max(*xs, min(xs) + 1e-9)
        margin = 0.08 * (max(ys) - min(ys)) or 0.05 * abs(max(ys)) or 1.0
        self._low, self._high = min(ys) - margin, max(ys) + margin

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the place of a point."""
        across = (x - self._first) / (self._last - self._first)
        up = (y - self._low) / (self._high - self._low)
        return LEFT + (WIDTH - LEFT - RIGHT) * across, HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * up

    def axes(self, across: str) -> Iterator[str]:
        """Yield the lines and numbers at the sides."""
        for step in range(STEPS + 1):
            value = self._low + step * (self._high - self._low) / STEPS
            x, y = self.at(self._first, value)
            yield f'<path d="M{x} {y:.1f}H{WIDTH - RIGHT}" stroke="{INK}" stroke-opacity="0.25"/>'
            yield _text(x - 8, y + 4, f"{value:.3g}", anchor="end")
            place = self._first + step * (self._last - self._first) / STEPS
            yield _text(self.at(place, self._low)[0], HEIGHT - BOTTOM + 18, f"{place:.0f}", anchor="middle")
        yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, across, anchor="middle")

    def line(self, values: Points, colour: str, *, dashed: bool) -> Iterator[str]:
        """Yield a line and its points."""
        places = [self.at(x, y) for x, y in values]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        dash = ' stroke-dasharray="2 6" stroke-width="4"' if dashed else ' stroke-width="2"'
        yield f'<polyline points="{path}" fill="none" stroke="{colour}"{dash}/>'
        if not dashed:
            yield from (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places)


def _svg(parts: Sequence[str], title: str, *, height: int = HEIGHT) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(title, quote=True)}" font-family="system-ui, sans-serif">\n{body}\n</svg>\n'
    )


def _text(x: float, y: float, words: str, *, anchor: str = "start", colour: str = INK, size: int = 12) -> str:
    style = f'text-anchor="{anchor}" fill="{colour}" font-size="{size}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(words)}</text>'
