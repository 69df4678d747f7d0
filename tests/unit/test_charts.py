"""Plots: whatever was measured is inside the frame, and numbers at the sides are round."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secemb_tools.charts import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Points, bar_chart, line_chart

NUMBER = st.floats(-1e6, 1e6).map(lambda value: round(value, 3))
POINTS = st.lists(st.tuples(st.integers(1, 500).map(float), NUMBER), min_size=1, max_size=12)


def places(picture: str) -> list[tuple[float, float]]:
    lines = re.findall(r'<polyline points="([^"]*)"', picture)
    return [(float(x), float(y)) for line in lines for x, y in (one.split(",") for one in line.split())]


@given(series=st.dictionaries(st.sampled_from(["a", "b", "c"]), POINTS, min_size=1), doubling=st.booleans())
def test_every_point_is_inside_the_frame(series: dict[str, Points], doubling: bool) -> None:
    found = places(line_chart(series, title="t", across="x", doubling=doubling, level=("bar", 0.5)))
    assert len(found) == sum(map(len, series.values()))
    for x, y in found:
        assert LEFT - 0.1 <= x <= WIDTH - RIGHT + 0.1
        assert TOP - 0.1 <= y <= HEIGHT - BOTTOM + 0.1


def test_larger_is_higher_and_later_is_further_right() -> None:
    (x0, y0), (x1, y1) = places(line_chart({"a": [(1, 5.0), (2, 7.0)]}, title="t", across="x"))
    assert x0 < x1
    assert y0 > y1


def test_each_doubling_is_as_wide_as_the_last() -> None:
    line = [(float(2**power), 0.0) for power in range(4)]
    xs = [x for x, _ in places(line_chart({"a": line}, title="t", across="x", doubling=True))]
    widths = [b - a for a, b in pairwise(xs)]
    assert widths == pytest.approx([widths[0]] * 3, abs=0.2)


def test_numbers_at_the_sides_are_round() -> None:
    picture = line_chart({"a": [(1, 0.9412), (30, 1.2207)]}, title="t", across="round")
    assert re.findall(r">([0-9.]+)</text>", picture) == ["0.9", "1", "1.1", "1.2", "1.3", "10", "20", "30"]


def test_an_axis_of_percentages_ends_at_0_and_100() -> None:
    picture = line_chart({"a": [(1, 3.0), (4, 100.0)]}, title="t", across="m'", doubling=True, span=(0, 100))
    assert re.findall(r">([-0-9.]+)</text>", picture) == ["0", "20", "40", "60", "80", "100", "1", "4"]
    assert [y for _, y in places(picture)] == pytest.approx(
        [HEIGHT - BOTTOM - 0.03 * (HEIGHT - TOP - BOTTOM), TOP], abs=0.06
    )


def test_a_pair_has_one_colour_and_one_name() -> None:
    series = {"mf": [(1, 1.0)], "mf dotted": [(1, 2.0)], "fm": [(1, 3.0)], "fm dotted": [(1, 4.0)]}
    picture = line_chart(series, title="t", across="x", pairs=True)
    colours = re.findall(r'<polyline [^>]*stroke="(#[0-9a-f]+)"', picture)
    assert colours[0] == colours[1] != colours[2] == colours[3]
    assert [name in picture for name in ("mf", "fm", "mf dotted", "fm dotted")] == [True, True, False, False]


def test_nothing_measured_says_so() -> None:
    assert "nothing was measured" in line_chart({"a": []}, title="t", across="x")


def test_names_are_text_and_not_markup() -> None:
    for picture in (
        line_chart({"<a>": [(1, 1.0)]}, title='<t>"', across="<x>", level=("<l>", 1.0)),
        bar_chart({"<a>": 1.0}, title='<t>"', unit="<u>"),
        line_chart({}, title="<t>", across="x"),
    ):
        assert "&lt;t&gt;" in picture
        assert not re.findall(r"<[atxlu]>", picture)
