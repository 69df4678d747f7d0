"""Neural collaborative filtering (He et al. 2017): a product of vectors and a small network, added by output weights.

    prediction   μ + b_u + b_i + ⟨output, [p ∘ q, network(p′, q′)]⟩      network: 2d → d → d/2, with ReLU

An item's row is q, q′ and its bias; the private part is p, p′ and the person's bias.
"""

import torch
from torch import Tensor

from secemb_sdk.models.factorisation import MIDDLE
from secemb_sdk.models.torch.base import Tensors
from secemb_sdk.models.torch.rating import RatingModel


class NeuralCollaborativeFiltering(RatingModel):
    """NCF with the layers of the paper."""

    def __init__(
        self,
        *,
        dimension: int = 16,
        penalty: float = 0.1,
        dense_penalty: float = 0.0,
        middle: float = MIDDLE,
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
            penalty=penalty,
            dense_penalty=dense_penalty,
        )
        self._dimension, self._middle = dimension, middle

    def predict(self, rows: Tensor, dense: Tensors, private: Tensors, items: Tensor) -> Tensor:
        """Return the predicted ratings."""
        vectors, inputs, biases = torch.split(rows, [self._dimension, self._dimension, 1], dim=1)
        both = torch.cat([private["input"].expand_as(inputs), inputs], dim=1)
        hidden = torch.relu(both @ dense["first"] + dense["first_bias"])
        hidden = torch.relu(hidden @ dense["second"] + dense["second_bias"])
        found = torch.cat([vectors * private["vector"], hidden], dim=1) @ dense["output"]
        return found + biases[:, 0] + (self._middle + private["bias"])
