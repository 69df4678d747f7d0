"""What each rating of a round adds, cut one by one, for many ratings at once: one after another is slow to simulate."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from secemb_sdk.errors import ModelError
from secemb_sdk.models import Floats, Ratings
from secemb_sdk.models.torch import RatingModel
from secemb_sdk.models.update import Doubles
from secemb_shared.privacy import clip_each_to_steps
from secemb_shared.privacy.clip import Steps
from secemb_tools.simulation.population import Device

_TOGETHER = 1 << 20  # numbers of gradients that are found at once: torch has to be called less often
_IN_CACHE = 1 << 16  # numbers of gradients that are cut at once: what lies in the cache of one core


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Learned:
    """What came of one device's ratings."""

    rows: Doubles  # (ratings, width), each cut together with what the rating adds to the dense part
    dense: Doubles  # (dense size,), the sum of what was cut
    private: Floats  # (private size,), the gradient; it stays on the device and is not cut


def learn_by_record(
    devices: Sequence[Device],
    ratings: Sequence[Ratings],
    rows: Floats,
    dense: Floats,
    *,
    limit: int,
    fraction_bits: int,
) -> Iterator[Learned]:
    """Yield what each device uploads and how its private part should move; `rows` are those of all items."""
    sizes = [one.items.size for one in ratings]
    for some in _groups(sizes, most=_TOGETHER // dense.size):
        ends = np.cumsum(sizes[some])[:-1]
        parts = (np.split(part, ends) for part in _gradients(devices[some], ratings[some], rows, dense))
        for by_row, by_dense, by_private in zip(*parts, strict=True):
            cut_rows, cut_dense = _cut(by_row, by_dense, limit=limit, fraction_bits=fraction_bits)
            yield Learned(
                rows=cut_rows / 2.0**fraction_bits,
                dense=cut_dense / 2.0**fraction_bits,
                private=by_private.sum(axis=0),
            )


def _gradients(
    devices: Sequence[Device], ratings: Sequence[Ratings], rows: Floats, dense: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return the gradients of each rating's own loss, by its row, by the dense part and by the private part."""
    models = [_as_rating_model(device) for device in devices]
    known = np.concatenate([model.look_up(one.items) for model, one in zip(models, ratings, strict=True)])
    items, values = (np.concatenate([getattr(one, name) for one in ratings]) for name in ("items", "values"))
    private = np.repeat([device.private for device in devices], [one.items.size for one in ratings], axis=0)
    # What is not in these arguments is the same for everybody: how large the parts are, and what a penalty weighs.
    return models[0].gradients_of_each(rows[items], dense, private, known, values)


def _cut(by_row: Floats, by_dense: Floats, *, limit: int, fraction_bits: int) -> tuple[Steps, Steps]:
    """Return what ratings add to their rows, and the sum of what they add to the dense part, each of them cut."""
    cut_rows = np.zeros(by_row.shape, dtype=np.int64)
    cut_dense = np.zeros(by_dense.shape[1], dtype=np.int64)
    step = max(1, _IN_CACHE // by_dense.shape[1])
    for first in range(0, len(by_row), step):
        some = slice(first, first + step)
        limits = {"limit": limit, "fraction_bits": fraction_bits}
        cut_rows[some], shared = clip_each_to_steps([by_row[some], by_dense[some]], **limits)
        cut_dense += shared.sum(axis=0)
    return cut_rows, cut_dense


def _as_rating_model(device: Device) -> RatingModel:
    if not isinstance(device.model, RatingModel):
        raise ModelError("what each rating adds is simulated for models of ratings in torch")
    return device.model


def _groups(sizes: Sequence[int], *, most: int) -> Iterator[slice]:
    """Yield neighbours that have no more ratings than that together, or are alone."""
    first = total = 0
    for place, size in enumerate(sizes):
        if place > first and total + size > most:
            yield slice(first, place)
            first, total = place, 0
        total += size
    if first < len(sizes):
        yield slice(first, len(sizes))
