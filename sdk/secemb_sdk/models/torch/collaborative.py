"""Neural collaborative filtering (He et al. 2017): a product of vectors and a small network, added by output weights.

    prediction   b_u + b_i + ⟨output, [p ∘ q, network(p′, q′)]⟩      network: 2d → d → d/2, with ReLU

An item's row is q, q′ and its bias; the private part is p, p′ and the person's bias.
"""

import numpy as np
import torch
from torch import Tensor

from secemb_sdk.models.interface import Floats, Ratings
from secemb_sdk.models.ridge import Penalties
from secemb_sdk.models.torch.base import Tensors
from secemb_sdk.models.torch.rating import Arrays, RecordRatingModel, Slopes, multiply, outer
from secemb_shared.messages.spec import SQUARED
from secemb_shared.randomness import Indices


class NeuralCollaborativeFiltering(RecordRatingModel):
    """NCF with the layers of the paper."""

    def __init__(
        self,
        *,
        dimension: int = 16,
        loss: str = SQUARED,
        penalty: float = Penalties.rating,
        person_penalty: float = Penalties.person,
        bias_penalty: float = Penalties.bias,
        dense_penalty: float = 0.0,
        scale: float = 0.1,
    ) -> None:
        half = dimension // 2
        super().__init__(
            row_width=2 * dimension + 1,
            private={"vector": (dimension,), "input": (dimension,), "bias": (1,)},
            dense={
                "first": (2 * dimension, dimension),
                "first_bias": (dimension,),
                "second": (dimension, half),
                "second_bias": (half,),
                "output": (dimension + half,),
            },
            private_scale=scale,
            loss=loss,
            penalty=penalty,
            person_penalty=person_penalty,
            bias_penalty=bias_penalty,
            dense_penalty=dense_penalty,
        )
        self._dimension = dimension

    def predict(self, rows: Tensor, dense: Tensors, private: Tensors, items: Tensor) -> Tensor:
        """Return the predicted ratings."""
        _, hidden = self._layers(rows, dense, private)
        found = torch.cat([rows[:, : self._dimension] * private["vector"], hidden], dim=1) @ dense["output"]
        return found + rows[:, -1] + private["bias"]

    def _layers(self, rows: Tensor, dense: Tensors, private: Tensors) -> tuple[Tensor, Tensor]:
        """Return what both layers of the network put out."""
        inputs = rows[:, self._dimension : -1]
        both = torch.cat([private["input"].expand_as(inputs), inputs], dim=1)
        first = torch.relu(both @ dense["first"] + dense["first_bias"])
        return first, torch.relu(first @ dense["second"] + dense["second_bias"])

    def _linearise(self, rows: Floats, dense: Floats, private: Floats, items: Indices) -> tuple[Floats, Floats]:
        """Return the same by formula: back through the layers, where a unit is active."""
        table, parts = torch.tensor(rows), self.named(torch.tensor(dense), torch.tensor(private))
        first, second = self._layers(table, *parts)
        out_vector, out_network = torch.split(parts[0]["output"], [self._dimension, second.shape[1]])
        by_first = ((second > 0) * out_network) @ parts[0]["second"].T
        by_input = ((first > 0) * by_first) @ parts[0]["first"][: self._dimension].T
        by_vector, ones = table[:, : self._dimension] * out_vector, torch.ones(len(rows), 1)
        scores: Floats = self.predict(table, *parts, torch.tensor(items)).numpy()
        return scores, torch.cat([by_vector, by_input, ones], dim=1).numpy()

    def record_slopes(self, rows: Floats, dense: Arrays, private: Arrays, ratings: Ratings) -> Slopes:
        """Return the gradients of each squared error, from the output back to the inputs."""
        vectors, inputs, biases = np.split(rows, [self._dimension, 2 * self._dimension], axis=1)
        of_person, of_item = np.split(dense["first"], 2)
        of_vectors, of_hidden = np.split(dense["output"], [self._dimension])

        from_person = multiply(private["input"][np.newaxis], of_person) + dense["first_bias"]
        first = np.maximum(multiply(inputs, of_item) + from_person, 0)
        second = np.maximum(multiply(first, dense["second"]) + dense["second_bias"], 0)
        found = np.concatenate([vectors * private["vector"], second], axis=1)
        scores = multiply(found, dense["output"][:, np.newaxis]) + biases + private["bias"]

        slopes = 2 * (scores - ratings.values[:, np.newaxis])  # (n, 1), by the prediction
        by_second = slopes * of_hidden * (second > 0)
        by_first = multiply(by_second, dense["second"].T) * (first > 0)
        both = np.concatenate([np.broadcast_to(private["input"], inputs.shape), inputs], axis=1)
        by_row = slopes * (of_vectors * private["vector"]), multiply(by_first, of_item.T), slopes
        by_dense = outer(both, by_first), by_first, outer(first, by_second), by_second, slopes * found
        return by_row, by_dense
