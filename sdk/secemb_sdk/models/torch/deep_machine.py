"""A deep factorisation machine (Guo et al. 2017): a factorisation machine and a network over the same vectors.

    prediction   machine(…) + network(p_u, q_i, v_f for every feature f that is set, zeros for one that is not)
    network      (features + 2)·d → 4d → 2d → 1, each hidden layer with scale, shift and ReLU

Where the paper normalises over a batch, a device has one person's ratings and no batch; docs/adr/0008 says what is done
instead. The first layer is never multiplied by the zeros of features that are not set.
"""

import torch
from torch import Tensor

from secemb_sdk.models.torch.base import Parts, Shapes
from secemb_sdk.models.torch.machine import FactorisationMachine
from secemb_sdk.models.torch.rating import RatingModel


class DeepFactorisationMachine(FactorisationMachine):
    """DeepFM with binary features and the layers of the paper."""

    def predict_from(self, rows: Tensor, dense: Parts, private: Parts, known: Tensor) -> Tensor:
        """Return the predicted ratings, from the features that are set."""
        hidden = self._first_layer(rows, dense, private, known)
        hidden = _activate(hidden, dense["first_scale"], dense["first_shift"])
        hidden = hidden @ dense["second"] + dense["second_bias"]
        hidden = _activate(hidden, dense["second_scale"], dense["second_shift"])
        return super().predict_from(rows, dense, private, known) + hidden @ dense["output"] + dense["output_bias"]

    # The machine's formula knows nothing of the network.
    _differentiate_each = RatingModel._differentiate_each

    def _first_layer(self, rows: Tensor, dense: Parts, private: Parts, known: Tensor) -> Tensor:
        own, item, features = torch.split(dense["first"], [1, 1, self._features])
        says = torch.bmm(dense["vectors"].unsqueeze(1), features).squeeze(1)  # what each feature adds to each unit
        return known.to(rows.dtype) @ says + rows[:, :-1] @ item[0] + private["vector"] @ own[0] + dense["first_bias"]

    def _layers(self, dimension: int) -> Shapes:
        wide, narrow = 4 * dimension, 2 * dimension
        return {
            "first": (self._features + 2, dimension, wide),
            "first_bias": (wide,),
            "first_scale": (wide,),  # less one, so that a penalty pulls towards "unchanged"
            "first_shift": (wide,),
            "second": (wide, narrow),
            "second_bias": (narrow,),
            "second_scale": (narrow,),
            "second_shift": (narrow,),
            "output": (narrow,),
            "output_bias": (1,),
        }


def _activate(hidden: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return torch.relu(hidden * (1 + scale) + shift)
