"""Specifications: one byte string for each, a digest that every field moves, and nothing else is accepted."""

import hashlib
from dataclasses import fields, replace
from typing import Any

import pytest
from tests.unit.privacy_settings import PRIVACY
from tests.unit.sessions import direct, make_round, make_task
from tests.unit.specifications import ROUND, TASK, decode_round, document, written

from secemb_shared.errors import EncodingError, SecEmbError, SpecError
from secemb_shared.labels import Purpose
from secemb_shared.messages import RoundSpec, TaskSpec, canonical
from secemb_shared.messages.spec import EVALUATE, SUM_SIZES, SURVEY, TRAIN

LONGEST_DENSE = (2**28 - 12 * (17 * 3 + 48)) // 4  # beside 12 slots of 3 levels, in messages of at most 2^28 bytes


OTHER_TASK_FIELDS: dict[str, Any] = {
    "name": "books",
    "items": 24,
    "row_width": 6,
    "dense_size": 4,
    "capacity": 7,
    "tables": 4,
    "bins": 5,
    "ring_bits": 64,
    "row_bits": 16,
    "fraction_bits": 13,
    "bound": 2**20 - 1,
    "cohort": 399,
    "min_cohort": 3,
    "rounds": 101,
    "join_seconds": 61,
    "upload_seconds": 601,
    "loss": "bpr",
    "optimiser": "sgd",
    "row_rate": "0.026",
    "bias_rate": "0.2",
    "dense_rate": "0.002",
    "row_decay": "0.1",
    "bias_decay": "0.1",
    "schedule": "constant",
    "seed": 1,
    "initial_scale": "0.02",
    "centre": "-3.5",
    "spread": "2.5",
    "lowest": "-10",
    "guard": "3",
    "highest": "10.5",
    "catalogue": "cd" * 32,
    "relay_key": "ab" * 32,
    "identity0": "12" * 32,
    "predecessor": "34" * 32,
    "norm_bound": 1000,
    "privacy": PRIVACY,
}


RATES = ("row_rate", "bias_rate", "dense_rate", "row_decay", "bias_decay", "initial_scale")


DECIMALS = {
    "0": 0.0,
    "1": 1.0,
    "10": 10.0,
    "0.5": 0.5,
    "0.025": 0.025,
    "0.10203": 0.10203,
    "12.5": 12.5,
    "0.000000000001": 1e-12,
    "999999999.999999999999": 999999999.999999999999,
}


NOT_DECIMALS = [
    *(
        "",
        " ",
        ".",
        "0.0250",
        "0.0",
        "1.0",
        "0.",
        "5.",
        ".5",
        "1e-3",
        "1E3",
        "-1",
        "-0",
        "-0.5",
        "+1",
        "00.1",
        "00",
        "01",
    ),
    *("1,5", "1_000", " 1", "1 ", "0.5f", "0x1", "1/2", "0.2.5", "nan", "inf", "a", "1000000000", "0.0000000000001"),
]


NOT_DECIMALS_AND_NOT_ASCII = ["1\n", "\n1", "0.5\n", "\u0661", "0.\u0665", "\uff11", "0\u066b5", "1\x00"]


def test_a_task_is_sorted_json_without_spaces() -> None:
    expected = (
        b'{"bias_decay":"0","bias_rate":"0.05","bins":4,"bound":1048576,"capacity":6,"catalogue":"","centre":"0",'
        b'"cohort":400,"dense_rate":"0.001","dense_size":3,"fraction_bits":12,"guard":"8","highest":"","identity0":"","initial_scale":"0.05",'
        b'"items":23,'
        b'"join_seconds":60,"loss":"squared","lowest":"","min_cohort":2,"name":"films","norm_bound":0,"optimiser":"adam",'
        b'"predecessor":"","privacy":{},'
        b'"protocol":"secemb/2","relay_key":"","ring_bits":32,"rounds":100,"row_decay":"0","row_rate":"0.02",'
        b'"row_width":5,"schedule":"cosine","seed":0,"spread":"1","tables":3,"upload_seconds":600}'
    )
    assert TASK.encode() == expected
    assert TASK.task_id == hashlib.sha256(expected).digest()


def test_a_round_names_its_task_by_the_digest() -> None:
    expected = (
        f'{{"kind":"train","model_digest":"{bytes(range(32)).hex()}","model_version":3,"protocol":"secemb/2",'
        f'"round":7,"task":"{TASK.task_id.hex()}"}}'
    ).encode()
    assert ROUND.encode() == expected
    assert ROUND.digest == hashlib.sha256(expected).digest()


@pytest.mark.parametrize("task", [TASK, direct(), make_task(ring_bits=64, dense_size=0), make_task(name="a b/c's {1}")])
def test_what_was_encoded_is_decoded(task: TaskSpec) -> None:
    assert TaskSpec.decode(task.encode()) == task
    assert TaskSpec.decode(task.encode()).task_id == task.task_id
    for kind in SUM_SIZES:
        round_ = make_round(task, number=2**53 - 1, model_version=0, digest=bytes(range(32)), kind=kind)
        assert RoundSpec.decode(round_.encode(), task) == round_


@pytest.mark.parametrize("wrong", ["ab", "ab" * 31, "ab" * 33, "AB" * 32, "xy" * 32, "ab" * 31 + "a ", " "])
def test_a_relay_key_is_64_lower_case_digits_or_nothing(wrong: str) -> None:
    with pytest.raises(SpecError, match="relay_key"):
        make_task(relay_key=wrong)
    assert not make_task().relays
    assert make_task(relay_key="ab" * 32).relays


def test_a_task_with_two_different_identities_can_have_a_successor() -> None:
    assert make_task(identity0="12" * 32).identities is make_task(relay_key="ab" * 32).identities is None
    assert make_task(identity0="12" * 32, relay_key="ab" * 32).identities == ("12" * 32, "ab" * 32)
    with pytest.raises(SpecError, match="two different operators"):
        make_task(identity0="ab" * 32, relay_key="ab" * 32)
    for name in ("identity0", "predecessor"):
        with pytest.raises(SpecError, match=name):
            make_task(**{name: "AB" * 32})


def test_every_field_of_a_task_changes_its_id() -> None:
    assert OTHER_TASK_FIELDS.keys() == {field.name for field in fields(TaskSpec)}
    changed = [replace(TASK, **{name: value}).task_id for name, value in OTHER_TASK_FIELDS.items()]
    assert len({TASK.task_id, *changed}) == len(changed) + 1


def test_every_field_of_a_round_changes_its_digest() -> None:
    changed = [
        replace(ROUND, task=direct()),
        replace(ROUND, number=8),
        replace(ROUND, model_version=4),
        replace(ROUND, model_digest=bytes(32)),
        replace(ROUND, kind=SURVEY),
    ]
    assert len(changed) == len(fields(RoundSpec))
    changed.append(replace(ROUND, kind=EVALUATE))
    assert len({ROUND.digest, *(round_.digest for round_ in changed)}) == len(changed) + 1


def test_a_round_of_another_task_is_refused() -> None:
    with pytest.raises(SpecError):
        RoundSpec.decode(ROUND.encode(), direct())


@pytest.mark.parametrize(
    "changes",
    [
        {"name": ""},
        {"name": "x" * 101},
        {"name": 'a"b'},
        {"name": "a\\b"},
        {"name": "a\nb"},
        {"name": "café"},
        {"name": "a\x7f"},
        {"items": 0},
        {"items": -1},
        {"items": 2**31},
        {"items": 2**60},
        {"row_width": 0},
        {"row_width": -1},
        {"row_width": 2**16 + 1},
        {"dense_size": -1},
        {"dense_size": 2**31 + 1},
        {"dense_size": LONGEST_DENSE + 1},
        {"row_width": 2**16, "tables": 255, "bins": 5},
        {"capacity": 0},
        {"capacity": -1},
        {"capacity": 24},
        {"tables": 0},
        {"tables": -1},
        {"tables": 256},
        {"bins": 0},
        {"bins": -1},
        {"bins": 24},
        {"ring_bits": 16},
        {"ring_bits": 33},
        {"ring_bits": -32},
        {"fraction_bits": -1},
        {"fraction_bits": 31},
        {"bound": 0},
        {"bound": -1},
        {"bound": 2**31 // 400 + 1},
        {"bound": 2**53, "ring_bits": 64},
        {"cohort": 0},
        {"cohort": 1},
        {"cohort": 2048},
        {"min_cohort": 0},
        {"min_cohort": 1},
        {"min_cohort": -2},
        {"min_cohort": 401},
        {"rounds": 0},
        {"rounds": -1},
        {"rounds": 2**32 + 1},
        {"seed": -1},
        {"seed": 2**53},
        {"join_seconds": 0},
        {"join_seconds": -1},
        {"join_seconds": 601},
        {"upload_seconds": 59},
        {"upload_seconds": 0},
        {"upload_seconds": 30 * 86_400 + 1},
        {"join_seconds": 30 * 86_400 + 1, "upload_seconds": 30 * 86_400 + 1},
        {"optimiser": ""},
        {"optimiser": "adagrad"},
        {"optimiser": "Adam"},
        {"optimiser": "sgd "},
    ],
    ids=str,
)
def test_a_task_that_cannot_be_is_refused_however_it_comes(changes: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        replace(TASK, **changes)
    with pytest.raises((SpecError, EncodingError)):
        TaskSpec.decode(written(document() | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "x"},
        {"name": "x" * 100},
        {"name": " ~!#[]^_`{|}"},
        {"row_width": 2**16},
        {"dense_size": LONGEST_DENSE},
        {"dense_size": 0},
        {"capacity": 23},
        {"capacity": 1},
        {"tables": 255},
        {"bins": 23},
        {"fraction_bits": 30},
        {"fraction_bits": 0},
        {"cohort": 2047},
        {"cohort": 2},
        {"min_cohort": 400},
        {"bound": 2**53 - 1, "ring_bits": 64},
        {"rounds": 1},
        {"rounds": 2**32},
        {"seed": 2**53 - 1},
        {"join_seconds": 1},
        {"join_seconds": 600},
        {"upload_seconds": 60},
        {"upload_seconds": 30 * 86_400},
        {"join_seconds": 1, "upload_seconds": 1},
        {"join_seconds": 30 * 86_400, "upload_seconds": 30 * 86_400},
        {"optimiser": "sgd"},
        {"optimiser": "adam"},
    ],
    ids=str,
)
def test_the_last_values_that_can_be_are_accepted(changes: dict[str, Any]) -> None:
    task = replace(TASK, **changes)
    assert TaskSpec.decode(task.encode()) == task


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("text", DECIMALS)
def test_a_rate_is_a_decimal_number_in_text(rate: str, text: str) -> None:
    task = make_task(**{rate: text})
    assert canonical.decimal(text) == DECIMALS[text]
    assert TaskSpec.decode(task.encode()) == task
    assert f'"{rate}":"{text}"'.encode() in task.encode()


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("text", NOT_DECIMALS + NOT_DECIMALS_AND_NOT_ASCII)
def test_a_rate_in_any_other_form_is_refused(rate: str, text: str) -> None:
    with pytest.raises(SpecError):
        canonical.decimal(text)
    with pytest.raises(SpecError):
        make_task(**{rate: text})
    with pytest.raises(SpecError if text in NOT_DECIMALS else EncodingError):
        TaskSpec.decode(written(document() | {rate: text}))


@pytest.mark.parametrize(
    "changes",
    [
        {"number": -1},
        {"number": 2**53},
        {"model_version": -1},
        {"model_version": 2**53},
        {"model_digest": bytes(31)},
        {"model_digest": bytes(33)},
        {"model_digest": b""},
        {"kind": ""},
        {"kind": "test"},
        {"kind": "Train"},
        {"kind": "train "},
    ],
    ids=str,
)
def test_a_round_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        replace(ROUND, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"round": -1},
        {"model_version": -1},
        {"model_digest": ""},
        {"model_digest": "00" * 31},
        {"model_digest": "00" * 33},
        {"model_digest": "AB" * 32},
        {"model_digest": "g0" * 32},
        {"model_digest": " " * 64},
        {"model_digest": "00 " * 21 + "0"},
        {"task": ""},
        {"task": "00" * 32},
        {"task": TASK.task_id.hex().upper()},
        {"kind": ""},
        {"kind": "test"},
        {"kind": "TRAIN"},
        {"kind": " survey"},
    ],
    ids=str,
)
def test_a_round_that_says_something_impossible_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        decode_round(written(document(ROUND.encode()) | changes))


@pytest.mark.parametrize(("kind", "size"), [(TRAIN, 0), (SURVEY, 14), (EVALUATE, 22)])
def test_the_kind_of_a_round_says_how_many_numbers_it_adds_up(kind: str, size: int) -> None:
    assert replace(ROUND, kind=kind).sum_size == size


@pytest.mark.parametrize("kind", [SURVEY, EVALUATE])
def test_a_round_whose_secure_sum_could_wrap_around_is_refused(kind: str) -> None:
    small, large = (make_task(bound=1, cohort=cohort) for cohort in (2**23 - 1, 2**23))
    assert RoundSpec.decode(make_round(small, kind=kind).encode(), small).kind == kind
    training = make_round(large)  # has no secure sum
    with pytest.raises(SpecError):
        replace(training, kind=kind)
    with pytest.raises(SpecError):
        RoundSpec.decode(written(document(training.encode()) | {"kind": kind}), large)


def test_a_task_cannot_be_changed() -> None:
    for name in OTHER_TASK_FIELDS:
        with pytest.raises(AttributeError):
            setattr(TASK, name, 1)


def test_the_layout_follows_from_the_sizes() -> None:
    assert (TASK.geometry.slots, TASK.geometry.leaves, TASK.geometry.depth) == (12, 6, 3)
    assert (direct().geometry.slots, direct().geometry.leaves, direct().geometry.depth) == (6, 23, 5)
    assert direct().geometry.is_direct
    assert ROUND.leaf_table.order.shape == (12, 6)


def test_two_rounds_deal_the_catalogue_differently() -> None:
    orders = [make_round(TASK, number=number).layout.order().tobytes() for number in range(20)]
    assert len(set(orders)) == 20


def test_tags_belong_to_the_version_and_sessions_to_the_round() -> None:
    later = replace(ROUND, number=8)
    assert later.model_label.key(Purpose.ROW_TAG) == ROUND.model_label.key(Purpose.ROW_TAG)
    assert later.label(bytes(16)).key(Purpose.CONVERT) != ROUND.label(bytes(16)).key(Purpose.CONVERT)


def test_a_specification_error_is_one_of_the_tree() -> None:
    with pytest.raises(SecEmbError):
        replace(TASK, ring_bits=7)
