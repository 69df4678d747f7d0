"""What an operator changes in a successor, and what follows from it."""

import pytest
from tests.simulation.pair import SUCCEEDED

from secemb_shared.catalogue import Catalogue, digest_of
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.succession import check_continuation
from secemb_tools.errors import OperationError
from secemb_tools.operate.successors import Changes, successor_of
from secemb_tools.specification import build_task, default_norm_bound, direct_geometry


def make_task(**changes: object) -> TaskSpec:
    fields = {"name": "films", "items": 400, "row_width": 9, "capacity": 20, "fraction_bits": 16, "bound": 2**17}
    return build_task(**{**fields, "cohort": 10, "min_cohort": 2, **SUCCEEDED, **changes})


def test_layout_and_default_norm_bound_follow_from_the_capacity() -> None:
    task = make_task()
    made = successor_of(task, Changes(capacity=40, cohort=12, row_rate=0.5))
    check_continuation(task, made)
    assert (made.capacity, made.cohort, made.row_rate, made.items) == (40, 12, "0.5", 400)
    assert made.geometry.slots > task.geometry.slots
    assert made.norm_bound == default_norm_bound(40, 0, 16) > task.norm_bound
    assert made == make_task(capacity=40, cohort=12, row_rate="0.5", predecessor=task.task_id.hex())


@pytest.mark.parametrize("bound", [0, 2**20])
def test_a_chosen_norm_bound_stays(bound: int) -> None:
    assert successor_of(make_task(norm_bound=bound), Changes(capacity=40)).norm_bound == bound


def test_a_catalogue_brings_its_items_and_a_direct_layout_stays_direct() -> None:
    films = Catalogue(ids=tuple(f"tt{row}" for row in range(500))).encode()
    task = make_task(geometry=direct_geometry(400, 20), catalogue="ab" * 32)
    made = successor_of(task, Changes(items=500, catalogue=films))
    assert (made.items, made.catalogue, made.geometry.is_direct) == (500, digest_of(films), True)
    assert made.norm_bound == task.norm_bound


def test_what_is_no_successor_is_refused_with_the_reason() -> None:
    with pytest.raises(OperationError, match="nothing would change"):
        successor_of(make_task(), Changes(cohort=10))
    with pytest.raises(OperationError, match="--server0 and --server1"):
        successor_of(make_task(identity0=""), Changes(cohort=12))
