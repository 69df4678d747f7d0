"""Curves of the error over the rounds, as an SVG that any browser shows."""

from collections.abc import Iterable, Sequence
from html import escape

from secemb_tools.report.figures import Figures

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 420, 60, 150, 20, 45
COLOURS = ("#0b6e99", "#c2410c", "#3f7d20", "#7e22ce")
LOWEST, HIGHEST = 0.89, 1.01  # what is worse than this is the beginning, and not of interest

XY = tuple[float, float]


def draw(found: Sequence[Figures], control: float) -> str:
    """Return the picture: a line for each plain run, a ring for each point of the private one, the control dashed."""
    longest = max(figures.rounds for figures in found)
    parts = [*_axes(longest), *_control(control)]
    for place, (figures, colour) in enumerate(zip(found, COLOURS, strict=False)):
        parts += _run(figures, colour, place, longest)
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="#fff"/>\n{body}\n</svg>\n'
    )


def _at(round_: float, error: float, longest: int) -> XY:
    across = LEFT + (WIDTH - LEFT - RIGHT) * round_ / longest
    share = (min(max(error, LOWEST), HIGHEST) - LOWEST) / (HIGHEST - LOWEST)
    return across, HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share


def _axes(longest: int) -> Iterable[str]:
    for step in range(7):
        error = LOWEST + step * (HIGHEST - LOWEST) / 6
        x, y = _at(0, error, longest)
        yield f'<line x1="{x}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#e5e5e5"/>'
        yield _text(x - 8, y + 4, f"{error:.2f}", anchor="end")
    for quarter in range(5):
        x, y = _at(longest * quarter / 4, LOWEST, longest)
        yield _text(x, y + 18, f"{longest * quarter // 4:,}", anchor="middle")
    yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "rounds of 100 devices", anchor="middle")
    yield _text(LEFT, TOP - 6, "RMSE; line: plain, rings: private")


def _control(control: float) -> Iterable[str]:
    x, y = _at(0, control, 1)
    yield f'<line x1="{x}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#666" stroke-dasharray="5 4"/>'
    yield _text(WIDTH - RIGHT + 8, y + 4, f"biases only {control:.3f}", colour="#666")


def _run(figures: Figures, colour: str, place: int, longest: int) -> Iterable[str]:
    line = " ".join("{:.1f},{:.1f}".format(*_at(one.round, one.plain, longest)) for one in figures.curve)
    yield f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
    for point in figures.curve:
        if point.private is not None:
            x, y = _at(point.round, point.private, longest)
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="none" stroke="{colour}"/>'
    yield _text(WIDTH - RIGHT + 8, TOP + 14 + 18 * place, f"{figures.model} {figures.plain:.3f}", colour=colour)


def _text(x: float, y: float, words: str, *, anchor: str = "start", colour: str = "#333") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'
