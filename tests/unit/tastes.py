"""What the tests of the models share: one small model of each kind, and a device's ratings."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from secemb_sdk.models import Gradients, MatrixFactorisation, Model, Ratings
from secemb_sdk.models.torch import (
    DeepFactorisationMachine,
    FactorisationMachine,
    NeuralCollaborativeFiltering,
    TorchMatrixFactorisation,
)

Array = npt.NDArray[Any]
ITEMS, USER_FEATURES, ITEM_FEATURES = 40, 5, 3
FEATURES_OF_ITEMS = (np.random.default_rng(5).random((ITEMS, ITEM_FEATURES)) < 0.4).astype(np.uint8)
FEATURES_OF_A_PERSON = np.array([1, 0, 0, 1, 0], dtype=np.uint8)


def machine(kind: Callable[..., Model], **settings: Any) -> Model:
    return kind(
        user_features=FEATURES_OF_A_PERSON, item_features=FEATURES_OF_ITEMS.__getitem__, dimension=4, **settings
    )


TORCH_MODELS: dict[str, Model] = {
    "mf": TorchMatrixFactorisation(dimension=4),
    "ncf": NeuralCollaborativeFiltering(dimension=4),
    "fm": machine(FactorisationMachine),
    "deepfm": machine(DeepFactorisationMachine),
}
MODELS: dict[str, Model] = {"mf, by hand": MatrixFactorisation(dimension=4), **TORCH_MODELS}


class Unsolved:
    """A model that cannot solve its private part, and moves it step by step."""

    def __init__(self, model: Model) -> None:
        self.row_width, self.dense_size, self.private_size = model.row_width, model.dense_size, model.private_size
        self.first_private, self.gradients, self.scores = model.first_private, model.gradients, model.scores


@dataclass(frozen=True)
class Point:
    """Everything that a model's loss depends on."""

    rows: Array
    dense: Array
    private: Array
    ratings: Ratings

    def gradients(self, model: Model) -> Gradients:
        return model.gradients(self.rows, self.dense, self.private, self.ratings)

    def scores(self, model: Model) -> Array:
        return model.scores(self.rows, self.dense, self.private, self.ratings.items)


def point(model: Model, *, count: int = 7, seed: int = 0, kind: type[np.floating[Any]] = np.float32) -> Point:
    """Return a random point with numbers large enough that every term of a loss counts."""
    rng = np.random.default_rng(seed)
    items = rng.choice(ITEMS, count, replace=False).astype(np.int64)
    return Point(
        rows=rng.normal(0, 0.7, (count, model.row_width)).astype(kind),
        dense=rng.normal(0, 0.7, model.dense_size).astype(kind),
        private=rng.normal(0, 0.7, model.private_size).astype(kind),
        ratings=Ratings(items, rng.integers(1, 6, count).astype(kind)),
    )
