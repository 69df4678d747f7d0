"""Vectors of task and round specifications: canonical form, names, shapes, lengths and layouts."""

import hashlib
from typing import Any

import numpy as np

from secemb_lab.vectors.document import Json, Source
from secemb_shared.messages import RoundSpec, Sizes, TaskSpec
from secemb_shared.messages.privacy import BudgetLine, Privacy
from secemb_shared.messages.spec import EVALUATE, SURVEY, TRAIN

_WRITTEN_OUT = 100  # items; the leaves of larger catalogues are given by a digest
_PRIVACY = Privacy(
    unit="user",
    delta="0.000001",
    train=BudgetLine(clip=2**16, multiplier="1.125", epsilon="8"),
    survey=BudgetLine(clip=100 << 16, multiplier="0.9", epsilon="1"),
    evaluate=BudgetLine(clip=20 << 16, multiplier="2.5", epsilon="0.5"),
)
_CUT_APART = Privacy(
    unit="record",
    delta="0.00001",
    sampling_rate="0.05",
    dense_clip=12345,
    train=BudgetLine(clip=54321, multiplier="0.333333333333", epsilon="1000"),
    evaluate=BudgetLine(clip=20 << 16, multiplier="2.5", epsilon="0.5"),
)
_ROUNDS = ((1, 1, TRAIN), (2, 1, SURVEY), (2**53 - 1, 0, EVALUATE))


def binned(**changes: Any) -> TaskSpec:
    """Return a small task in the default layout: 20 slots of 5 leaves, some bins one leaf short."""
    return _task({"name": "binned", "items": 23, "capacity": 12, "tables": 4, "bins": 5, "row_width": 5}, changes)


def direct(**changes: int | str) -> TaskSpec:
    """Return a small task in the paper's layout: 4 slots of 11 leaves, in the 64-bit ring."""
    sizes: dict[str, int | str] = {"name": "direct", "items": 11, "capacity": 4, "tables": 1, "bins": 1, "row_width": 3}
    return _task({**sizes, "ring_bits": 64, "fraction_bits": 24, "bound": 2**40}, changes)


def _task(sizes: dict[str, int | str], changes: dict[str, Any]) -> TaskSpec:
    rest: dict[str, Any] = {"dense_size": 3, "ring_bits": 32, "fraction_bits": 16, "bound": 2**20}
    return TaskSpec(**{**rest, "cohort": 1000, "min_cohort": 2, **sizes, **changes})


def specs() -> Json:
    """Tasks of every shape, each with the rounds that follow from it."""
    source = Source("specs")
    largest: dict[str, int | str] = {"bound": 2**53 - 1, "cohort": 2**10 - 1, "ring_bits": 64, "fraction_bits": 62}
    rates = dict.fromkeys(("row_rate", "bias_rate", "dense_rate", "initial_scale", "centre"), "999999999.999999999999")
    times = {"rounds": 2**32, "seed": 2**53 - 1, "join_seconds": 30 * 86_400, "upload_seconds": 30 * 86_400}
    tasks = [
        binned(),
        direct(),
        direct(name="one item", items=1, capacity=1, row_width=1, dense_size=0),
        binned(name="a bin for each item", tables=1, bins=23),
        binned(name="two tables with one bin", tables=2, bins=1, capacity=2),
        binned(name="~largest numbers!", **largest, **rates, **times),
        binned(name="another optimiser", optimiser="sgd", rounds=1, row_rate="0", dense_rate="1", initial_scale="0.5"),
        binned(
            name="ranked", loss="bpr", schedule="constant", row_decay="0.02", catalogue=Source("specs list")(32).hex()
        ),
        binned(name="relayed", relay_key=Source("specs relay")(32).hex()),
        binned(
            name="a successor",
            relay_key=Source("specs relay")(32).hex(),
            identity0=Source("specs identity")(32).hex(),
            predecessor=Source("specs predecessor")(32).hex(),
        ),
        binned(name="noisy", privacy=_PRIVACY),
        binned(name="noisy, cut apart, by chance", privacy=_CUT_APART),
        binned(name="ML1M", items=3883, capacity=300, tables=4, bins=82, row_width=65, dense_size=0),
    ]
    return {"tasks": [_described(source, task) for task in tasks]}


def _described(source: Source, task: TaskSpec) -> Json:
    geometry, sizes = task.geometry, Sizes.of(task)
    sizes_of_bins = geometry.leaves_by_slot()[: geometry.bins * geometry.slots_per_bin : geometry.slots_per_bin]
    return {
        "canonical": task.encode().decode("ascii"),
        "task_id": task.task_id.hex(),
        "slots": geometry.slots,
        "slots_per_bin": geometry.slots_per_bin,
        "leaves": geometry.leaves,
        "depth": geometry.depth,
        "bin_sizes": sizes_of_bins.tolist(),
        "message_bytes": {"keys": sizes.keys, "answer": sizes.answer, "update": list(sizes.update)},
        "relayed_bytes": {"upload": sizes.relayed_upload, "download": sizes.relayed_download},
        **_noise(task),
        "rounds": [_round(source, task, *which) for which in _ROUNDS],
    }


def _noise(task: TaskSpec) -> Json:
    """Return the variance of each server's noise and how far both together reach, for what the task adds up."""
    privacy = task.privacy
    if privacy is None:
        return {}
    sums = {kind: noise for kind in (SURVEY, EVALUATE) if (noise := privacy.sums(kind)) is not None}
    noises = {"rows": privacy.rows, "dense": privacy.dense, **sums}
    return {"noise": {name: {"variance": str(one.variance), "tail": one.tail} for name, one in noises.items()}}


def _round(source: Source, task: TaskSpec, number: int, version: int, kind: str) -> Json:
    round_ = RoundSpec(task=task, number=number, model_version=version, model_digest=source(32), kind=kind)
    some = np.unique(source.below(task.items, 8))
    slots, positions = round_.layout.locate(some)
    order = round_.layout.order()
    leaves = (
        {"order": order.tolist()}
        if task.items <= _WRITTEN_OUT
        else {"order_i32_sha256": hashlib.sha256(order.astype("<i4").tobytes()).hexdigest()}
    )
    return {
        "canonical": round_.encode().decode("ascii"),
        "digest": round_.digest.hex(),
        "sum_size": round_.sum_size,
        "items": some.tolist(),
        "first_slots": slots.tolist(),
        "positions": positions.tolist(),
        **leaves,
    }
