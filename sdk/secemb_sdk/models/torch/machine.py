"""A factorisation machine (Rendle 2010) over the person, the item and the binary features of both.

    prediction   μ + w_0 + Σ w_f + Σ over pairs f < g of ⟨v_f, v_g⟩      f, g: person, item, every feature that is set

Person and item have a vector and a bias like features have. The item's are its row and the person's are private; those
of the features are the dense part. Which features a person has never leaves the device. Which an item has is public,
and must lie on the device for every item: who asks a server for one item's features names the item.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from secemb_sdk.models.factorisation import MIDDLE, SCALE
from secemb_sdk.models.torch.base import Parts, Shapes
from secemb_sdk.models.torch.rating import RatingModel
from secemb_shared.randomness import Indices

Features = npt.NDArray[np.uint8]
FeatureLookup = Callable[[Indices], Features]  # (n,) items → (n, features), ones and zeros


class FactorisationMachine(RatingModel):
    """FM with binary features."""

    def __init__(
        self,
        *,
        user_features: Features,  # (features,), ones and zeros
        item_features: FeatureLookup,
        dimension: int = 64,
        penalty: float = 0.1,
        dense_penalty: float = 1.0,
        middle: float = MIDDLE,
        scale: float = SCALE,
    ) -> None:
        self._user_features = torch.tensor(user_features)
        self._item_features, self._middle = item_features, middle
        self._features = user_features.size + item_features(np.empty(0, np.int64)).shape[1]
        super().__init__(
            row_width=dimension + 1,
            private={"vector": (dimension,), "bias": (1,)},
            dense={
                "vectors": (self._features, dimension),
                "weights": (self._features,),
                "bias": (1,),
                **self._layers(dimension),
            },
            private_scale=scale,
            penalty=penalty,
            dense_penalty=dense_penalty,
        )

    def predict(self, rows: Tensor, dense: Parts, private: Parts, items: Tensor) -> Tensor:
        """Return the predicted ratings."""
        set_ = self._set(items, rows.dtype)
        linear = set_ @ dense["weights"] + rows[:, -1] + (self._middle + dense["bias"] + private["bias"])
        vectors, own = rows[:, :-1], private["vector"]
        total = set_ @ dense["vectors"] + vectors + own
        squares = set_ @ dense["vectors"].square() + vectors.square() + own.square()
        # The square of a sum, without the squares, is every pair twice.
        return linear + (total.square() - squares).sum(dim=1) / 2

    def _layers(self, dimension: int) -> Shapes:
        """Return what a subclass has in its dense part besides."""
        return {}

    def _set(self, items: Tensor, kind: torch.dtype) -> Tensor:
        """Return which features are set for this person with each of the items, shape (items, features)."""
        of_items = torch.tensor(self._item_features(items.numpy()))
        return torch.cat([self._user_features.expand(len(of_items), -1), of_items], dim=1).to(kind)
