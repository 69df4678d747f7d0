"""A task's privacy settings: each changes the task, none can be left out, and what could not hold is refused."""

import json
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from tests.unit.privacy_settings import PRIVACY, STEPS, SUMS, TRAINING
from tests.unit.sessions import make_task

from secemb_shared.errors import SecEmbError, SpecError
from secemb_shared.messages import TaskSpec, canonical
from secemb_shared.messages.privacy import BudgetLine, Privacy
from secemb_shared.messages.spec import EVALUATE, SURVEY, TRAIN
from secemb_shared.privacy.mechanism import TAIL

TASK = make_task(privacy=PRIVACY)
OTHERS: dict[str, Any] = {
    "unit": "record",
    "delta": "0.000001",
    "train": replace(TRAINING, clip=STEPS + 1),
    "survey": SUMS,
    "evaluate": None,
    "dense_clip": STEPS,
    "sampling_rate": "0.05",
}


def group(task: TaskSpec = TASK) -> Any:
    """Return a task as JSON reads it, to be spoiled."""
    return json.loads(task.encode())


def read(content: Any) -> TaskSpec:
    """Read a task from what JSON has read."""
    return TaskSpec.decode(canonical.encode(content))


def test_the_group_is_part_of_the_canonical_form() -> None:
    expected = (
        b'"privacy":{"delta":"0.00001","dense_clip":0,"evaluate":{"clip":6553600,"epsilon":"5","multiplier":"1.5"},'
        b'"sampling_rate":"","survey":{},"train":{"clip":4096,"epsilon":"20","multiplier":"2"},"unit":"user"},'
    )
    assert expected in TASK.encode()
    assert b'"privacy":{},' in make_task().encode()


@pytest.mark.parametrize("name", list(OTHERS))
def test_every_setting_changes_the_task(name: str) -> None:
    assert OTHERS.keys() == {field.name for field in fields(Privacy)}
    other = make_task(privacy=replace(PRIVACY, **{name: OTHERS[name]}))
    assert other.task_id != TASK.task_id
    assert TaskSpec.decode(other.encode()) == other


@pytest.mark.parametrize("name", [field.name for field in fields(BudgetLine)])
def test_every_member_of_a_line_changes_the_task(name: str) -> None:
    value: Any = {"clip": STEPS - 1, "multiplier": "2.5", "epsilon": "19"}[name]
    other = make_task(privacy=replace(PRIVACY, train=replace(TRAINING, **{name: value})))
    assert other.task_id != TASK.task_id
    assert TaskSpec.decode(other.encode()) == other


@pytest.mark.parametrize("name", list(OTHERS))
def test_a_setting_that_is_missing_or_of_another_type_is_refused(name: str) -> None:
    content = group()
    del content["privacy"][name]
    with pytest.raises(SpecError, match="missing"):
        read(content)
    wrong: Any
    for wrong in (7.5, True, None, [], "words", -1, {"a": 1}):
        content["privacy"][name] = wrong
        with pytest.raises(SecEmbError):
            read(content)


@pytest.mark.parametrize("name", ["clip", "multiplier", "epsilon"])
def test_a_line_that_is_not_whole_is_refused(name: str) -> None:
    content = group()
    wrong: Any
    for wrong in (True, None, "words", -1, 0, "0", "1e3", {}):
        content["privacy"]["train"][name] = wrong
        with pytest.raises(SecEmbError):
            read(content)
    del content["privacy"]["train"][name]
    with pytest.raises(SpecError, match="budget line"):
        read(content)


def test_unknown_members_are_refused() -> None:
    content = group()
    content["privacy"]["more"] = 1
    with pytest.raises(SpecError, match="unknown"):
        read(content)
    content = group()
    content["privacy"]["train"]["more"] = 1
    with pytest.raises(SpecError, match="budget line"):
        read(content)


def test_a_task_with_noise_has_a_line_for_training() -> None:
    content = group()
    content["privacy"]["train"] = {}
    with pytest.raises(SpecError, match="budget line for training"):
        read(content)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"unit": "device"}, "unit"),
        ({"delta": "0"}, "delta"),
        ({"delta": "1"}, "delta"),
        ({"sampling_rate": "0"}, "sampling rate"),
        ({"sampling_rate": "1.5"}, "sampling rate"),
        ({"train": replace(TRAINING, epsilon="0")}, "epsilon"),
        ({"train": replace(TRAINING, epsilon="1001")}, "epsilon"),
        ({"train": replace(TRAINING, multiplier="0.001")}, "supported range"),
        ({"train": replace(TRAINING, clip=0)}, "clip"),
        ({"dense_clip": 1}, "supported range"),
        ({"dense_clip": -1}, "clip"),
    ],
)
def test_what_promises_nothing_is_refused_with_the_reason(change: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        make_task(privacy=replace(PRIVACY, **change))


def test_a_clip_for_a_dense_part_needs_one() -> None:
    with pytest.raises(SpecError, match="dense part"):
        make_task(dense_size=0, privacy=replace(PRIVACY, dense_clip=STEPS))


@pytest.mark.parametrize("spoil", [lambda privacy: "words", lambda privacy: privacy.fields()])
def test_privacy_is_a_group_of_its_own(spoil: Callable[[Privacy], Any]) -> None:
    with pytest.raises(SpecError, match="must be an object"):
        make_task(privacy=spoil(PRIVACY))


def test_the_tail_of_the_noise_counts_in_the_overflow_budget() -> None:
    tail = PRIVACY.rows.tail
    assert tail == TAIL * 2 * STEPS
    most = (2**31 - 1 - tail) // 400
    make_task(bound=most, privacy=PRIVACY)
    make_task(bound=most + 1)  # fits without noise
    with pytest.raises(SpecError, match="noise tail"):
        make_task(bound=most + 1, privacy=PRIVACY)


def test_the_larger_of_two_tails_counts() -> None:
    apart = replace(PRIVACY, dense_clip=64 * STEPS)
    assert apart.dense.tail > 60 * apart.rows.tail
    most = (2**31 - 1 - apart.dense.tail) // 400
    make_task(bound=most, privacy=apart)
    with pytest.raises(SpecError, match="noise tail"):
        make_task(bound=most + 1, privacy=apart)


def test_the_tail_of_a_secure_sum_counts_as_well() -> None:
    def task_with(kind: str, clip: int) -> TaskSpec:
        line: Any = BudgetLine(clip=clip, multiplier="0.000000000001", epsilon="5")  # 18 times this is 40,536 steps
        return make_task(cohort=4096, bound=2**10, privacy=replace(PRIVACY, **{kind: line}))

    for kind in ("survey", "evaluate"):
        task_with(kind, 2**51 - 10)  # of 2^63 steps, 4,096 such clips leave 40,960
        with pytest.raises(SpecError, match="noise tail"):
            task_with(kind, 2**51 - 9)


def test_parts_that_are_cut_apart_need_more_noise() -> None:
    together, apart = PRIVACY, replace(PRIVACY, dense_clip=2 * STEPS)
    assert together.rows.variance == together.dense.variance == (2 * STEPS) ** 2
    assert apart.rows.variance == 2 * (2 * STEPS) ** 2
    assert apart.dense.variance == 2 * (4 * STEPS) ** 2


def test_each_kind_of_round_has_its_own_line() -> None:
    assert [PRIVACY.line(kind) for kind in (TRAIN, SURVEY, EVALUATE)] == [TRAINING, None, SUMS]


def test_one_rating_can_move_a_secure_sum_by_more_than_the_clip_and_gets_more_noise() -> None:
    user, record = replace(PRIVACY, survey=SUMS), replace(PRIVACY, survey=SUMS, unit="record")
    for privacy, parts in ((user, 1), (record, 2)):
        noises = privacy.sums(SURVEY), privacy.sums(EVALUATE)
        assert [noise.variance for noise in noises if noise] == [parts * (150 << 16) ** 2] * 2
    assert PRIVACY.sums(SURVEY) is None
