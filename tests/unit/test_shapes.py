"""The check of what `--json` prints: it finds what is missing, what is too much and what is of another kind."""

import json
from dataclasses import dataclass
from typing import Any, NotRequired

import pytest
from tests.e2e.commands import check_shape, empty_parts, faults_of, read_json
from typing_extensions import TypedDict


@dataclass(frozen=True)
class Number:
    number: int


class Round(TypedDict):
    open: bool


class Shape(TypedDict):
    name: str
    count: int
    error: float | None
    rows: list[Number]
    sizes: dict[str, int]
    round: Round | None
    more: NotRequired[str]


GOOD: dict[str, Any] = {
    "name": "a",
    "count": 1,
    "error": 2,  # a number need not have a fraction
    "rows": [{"number": 1}, {"number": 2}],
    "sizes": {"a": 1},
    "round": {"open": True},
}


def test_what_has_the_shape_has_no_fault() -> None:
    assert faults_of(Shape, GOOD) == []
    assert faults_of(Shape, GOOD | {"error": None, "round": None, "more": "b"}) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": 1}, "name: Input should be a valid string"),
        ({"count": 1.5}, "count: Input should be a valid integer"),
        ({"count": True}, "count: Input should be a valid integer"),
        ({"error": "0.5"}, "error: Input should be a valid number"),
        ({"rows": {}}, "rows: Input should be a valid array"),
        ({"rows": [{"number": 1}, {"number": "2"}]}, "rows.1.number: Input should be a valid integer"),
        ({"rows": [{"number": 1}, {}]}, "rows.1.number: Field required"),
        ({"rows": [{"number": 1, "other": 2}]}, "rows.0.other: Unexpected keyword argument"),
        ({"sizes": {"a": None}}, "sizes.a: Input should be a valid integer"),
        ({"round": {"open": None}}, "round.open: Input should be a valid boolean"),
        ({"round": []}, "round: Input should be an object"),
        ({"more": 1}, "more: Input should be a valid string"),
        ({"unknown": 1}, "unknown: Extra inputs are not permitted"),
    ],
)
def test_each_fault_is_found_where_it_is(change: dict[str, Any], words: str) -> None:
    assert faults_of(Shape, GOOD | change) == [words]


def test_a_member_that_is_missing_is_found() -> None:
    for name in GOOD:
        rest = {key: value for key, value in GOOD.items() if key != name}
        assert faults_of(Shape, rest) == [f"{name}: Field required"]


def test_a_list_without_elements_is_found_because_it_shows_no_form() -> None:
    assert list(empty_parts("run show", {"table": [], "sizes": {}})) == [
        "run show.table is empty",
        "run show.sizes is empty",
    ]
    assert list(empty_parts("run show", [{"rows": [{"names": []}]}])) == ["run show.names is empty"]
    assert list(empty_parts("kernel", {"instruction_sets": []})) == []


def test_a_command_with_another_shape_fails() -> None:
    check_shape("kernel", {"kernel": "native", "instruction_sets": ["aesni"], "reason": None})
    with pytest.raises(AssertionError, match="Field required"):
        check_shape("kernel", {"kernel": "native", "instruction_sets": ["aesni"]})


def test_what_is_no_number_of_json_is_refused() -> None:
    with pytest.raises(AssertionError, match="NaN"):
        read_json(json.dumps({"error": float("nan")}))
