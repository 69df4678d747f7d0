"""Both servers' shares and their sum, drawn as one SVG: each number is a square."""

from collections.abc import Iterator

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from secemb_tools.demo.evidence import Corner, Numbers

_TEMPLATES = Environment(loader=PackageLoader("secemb_tools.demo"), autoescape=True, undefined=StrictUndefined)
_COLUMNS = 17  # of a panel: wider rows are cut
_LEVELS = 4  # strengths of each colour
_BITS = 31  # of the largest number
_COLOURS = ("#2f81f7", "#e5734a")  # of positive and of negative numbers
_SQUARE, _GAP, _TOP = 10, 44, 34  # pixels: of a number, between two panels, and above them


def draw(corner: Corner) -> str:
    """Return server 0's share + server 1's share = the sum. A zero is blank, a larger number is stronger."""
    panels = [*corner.shares, corner.total]
    names = ("server 0 holds", "server 1 holds", "the sum")
    rows, columns = panels[0][:, :_COLUMNS].shape
    width, height = columns * _SQUARE, rows * _SQUARE
    return _TEMPLATES.get_template("shares.svg").render(
        panels=[
            {"x": place * (width + _GAP), "name": name, "paths": list(_paths(numbers[:, :_COLUMNS]))}
            for place, (name, numbers) in enumerate(zip(names, panels, strict=True))
        ],
        signs=[(width + _GAP / 2, "+"), (2 * width + 1.5 * _GAP, "=")],
        width=3 * width + 2 * _GAP,
        height=_TOP + height,
        size=(width, height),
        top=_TOP,
    )


def _paths(numbers: Numbers) -> Iterator[tuple[str, float, str]]:
    """Yield the squares of each colour and strength: colour, opacity and outline."""
    signed = numbers.view(np.int32).astype(np.int64)
    strength = np.ceil(np.log2(np.abs(signed) + 1) / _BITS * _LEVELS).clip(0, _LEVELS)
    for negative, colour in enumerate(_COLOURS):
        for level in range(1, _LEVELS + 1):
            chosen = np.argwhere(((signed < 0) == bool(negative)) & (strength == level))
            if chosen.size:
                squares = (f"M{x * _SQUARE} {y * _SQUARE}h{_SQUARE}v{_SQUARE}h-{_SQUARE}z" for y, x in chosen.tolist())
                yield colour, level / _LEVELS, "".join(squares)
