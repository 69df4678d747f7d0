"""Neural collaborative filtering (He et al. 2017): a vector product and a small network, combined by output weights.

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
        inputs = rows[:, self._dimension : -1]
        both = torch.cat([private["input"].expand_as(inputs), inputs], dim=1)
        first = torch.relu(both @ dense["first"] + dense["first_bias"])
        second = torch.relu(first @ dense["second"] + dense["second_bias"])
        found = torch.cat([rows[:, : self._dimension] * private["vector"], second], dim=1) @ dense["output"]
        return found + rows[:, -1] + private["bias"]

    def _linearise(self, rows: Floats, dense: Floats, private: Floats, items: Indices) -> tuple[Floats, Floats]:
        """Return the linearisation in closed form: back through the layers, where a unit is active.

        Not in torch, whose calls would take longer than the arithmetic on one device's small arrays.
        """
        shared, own = self.named_arrays(dense, private)
        (vectors, inputs, biases), (of_person, of_item, of_vectors, of_hidden) = self._halves(rows, shared)
        first = np.maximum(inputs @ of_item + (own["input"] @ of_person + shared["first_bias"]), 0)
        second = np.maximum(first @ shared["second"] + shared["second_bias"], 0)
        found = np.concatenate([vectors * own["vector"], second], axis=1)
        scores: Floats = found @ shared["output"] + biases[:, 0] + own["bias"]
        by_first = ((second > 0) * of_hidden) @ shared["second"].T
        by_input = ((first > 0) * by_first) @ of_person.T
        return scores, np.concatenate([vectors * of_vectors, by_input, np.ones_like(biases)], axis=1)

    def record_slopes(self, rows: Floats, dense: Arrays, private: Arrays, ratings: Ratings) -> Slopes:
        """Return the gradients of each squared error, from the output back to the inputs."""
        (vectors, inputs, biases), (of_person, of_item, of_vectors, of_hidden) = self._halves(rows, dense)

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

    def _halves(self, rows: Floats, dense: Arrays) -> tuple[tuple[Floats, ...], tuple[Floats, ...]]:
        """Return the vectors, inputs and biases of rows, and the halves of the first and of the last layer."""
        width = self._dimension
        first, output = dense["first"], dense["output"]
        half = len(first) // 2
        of_rows = rows[:, :width], rows[:, width : 2 * width], rows[:, 2 * width :]
        return of_rows, (first[:half], first[half:], output[:width], output[width:])
