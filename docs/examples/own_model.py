"""Bring your own model: what a person likes, learned from yes (1) and no (0) instead of from ratings."""

import numpy as np
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from secemb_sdk.models import PrivateState, Ratings, learn
from secemb_sdk.models.torch import Tensors, TorchModel


class Likes(TorchModel):
    """The chance that a person likes an item: a sigmoid of ⟨person, mix · item⟩ and a bias."""

    def __init__(self, dimension: int = 8) -> None:
        super().__init__(
            row_width=dimension + 1,  # read from and added to the shared table, one row an item
            dense={"mix": (dimension, dimension)},  # shared as a whole
            private={"vector": (dimension,)},  # never leaves the device
        )

    def predict(self, rows: Tensor, dense: Tensors, private: Tensors, items: Tensor) -> Tensor:
        """Return a score for each item, larger for those the person likes better."""
        return rows[:, :-1] @ dense["mix"] @ private["vector"] + rows[:, -1]

    def loss(self, rows: Tensor, dense: Tensors, private: Tensors, items: Tensor, values: Tensor) -> Tensor:
        """Return how surprising the person's answers are, and a small price for large numbers."""
        surprise = binary_cross_entropy_with_logits(self.predict(rows, dense, private, items), values, reduction="sum")
        return surprise + 0.01 * (rows.square().sum() + private["vector"].square().sum())


if __name__ == "__main__":
    model, random = Likes(), np.random.default_rng(1)
    state = PrivateState.begin(model, random)
    rows, dense = random.normal(0, 0.1, (3, 9)).astype(np.float32), random.normal(0, 0.1, 64).astype(np.float32)
    answers = Ratings(np.array([7, 13, 42]), np.array([1, 0, 1], np.float32))
    row_update, dense_update, state = learn(model, state, rows, dense, answers, rate=0.025)
    print("to add:", row_update.shape, dense_update.shape, "kept here:", state.values.shape)  # noqa: T201
