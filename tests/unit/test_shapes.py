"""The check of what `--json` prints: it finds what is missing, what is too much and what is of another kind."""

import json
from typing import Any

import pytest
from tests.e2e.commands import faults_of, read_json

from secemb_tools.shapes import SHAPES, Many, Named, OneOf, Shape
from secemb_tools.shapes.kinds import Lines
from secemb_tools.shapes.writing import write_shape

SHAPE: Shape = {
    "name": str,
    "count": int,
    "error": float | None,
    "rows": Many({"number": int}),
    "notes": Many(str, may_be_empty=True),
    "sizes": Named(int),
    "round": OneOf({"open": bool}, None),
    "more?": str,
}
GOOD: dict[str, Any] = {
    "name": "a",
    "count": 1,
    "error": 2,  # a number need not have a fraction
    "rows": [{"number": 1}, {"number": 2}],
    "notes": [],
    "sizes": {"a": 1},
    "round": {"open": True},
}


def test_what_has_the_shape_has_no_fault() -> None:
    assert list(faults_of(SHAPE, GOOD)) == []
    assert list(faults_of(SHAPE, GOOD | {"error": None, "round": None, "more": "b"})) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": 1}, "it.name"),
        ({"count": 1.5}, "it.count"),
        ({"count": True}, "it.count"),
        ({"error": "0.5"}, "it.error"),
        ({"rows": []}, "it.rows is empty"),
        ({"rows": {}}, "it.rows is dict"),
        ({"rows": [{"number": 1}, {"number": "2"}]}, "it.rows[1].number"),
        ({"rows": [{"number": 1}, {}]}, "it.rows[1] has no number"),
        ({"rows": [{"number": 1, "other": 2}]}, "it.rows[0] has other"),
        ({"notes": [1]}, "it.notes[0]"),
        ({"sizes": {}}, "it.sizes is empty"),
        ({"sizes": {"a": None}}, "it.sizes[a]"),
        ({"round": {"open": None}}, "it.round.open"),
        ({"round": []}, "it.round is no object"),
        ({"more": 1}, "it.more"),
        ({"unknown": 1}, "unknown, which is not documented"),
    ],
)
def test_each_fault_is_found_where_it_is(change: dict[str, Any], words: str) -> None:
    (fault,) = faults_of(SHAPE, GOOD | change)
    assert words in fault


def test_a_member_that_is_missing_is_found() -> None:
    for name in GOOD:
        assert list(faults_of(SHAPE, {key: value for key, value in GOOD.items() if key != name})) == [
            f"it has no {name}"
        ]


def test_what_is_no_number_of_json_is_refused() -> None:
    with pytest.raises(AssertionError, match="NaN"):
        read_json(json.dumps({"error": float("nan")}))


def test_a_shape_is_written_as_json_with_words() -> None:
    assert write_shape({"a": Many(int | None), "b?": Named(str)}) == '{"a": [integer or null, …], "b"?: {…: text}}'
    assert write_shape(Lines(OneOf({"a": bool}, None))) == '{"a": boolean} or null'
    assert all(write_shape(shape) for shape in SHAPES.values())
