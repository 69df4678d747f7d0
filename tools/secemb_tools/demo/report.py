"""The demonstration as one HTML file: tables, plots and the two shares; no scripts, no external resources."""

from collections.abc import Iterator

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from secemb_tools.charts import bar_chart, line_chart
from secemb_tools.demo.evidence import Corner, Numbers
from secemb_tools.demo.result import (
    EXPLANATION,
    WHAT,
    DemoResult,
    comparison,
    data_words,
    opened_sum,
    person_lines,
    quality_words,
    server_views,
)
from secemb_tools.simulation.run import points_of

_TEMPLATES = Environment(loader=PackageLoader("secemb_tools.demo"), autoescape=True, undefined=StrictUndefined)
_COLUMNS = 17  # of a panel: wider rows are truncated
_LEVELS = 4  # shades of each colour
_BITS = 31  # of the largest number
_COLOURS = ("#2f81f7", "#e5734a")  # of positive and of negative numbers
_SQUARE, _GAP, _TOP = 10, 44, 34  # pixels: of a number, between two panels, and above them


def render_report(result: DemoResult) -> str:
    """Return the report."""
    return _TEMPLATES.get_template("report.html").render(
        result=result,
        scenario=result.run.scenario,
        what=WHAT,
        data_words=data_words(result.run.scenario),
        quality_words=quality_words(result),
        comparison=comparison(result),
        person=result.person,
        person_lines=[] if result.person is None else person_lines(result.person),
        server_views=server_views(result),
        opened_sum=opened_sum(result),
        explanation=EXPLANATION,
        rounds=list(_rounds(result)),
        picture=Markup("" if result.corner is None else draw(result.corner)),  # noqa: S704 (numbers only)
        score_chart=Markup(_score_chart(result)),  # noqa: S704 (charts escape what they show)
        error_chart=Markup(_error_chart(result)),  # noqa: S704
        traffic_chart=Markup(_traffic_chart(result)),  # noqa: S704
        seconds_chart=Markup(_seconds_chart(result)),  # noqa: S704
    )


def _score_chart(result: DemoResult) -> str:
    baselines, rmse = result.baselines, result.run.rmse
    if baselines is None or rmse is None:
        return ""
    bars = {"with SecEmb": rmse, "user and item biases": baselines.biases, "the mean rating": baselines.global_mean}
    return bar_chart(bars, title="error on held-out ratings (RMSE): lower is better", unit="")


def _error_chart(result: DemoResult) -> str:
    series = {"private": points_of(result.run.rows), "plain": points_of(result.run.plain or [])}
    return line_chart(series, title="RMSE of the fleet on held-out ratings", across="round")


def _traffic_chart(result: DemoResult) -> str:
    traffic = result.traffic
    bars = {
        "with SecEmb": (traffic.sent + traffic.received) / 1e3,
        "the whole table, secret-shared": (traffic.full_sent + traffic.full_received) / 1e3,
    }
    return bar_chart(bars, title="kilobytes in both directions, both servers combined", unit="kB")


def _seconds_chart(result: DemoResult) -> str:
    seconds = [(float(one.round), one.seconds) for one in result.rounds]
    return line_chart({"seconds": seconds}, title="Seconds per round", across="round")


def _rounds(result: DemoResult) -> Iterator[tuple[str, ...]]:
    for one in result.rounds:
        rmse = one.figures.get("rmse")
        yield (
            str(one.round),
            one.kind,
            *map(str, (one.retrieved, one.uploaded, one.matched, one.dropped)),
            f"{one.seconds:.2f}",
            "" if rmse is None else f"{rmse:.4f}",
            f"v{one.version} {one.digest[:8]}",
            "equal" if one.digests_equal else "differ",
        )


def draw(corner: Corner) -> str:
    """Return server 0's share + server 1's share = the sum. A zero is blank, a larger number is darker."""
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
    """Yield the squares of each colour and shade: colour, opacity and outline."""
    signed = numbers.view(np.int32).astype(np.int64)
    strength = np.ceil(np.log2(np.abs(signed) + 1) / _BITS * _LEVELS).clip(0, _LEVELS)
    for negative, colour in enumerate(_COLOURS):
        for level in range(1, _LEVELS + 1):
            chosen = np.argwhere(((signed < 0) == bool(negative)) & (strength == level))
            if chosen.size:
                squares = (f"M{x * _SQUARE} {y * _SQUARE}h{_SQUARE}v{_SQUARE}h-{_SQUARE}z" for y, x in chosen.tolist())
                yield colour, level / _LEVELS, "".join(squares)
