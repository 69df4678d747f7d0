"""Task and round specifications against their vectors."""

import hashlib

import numpy as np
from tests.vectors.values import Case, error_of, numbers, raw

from secemb_shared.dpf import Backend
from secemb_shared.messages import RoundSpec, Sizes, TaskSpec


def check_task(case: Case, _backend: Backend) -> None:
    task = TaskSpec.decode(case["canonical"].encode("ascii"))
    geometry, sizes = task.geometry, Sizes.of(task)
    assert task.encode().decode("ascii") == case["canonical"]
    assert task.task_id == hashlib.sha256(case["canonical"].encode("ascii")).digest() == raw(case["task_id"])
    assert (geometry.slots, geometry.slots_per_bin) == (case["slots"], case["slots_per_bin"])
    assert (geometry.leaves, geometry.depth) == (case["leaves"], case["depth"])
    sizes_by_slot = np.tile(np.repeat(numbers(case["bin_sizes"]), geometry.slots_per_bin), geometry.tables)
    assert np.array_equal(geometry.leaves_by_slot(), sizes_by_slot)
    assert {"keys": sizes.keys, "answer": sizes.answer, "update": list(sizes.update)} == case["message_bytes"]
    relayed = {"upload": sizes.relayed_upload, "download": sizes.relayed_download}
    assert relayed == case["relayed_bytes"]
    _check_noise(task, case.get("noise", {}))
    for round_ in case["rounds"]:
        _check_round(task, round_)


def _check_noise(task: TaskSpec, expected: Case) -> None:
    privacy = task.privacy
    if privacy is None:
        assert not expected
        return
    sums = {kind: noise for kind in ("survey", "evaluate") if (noise := privacy.sums(kind))}
    noises = {"rows": privacy.rows, "dense": privacy.dense, **sums}
    assert expected == {name: {"variance": str(one.variance), "tail": one.tail} for name, one in noises.items()}


def _check_round(task: TaskSpec, case: Case) -> None:
    round_ = RoundSpec.decode(case["canonical"].encode("ascii"), task)
    assert round_.encode().decode("ascii") == case["canonical"]
    assert round_.digest == hashlib.sha256(case["canonical"].encode("ascii")).digest() == raw(case["digest"])
    assert round_.sum_size == case["sum_size"]
    slots, positions = round_.layout.locate(numbers(case["items"]))
    assert (slots.tolist(), positions.tolist()) == (case["first_slots"], case["positions"])
    order = round_.layout.order()
    if "order" in case:
        assert order.tolist() == case["order"]
    else:
        assert hashlib.sha256(order.astype("<i4").tobytes()).hexdigest() == case["order_i32_sha256"]
    rows = slots // task.geometry.slots_per_bin
    assert (order[rows, positions] == numbers(case["items"])[:, None]).all()


def check_refused(case: Case, _backend: Backend) -> None:
    assert error_of(lambda: TaskSpec.decode(case["text"].encode("ascii"))) == case["error"]
