"""The models that devices train, in the sizes of the paper, and a device with a full workload."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Self

import numpy as np
import numpy.typing as npt

from secemb_sdk.models import Floats, Model, PrivateState, Ratings, learn, registry
from secemb_sdk.models.interface import follows
from secemb_sdk.models.registry import KnownFeatures
from secemb_sdk.round.session import SESSION_SEED_BYTES, DeviceSession, SeededBytes
from secemb_shared.messages import RoundSpec
from secemb_shared.randomness import Indices


@dataclass(frozen=True, slots=True)
class Sides:
    """The properties of a catalogue besides its items: features of people and items, and the paper's dimensions."""

    user_features: int
    item_features: int
    dimensions: Mapping[str, int]  # by model; others have their default


SIDES = {
    "ML100K": Sides(84, 19, {"ncf": 16}),
    "ML1M": Sides(30, 18, {"ncf": 16}),
    "ML10M": Sides(0, 20, {"ncf": 24}),
    "ML25M": Sides(0, 20, {"ncf": 24}),
    "Yelp": Sides(0, 16, {"ncf": 20}),
}
_NO_SIDES = Sides(0, 0, {})


def torch_is_here() -> bool:
    """Tell whether torch is installed."""
    return find_spec("torch") is not None


def names() -> tuple[str, ...]:
    """Return the models that can be trained here."""
    kinds = map(registry.find, registry.names())
    return tuple(kind.name for kind in kinds if torch_is_here() or not kind.needs_torch)


def make(name: str, catalogue: str) -> Model:
    """Return a model with its size for a catalogue."""
    kind, sides = registry.find(name), SIDES.get(catalogue, _NO_SIDES)
    if kind.needs_torch:
        from secemb_sdk.models.torch import compute_alone  # imported here because it may not be installed

        compute_alone()
    person = (np.arange(sides.user_features) % 28 == 0).astype(np.uint8)

    def lookup(items: Indices) -> npt.NDArray[np.uint8]:
        chosen: npt.NDArray[np.bool_] = items[:, None] % (np.arange(sides.item_features) + 3) == 0
        return chosen.astype(np.uint8)

    return kind.make(dimension=sides.dimensions.get(name), features=KnownFeatures(person, lookup))


_RATE = 0.025
_CLIP = 16


@dataclass(frozen=True, slots=True)
class Workload:
    """The maximum ratings or events of a round, and the device's copy of the dense part."""

    model: Model
    ratings: Ratings  # by item
    dense: Floats
    private: PrivateState

    @classmethod
    def draw(cls, round_: RoundSpec, model: Model) -> Self:
        """Return the workload of every measurement."""
        rng, task = np.random.default_rng(0), round_.task
        # Not rng.choice, which would allocate the whole catalogue before a device is measured.
        items = np.linspace(0, task.items - 1, task.capacity).astype(np.int64)
        ratings = Ratings(items, rng.integers(1, 6, items.size).astype(np.float32))
        if follows(model):
            random_bytes = SeededBytes(bytes(SESSION_SEED_BYTES))
            ratings = model.draw(items, items=task.items, room=task.capacity, random_bytes=random_bytes)
        dense = rng.normal(0, 0.1, model.dense_size).astype(np.float32)
        return cls(model, ratings, dense, PrivateState.begin(model, rng))

    @property
    def items(self) -> Indices:
        """Return the items that the device reads."""
        return self.ratings.items

    def train(self, items: Indices, rows: Floats) -> tuple[Floats, Floats]:
        """Return the gradients of one pass over the ratings or the window of events."""
        ratings = self.ratings.take(np.searchsorted(self.items, items))
        by_row, by_dense, _ = learn(self.model, self.private, rows, self.dense, ratings, rate=_RATE)
        return by_row, by_dense

    def write(self, session: DeviceSession, items: Indices, moved: tuple[Floats, Floats]) -> None:
        """Create the messages of the update."""
        session.write(items, np.clip(moved[0], -_CLIP, _CLIP), np.clip(moved[1], -_CLIP, _CLIP))
