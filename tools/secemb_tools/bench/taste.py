"""A device with a full taste: what it holds when a round begins, and what it does with its rows."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from secemb_sdk.models import Floats, Model, PrivateState, Ratings, learn
from secemb_sdk.round.session import DeviceSession
from secemb_shared.messages import RoundSpec
from secemb_shared.randomness import Indices

_RATE = 0.025
_CLIP = 16


@dataclass(frozen=True, slots=True)
class Taste:
    """As many ratings as a round has room for, and the device's copy of the dense part."""

    model: Model
    items: Indices
    values: Floats
    dense: Floats
    private: PrivateState

    @classmethod
    def draw(cls, round_: RoundSpec, model: Model) -> Self:
        """Return the taste that every measurement uses."""
        rng, task = np.random.default_rng(0), round_.task
        return cls(
            model,
            # Not rng.choice, which would write down the whole catalogue before a device is measured.
            items=np.linspace(0, task.items - 1, task.capacity).astype(np.int64),
            values=rng.integers(1, 6, task.capacity).astype(np.float32),
            dense=rng.normal(0, 0.1, model.dense_size).astype(np.float32),
            private=PrivateState.begin(model, rng),
        )

    def train(self, items: Indices, rows: Floats) -> tuple[Floats, Floats]:
        """Return what one pass over the ratings moves."""
        ratings = Ratings(items, self.values[: items.size])
        by_row, by_dense, _ = learn(self.model, self.private, rows, self.dense, ratings, rate=_RATE)
        return by_row, by_dense

    def write(self, session: DeviceSession, items: Indices, moved: tuple[Floats, Floats]) -> None:
        """Make the messages of the update."""
        session.write(items, np.clip(moved[0], -_CLIP, _CLIP), np.clip(moved[1], -_CLIP, _CLIP))
